//! Which names in the hidden directory the kernel holds, and which views are open for them.
//!
//! A *slot* is one name in `snapshots` or `at` that was looked up: what the kernel knows below it has
//! nodes of its own, even where several names show one snapshot, as a directory must not be in two
//! places. A slot lasts until the kernel has forgotten all of it. The file system of its view is
//! opened when it is asked something, and closed when too many others have been since.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::sync::{Mutex, RwLock};
use dendro_fs::FileSystem;

use super::number::MAX_SLOT;
use crate::past::{Moment, Past};

/// How many views may be open at a time.
const MAX_OPEN: usize = 16;

/// The directory that a name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Snapshots,
    At,
}

/// A name that the kernel holds.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) moment: Moment,
    place: Place,
    name: Vec<u8>,
    /// How many lookups below it the kernel has not forgotten.
    held: AtomicU64,
}

impl Slot {
    /// Counts a lookup below a node that the kernel holds.
    pub(super) fn hold(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u32, Arc<Slot>>,
    by_name: HashMap<(Place, Vec<u8>), u32>,
    last: u32,
}

impl Table {
    /// A number that no slot has.
    fn free_number(&mut self) -> Option<u32> {
        for _ in 0..MAX_SLOT {
            self.last = self.last % MAX_SLOT + 1;
            if !self.by_number.contains_key(&self.last) {
                return Some(self.last);
            }
        }
        None
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    table: RwLock<Table>,
    /// The views that are open, the one used last at the end.
    open: Mutex<VecDeque<(Moment, Arc<FileSystem>)>>,
}

impl Slots {
    /// The slot with this number.
    pub(super) fn get(&self, number: u32) -> Option<Arc<Slot>> {
        self.table.read().by_number.get(&number).cloned()
    }

    /// Counts a lookup of a name, which shows `moment` now; `None` when there are too many names.
    pub(super) fn look_up(&self, place: Place, name: &[u8], moment: Moment) -> Option<Arc<Slot>> {
        let mut table = self.table.write();
        let key = (place, name.to_vec());
        let known = table.by_name.get(&key).and_then(|number| table.by_number.get(number));
        if let Some(slot) = known.filter(|slot| slot.moment == moment) {
            slot.hold();
            return Some(Arc::clone(slot));
        }
        // What the name showed before stays reachable for those who are inside.
        let number = table.free_number()?;
        let held = AtomicU64::new(1);
        let slot = Arc::new(Slot { number, moment, place, name: name.to_vec(), held });
        table.by_number.insert(number, Arc::clone(&slot));
        table.by_name.insert(key, number);
        Some(slot)
    }

    /// The kernel has forgotten so many lookups below a name.
    pub(super) fn forget(&self, number: u32, count: u64) {
        let Some(slot) = self.get(number) else { return };
        let before = slot.held.fetch_sub(count, Ordering::Relaxed);
        if before > count {
            return;
        }
        let mut table = self.table.write();
        // The name may have been looked up again meanwhile.
        if slot.held.load(Ordering::Relaxed) == 0 {
            table.by_number.remove(&number);
            let key = (slot.place, slot.name.clone());
            if table.by_name.get(&key) == Some(&number) {
                table.by_name.remove(&key);
            }
        }
    }

    /// The file system of a moment.
    pub(super) fn open(
        &self,
        past: &dyn Past,
        moment: Moment,
    ) -> dendro_fs::Result<Arc<FileSystem>> {
        if let Some(fs) = self.take_open(moment) {
            return Ok(fs);
        }
        let fs = Arc::new(past.open(moment)?);
        let mut open = self.open.lock();
        open.push_back((moment, Arc::clone(&fs)));
        let surplus = open.len().saturating_sub(MAX_OPEN);
        let closed: Vec<_> = open.drain(..surplus).collect();
        drop(open);
        // Not under the lock: they hold many i-nodes.
        drop(closed);
        Ok(fs)
    }

    fn take_open(&self, moment: Moment) -> Option<Arc<FileSystem>> {
        let mut open = self.open.lock();
        let at = open.iter().rposition(|(other, _)| *other == moment)?;
        if at + 1 < open.len() {
            let found = open.remove(at)?;
            open.push_back(found);
        }
        open.back().map(|(_, fs)| Arc::clone(fs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_lasts_until_all_of_it_is_forgotten() {
        let slots = Slots::default();
        let moment = |epoch| Moment { branch: 0, epoch };
        let first = slots.look_up(Place::At, b"-5m", moment(1)).unwrap();
        assert_eq!(slots.look_up(Place::At, b"-5m", moment(1)).unwrap().number, first.number);
        first.hold();
        let later = slots.look_up(Place::At, b"-5m", moment(2)).unwrap();
        let named = slots.look_up(Place::Snapshots, b"-5m", moment(1)).unwrap();
        assert!(later.number != first.number && named.number != first.number);
        slots.forget(first.number, 2);
        assert_eq!(slots.get(first.number).unwrap().moment, moment(1));
        slots.forget(first.number, 1);
        assert!(slots.get(first.number).is_none());
        assert_eq!(slots.look_up(Place::At, b"-5m", moment(2)).unwrap().number, later.number);
        slots.forget(later.number, 2);
        slots.forget(named.number, 1);
        let table = slots.table.read();
        assert!(table.by_number.is_empty() && table.by_name.is_empty());
    }
}
