//! Who holds an i-node: how often each was looked up and opened, and not forgotten since.
//!
//! The kernel holds what it has looked up for as long as it likes, millions of i-nodes. So counts are
//! kept in binary, as sets of i-nodes: one has all whose count is odd, the next all whose count has a
//! two in it, and so on. A compressed set takes a bit for each of many i-nodes that are numbered one
//! after the other, two bytes where they are not, and no more than some 60 where none is near.

use std::collections::hash_map::Entry;

use dendro_base::sync::{Arc, Mutex};
use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;

use super::{Node, SHARD_COUNT};
use crate::types::Ino;

/// How many of a count's binary digits are in sets. What is above that is a record.
const DIGITS: usize = 3;
/// What a record counts lookups in.
const CARRY: u64 = 1 << DIGITS;
/// I-nodes of which the number's higher bits are the same are in one shard, and in one part of a set: that
/// takes a bit for each number if it has many.
const SHARD_BITS: u32 = 16;

/// What is known of an i-node beside the last digits of its count of lookups.
#[derive(Debug, Default)]
struct Record {
    /// In [`CARRY`].
    carried: u64,
    opens: u32,
    /// What is remembered of it, when it was removed before it was forgotten.
    gone: Option<Arc<Node>>,
}

impl Record {
    const fn is_empty(&self) -> bool {
        self.carried == 0 && self.opens == 0 && self.gone.is_none()
    }
}

#[derive(Debug, Default)]
struct Shard {
    digits: [RoaringTreemap; DIGITS],
    records: FxHashMap<u64, Record>,
}

impl Shard {
    fn add_lookup(&mut self, ino: u64) {
        for digit in &mut self.digits {
            if digit.insert(ino) {
                return;
            }
            digit.remove(ino);
        }
        self.records.entry(ino).or_default().carried += 1;
    }

    fn lookups(&self, ino: u64) -> u64 {
        let carried = self.records.get(&ino).map_or(0, |record| record.carried * CARRY);
        let digits = self.digits.iter().enumerate();
        carried + digits.map(|(at, digit)| u64::from(digit.contains(ino)) << at).sum::<u64>()
    }

    fn set_lookups(&mut self, ino: u64, count: u64) {
        for (at, digit) in self.digits.iter_mut().enumerate() {
            if count >> at & 1 == 1 {
                digit.insert(ino);
            } else {
                digit.remove(ino);
            }
        }
        let carried = count / CARRY;
        if carried > 0 {
            self.records.entry(ino).or_default().carried = carried;
        } else if let Some(record) = self.records.get_mut(&ino) {
            record.carried = 0;
            self.drop_empty(ino);
        }
    }

    fn opens(&self, ino: u64) -> u32 {
        self.records.get(&ino).map_or(0, |record| record.opens)
    }

    fn drop_empty(&mut self, ino: u64) {
        if let Entry::Occupied(entry) = self.records.entry(ino)
            && entry.get().is_empty()
        {
            entry.remove();
        }
    }

    /// What was remembered of a removed file, if nobody holds it.
    fn forgotten(&mut self, ino: u64) -> Option<Arc<Node>> {
        if self.lookups(ino) > 0 || self.opens(ino) > 0 {
            return None;
        }
        let gone = self.records.get_mut(&ino)?.gone.take();
        self.drop_empty(ino);
        gone
    }

    /// The i-nodes that were looked up.
    fn looked_up(&self) -> RoaringTreemap {
        let carried = self.records.iter().filter(|(_, record)| record.carried > 0);
        let carried: RoaringTreemap = carried.map(|(ino, _)| *ino).collect();
        self.digits.iter().fold(carried, |all, digit| all | digit)
    }

    fn memory_bytes(&self) -> usize {
        let digits = self.digits.iter().flat_map(RoaringTreemap::bitmaps);
        let digits = digits.map(|(_, part)| {
            // What it takes at most on a disk. In memory, lists may have room for as much again.
            let container_count = part.statistics().n_containers as usize;
            2 * part.serialized_size() + container_count * CONTAINER_BYTES + PART_BYTES
        });
        let place_bytes = size_of::<(u64, Record)>() + 1;
        digits.sum::<usize>() + self.records.capacity() * place_bytes * 8 / 7
    }
}

/// What a set takes for each 2¹⁶ numbers of which it has any, and for each 2³².
const CONTAINER_BYTES: usize = 48;
const PART_BYTES: usize = 64;

/// How often each i-node was looked up and opened.
#[derive(Debug)]
pub(crate) struct RefTable {
    shards: Vec<Mutex<Shard>>,
    /// A lookup keeps a file without name alive, as an open does.
    lookups_hold: bool,
}

