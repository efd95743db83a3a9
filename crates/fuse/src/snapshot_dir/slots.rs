//! Which names in the directory of snapshots the kernel has looked up, and which views are open.
//!
//! A *slot* is one name in `snapshots` or `at` that was looked up. Files below it have nodes of
//! their own. If several names show the same snapshot, each has its own slot, since a directory
//! must not be in two places. A slot exists until the kernel has forgotten everything below it. The
//! file system of its view is opened on demand, and closed after enough others were opened.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::sync::{Mutex, RwLock};
use dendro_fs::FileSystem;

use super::numbers::MAX_SLOT;
use crate::past::{Past, SnapshotId};

/// How many views may be open at a time.
const MAX_OPEN: usize = 16;

/// The directory that a name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Snapshots,
    At,
}

/// A name that the kernel has looked up.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) id: SnapshotId,
    place: Place,
    name: Vec<u8>,
    /// How many lookups of and below it the kernel has not forgotten.
    lookups: AtomicU64,
}

impl Slot {
    /// Counts a lookup of or below a name that the kernel has looked up.
    pub(super) fn add_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u32, Arc<Slot>>,
    by_name: HashMap<(Place, Vec<u8>), u32>,
    last: u32,
}

impl Table {
    /// An unused number.
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
    /// The open views, with the most recently used one at the end.
    open: Mutex<VecDeque<(SnapshotId, Arc<FileSystem>)>>,
}

impl Slots {
    /// The slot with this number.
    pub(super) fn get(&self, number: u32) -> Option<Arc<Slot>> {
        self.table.read().by_number.get(&number).cloned()
    }

    /// Counts a lookup of a name, which shows the snapshot `id` now; `None` if there are too many
    /// names.
    pub(super) fn look_up(&self, place: Place, name: &[u8], id: SnapshotId) -> Option<Arc<Slot>> {
        let mut table = self.table.write();
        let key = (place, name.to_vec());
        let known = table.by_name.get(&key).and_then(|number| table.by_number.get(number));
        if let Some(slot) = known.filter(|slot| slot.id == id) {
            slot.add_lookup();
            return Some(Arc::clone(slot));
        }
        // What the name showed before stays reachable for processes that work in it.
        let number = table.free_number()?;
        let lookups = AtomicU64::new(1);
        let slot = Arc::new(Slot { number, id, place, name: name.to_vec(), lookups });
        table.by_number.insert(number, Arc::clone(&slot));
        table.by_name.insert(key, number);
        Some(slot)
    }

    /// Takes back lookups of and below a name.
    pub(super) fn forget(&self, number: u32, count: u64) {
        let Some(slot) = self.get(number) else { return };
        let before = slot.lookups.fetch_sub(count, Ordering::Relaxed);
        if before > count {
            return;
        }
        let mut table = self.table.write();
        // Meanwhile the name may have been looked up again.
        if slot.lookups.load(Ordering::Relaxed) == 0 {
            table.by_number.remove(&number);
            let key = (slot.place, slot.name.clone());
            if table.by_name.get(&key) == Some(&number) {
                table.by_name.remove(&key);
            }
        }
    }

    /// The file system of a snapshot.
    pub(super) fn open(
        &self,
        past: &dyn Past,
        id: SnapshotId,
    ) -> dendro_fs::Result<Arc<FileSystem>> {
        if let Some(fs) = self.take_open(id) {
            return Ok(fs);
        }
        let fs = Arc::new(past.open(id)?);
        let mut open = self.open.lock();
        open.push_back((id, Arc::clone(&fs)));
        let surplus = open.len().saturating_sub(MAX_OPEN);
        let closed: Vec<_> = open.drain(..surplus).collect();
        drop(open);
        // Outside the lock, since they have many i-nodes.
        drop(closed);
        Ok(fs)
    }

    fn take_open(&self, id: SnapshotId) -> Option<Arc<FileSystem>> {
        let mut open = self.open.lock();
        let at = open.iter().rposition(|(other, _)| *other == id)?;
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
    fn a_slot_exists_until_all_of_it_is_forgotten() {
        let slots = Slots::default();
        let id = |epoch| SnapshotId { branch: 0, epoch };
        let first = slots.look_up(Place::At, b"-5m", id(1)).unwrap();
        assert_eq!(slots.look_up(Place::At, b"-5m", id(1)).unwrap().number, first.number);
        first.add_lookup();
        let later = slots.look_up(Place::At, b"-5m", id(2)).unwrap();
        let named = slots.look_up(Place::Snapshots, b"-5m", id(1)).unwrap();
        assert!(later.number != first.number && named.number != first.number);
        slots.forget(first.number, 2);
        assert_eq!(slots.get(first.number).unwrap().id, id(1));
        slots.forget(first.number, 1);
        assert!(slots.get(first.number).is_none());
        assert_eq!(slots.look_up(Place::At, b"-5m", id(2)).unwrap().number, later.number);
        slots.forget(later.number, 2);
        slots.forget(named.number, 1);
        let table = slots.table.read();
        assert!(table.by_number.is_empty() && table.by_name.is_empty());
    }
}
