//! Blocks that the device has not returned as they were written, by whoever met them: clients, the cleaner, a
//! cleaner outside. They are noted where that is found out, and stay where they are; what is to be done about
//! them is not for the disk to say.

use std::collections::BTreeMap;
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_disk::{Error, Lid};
use dendro_format::Addr;

/// So many places are kept apart; of others it is only counted how often one was met.
const MAX_PLACES: usize = 1024;

/// A block that was met damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it lies on the device, in bytes.
    pub addr_bytes: u64,
    /// The list, and the index of the page in it; nothing for a node of the map.
    pub page: Option<(Lid, u64)>,
    /// What is wrong, in the words of the error.
    pub problem: String,
    /// How often it was met.
    pub met_count: u64,
}

#[derive(Debug, Default)]
struct State {
    places: BTreeMap<u64, Damage>,
    met_count: u64,
    is_closed: bool,
}

/// All that was met since the disk was opened.
#[derive(Debug, Default)]
pub struct DamageLog {
    state: Mutex<State>,
    changed: Condvar,
}

impl DamageLog {
    pub(crate) fn note(&self, addr: Addr, page: Option<(Lid, u64)>, error: &Error) {
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
                let new = Damage { addr_bytes, page, problem, met_count: 1 };
                state.places.insert(addr_bytes, new);
            }
            None => {}
        }
        self.changed.notify_all();
    }

    /// How often damage was met.
    pub fn met_count(&self) -> u64 {
        self.state.lock().met_count
    }

    /// What was met, by its place on the device.
    pub fn places(&self) -> Vec<Damage> {
        self.state.lock().places.values().cloned().collect()
    }

    /// Whether an error that says `problem` tells of something that is noted here.
    pub fn knows(&self, problem: &str) -> bool {
        self.state.lock().places.values().any(|known| known.problem == problem)
    }

    /// Waits until damage was met another time than `met_count` times, at most for `timeout`; says how often by
    /// then. Returns at once when waiting was ended.
    pub fn wait(&self, met_count: u64, timeout: Duration) -> u64 {
        let mut state = self.state.lock();
        if state.met_count == met_count && !state.is_closed {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
        state.met_count
    }

    /// Ends all waiting for good.
    pub fn end_waiting(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Forgets all places, so that each counts as new when it is met again.
    pub fn forget(&self) {
        self.state.lock().places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_and_bounded_and_all_is_counted() {
        let log = DamageLog::default();
        let error = Error::Corrupted("wrong".into());
        let addr = |number: u64| Addr::from_bytes(number * 64);
        for number in 0..MAX_PLACES as u64 + 10 {
            log.note(addr(number), Some((Lid(7), number)), &error);
        }
        log.note(addr(3), Some((Lid(7), 3)), &Error::Io("other".into()));
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
