//! The log of damage: blocks and nodes that the device did not return as they were written.
//! Clients, the cleaner and external cleaners find them. This module only notes them where they
//! lie; what is done about them is decided above the disk.

use std::collections::BTreeMap;
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_disk::{Error, Lid};
use dendro_format::Addr;

/// The maximum number of places that are stored. Damage at other places is only counted.
const MAX_PLACES: usize = 1024;

/// What a damaged place holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A page: its list, and its index in the list.
    Page(Lid, u64),
    /// A node of the map.
    Node,
    /// A node of the map of which there is a sound copy, in this place or in the segment's mirror:
    /// nothing is lost.
    MirroredNode,
    /// The header or the records of a partial segment. What it says of changes is lost; the blocks
    /// in it are not.
    Records,
    /// The checkpoint that a mount would begin with.
    Checkpoint,
    /// The newest superblock.
    Superblock,
}

/// A block that was found damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its place on the device, in bytes.
    pub addr_bytes: u64,
    /// What lies there.
    pub part: Part,
    /// The problem, as the error states it.
    pub problem: String,
    /// How often it was found.
    pub met_count: u64,
}

#[derive(Debug, Default)]
struct State {
    places: BTreeMap<u64, Damage>,
    met_count: u64,
    is_closed: bool,
}

/// All damage that was found since the disk was opened.
#[derive(Debug, Default)]
pub struct DamageLog {
    state: Mutex<State>,
    changed: Condvar,
}

impl DamageLog {
    pub(crate) fn note(&self, addr: Addr, part: Part, error: &Error) {
        let problem = match error {
            Error::Corrupted(why) | Error::Io(why) => why.clone(),
            other => other.to_string(),
        };
        let mut state = self.state.lock();
        state.met_count += 1;
        let has_room = state.places.len() < MAX_PLACES;
        let addr_bytes = addr.bytes();
        match state.places.get_mut(&addr_bytes) {
            Some(known) => known.met_count += 1,
            None if has_room => {
                let new = Damage { addr_bytes, part, problem, met_count: 1 };
                state.places.insert(addr_bytes, new);
            }
            None => {}
        }
        self.changed.notify_all();
    }

    /// How often damage was found.
    pub fn met_count(&self) -> u64 {
        self.state.lock().met_count
    }

    /// The damage that was found, by its place on the device.
    pub fn places(&self) -> Vec<Damage> {
        self.state.lock().places.values().cloned().collect()
    }

    /// Whether the problem of some noted damage is `problem`.
    pub fn knows(&self, problem: &str) -> bool {
        self.state.lock().places.values().any(|known| known.problem == problem)
    }

    /// Waits until damage was found another time than `met_count` times, at most for `timeout`;
    /// returns how often it was found by then. Returns at once after [`Self::end_waiting`].
    pub fn wait(&self, met_count: u64, timeout: Duration) -> u64 {
        let mut state = self.state.lock();
        if state.met_count == met_count && !state.is_closed {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
        state.met_count
    }

    /// Ends all waiting permanently.
    pub fn end_waiting(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Forgets all places, so that each counts as new when it is found again.
    pub fn forget(&self) {
        self.state.lock().places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinguished_and_bounded_and_all_damage_is_counted() {
        let log = DamageLog::default();
        let error = Error::Corrupted("wrong".into());
        let addr = |number: u64| Addr::from_bytes(number * 64);
        for number in 0..MAX_PLACES as u64 + 10 {
            log.note(addr(number), Part::Page(Lid(7), number), &error);
        }
        log.note(addr(3), Part::Page(Lid(7), 3), &Error::Io("other".into()));
        assert_eq!(log.met_count(), MAX_PLACES as u64 + 11);
        let places = log.places();
        assert_eq!(places.len(), MAX_PLACES);
        assert_eq!((places[3].met_count, &*places[3].problem), (2, "wrong"));
        assert!(log.knows("wrong") && !log.knows("other"));
        assert_eq!(log.wait(0, Duration::from_secs(60)), log.met_count());
        log.forget();
        assert!(log.places().is_empty() && !log.knows("wrong"));
        log.end_waiting();
        log.wait(log.met_count(), Duration::from_secs(60));
    }
}