impl RefTable {
    pub(crate) fn new(lookups_hold: bool) -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(), lookups_hold }
    }

    fn shard_of(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[(ino.0 >> SHARD_BITS) as usize % SHARD_COUNT]
    }

    pub(crate) fn add_lookup(&self, ino: Ino) {
        self.shard_of(ino).lock().add_lookup(ino.0);
    }

    pub(crate) fn add_open(&self, ino: Ino) {
        self.shard_of(ino).lock().records.entry(ino.0).or_default().opens += 1;
    }

    /// Takes lookups back; answers what was remembered of a removed file that nobody holds now.
    pub(crate) fn drop_lookups(&self, ino: Ino, count: u64) -> Option<Arc<Node>> {
        let mut shard = self.shard_of(ino).lock();
        let left = shard.lookups(ino.0).saturating_sub(count);
        shard.set_lookups(ino.0, left);
        shard.forgotten(ino.0)
    }

    /// As [`Self::drop_lookups`], for an open.
    pub(crate) fn drop_open(&self, ino: Ino) -> Option<Arc<Node>> {
        let mut shard = self.shard_of(ino).lock();
        let record = shard.records.get_mut(&ino.0)?;
        record.opens = record.opens.saturating_sub(1);
        let gone = shard.forgotten(ino.0);
        shard.drop_empty(ino.0);
        gone
    }

    /// Takes over how often each i-node was looked up, from a table that nobody uses any more.
    pub(crate) fn take_lookups(&self, other: &Self) {
        for (own, shard) in self.shards.iter().zip(&other.shards) {
            let (mut own, shard) = (own.lock(), shard.lock());
            for ino in shard.looked_up() {
                let count = own.lookups(ino) + shard.lookups(ino);
                own.set_lookups(ino, count);
            }
        }
    }

    /// Whether the file must stay when it has no name.
    pub(crate) fn is_held(&self, ino: Ino) -> bool {
        let shard = self.shard_of(ino).lock();
        shard.opens(ino.0) > 0 || (self.lookups_hold && shard.lookups(ino.0) > 0)
    }

    /// Remembers a removed file until it is forgotten; false when it is already.
    pub(crate) fn remember(&self, node: &Arc<Node>) -> bool {
        let ino = node.ino().0;
        let mut shard = self.shard_of(node.ino()).lock();
        let is_known = shard.lookups(ino) > 0 || shard.opens(ino) > 0;
        if is_known {
            shard.records.entry(ino).or_default().gone = Some(Arc::clone(node));
        }
        is_known
    }

    /// How many i-nodes are held by lookups, and what the table takes in memory.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(count, bytes), shard| {
            let shard = shard.lock();
            (count + shard.looked_up().len(), bytes + shard.memory_bytes() as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dendro_base::Rng;

    use super::*;

    #[test]
    fn lookups_are_taken_over_and_taken_back() {
        let [old, new] = [RefTable::new(true), RefTable::new(true)];
        old.add_lookup(Ino(9));
        old.add_lookup(Ino(9));
        old.add_open(Ino(10));
        new.add_lookup(Ino(9));
        new.take_lookups(&old);
        new.drop_lookups(Ino(9), 2);
        assert!(new.is_held(Ino(9)) && !new.is_held(Ino(10)));
        new.drop_lookups(Ino(9), 1);
        assert!(!new.is_held(Ino(9)));
    }

    #[test]
    fn a_reference_count_never_falls_below_nothing() {
        let refs = RefTable::new(true);
        refs.drop_open(Ino(9));
        refs.add_lookup(Ino(9));
        refs.drop_open(Ino(9));
        assert!(refs.is_held(Ino(9)));
        refs.drop_lookups(Ino(9), 10);
        assert!(!refs.is_held(Ino(9)));
        assert!(!RefTable::new(false).is_held(Ino(9)));
    }

    #[test]
    fn counts_are_those_of_a_plain_map() {
        let (refs, mut model) = (RefTable::new(true), BTreeMap::<u64, u64>::new());
        let mut rng = Rng::new(7);
        for _ in 0..50_000 {
            let ino = 1 + rng.below(40) * (1 << (4 * rng.below(12)));
            if rng.below(100) < 55 {
                refs.add_lookup(Ino(ino));
                *model.entry(ino).or_default() += 1;
            } else {
                let count = 1 + rng.below(20);
                refs.drop_lookups(Ino(ino), count);
                let left = model.get(&ino).copied().unwrap_or(0).saturating_sub(count);
                model.insert(ino, left);
            }
            assert_eq!(refs.is_held(Ino(ino)), model[&ino] > 0);
        }
        let held = model.values().filter(|&&count| count > 0).count() as u64;
        assert_eq!(refs.size().0, held);
        let copy = RefTable::new(true);
        copy.take_lookups(&refs);
        for (ino, count) in model {
            let shard = copy.shard_of(Ino(ino)).lock();
            assert_eq!(shard.lookups(ino), count);
            assert_eq!(shard.records.contains_key(&ino), count >= CARRY);
        }
    }

    #[test]
    fn a_million_looked_up_inodes_take_a_few_bytes_each_and_forgotten_ones_none() {
        let refs = RefTable::new(true);
        let count = 1 << 20;
        for round in 0..3 {
            (2..count + 2).for_each(|ino| refs.add_lookup(Ino(ino)));
            let (held, bytes) = refs.size();
            assert_eq!(held, count);
            assert!(bytes < count, "{bytes} bytes in round {round}");
        }
        (2..count + 2).for_each(|ino| assert!(refs.drop_lookups(Ino(ino), 3).is_none()));
        let (held, bytes) = refs.size();
        assert!(held == 0 && bytes < 64 << 10, "{held} are held in {bytes} bytes");
        // Of numbers far from each other each is in a set of its own.
        (1..1000).for_each(|ino| refs.add_lookup(Ino(ino << 32)));
        assert!(refs.size().1 < 200 * 1000, "{}", refs.size().1);
    }
}
