//! How often each i-node was looked up and not forgotten since, and how often it is open.
//!
//! The kernel keeps references to i-nodes that it has looked up for as long as it likes. These may
//! be millions, most of them looked up once, with consecutive numbers. So the counts of 16
//! neighbouring i-nodes share one 64-bit number, with four bits each. That takes 1 to 3 bytes for
//! an i-node among many neighbours, and 19 to 39 bytes for one without neighbours. A count that
//! exceeds its four bits continues in a record.

use std::collections::hash_map::Entry;

use dendro_base::sync::{Arc, Mutex};
use rustc_hash::FxHashMap;

use super::node::Node;
use super::shards::{SHARD_COUNT, shard_of};
use crate::types::Ino;

/// The binary logarithm of how many neighbours share one number.
const NEIGHBOURS_LOG2: u32 = 4;
/// The bits of each count in it.
const COUNT_BITS: u32 = u64::BITS >> NEIGHBOURS_LOG2;
/// The highest count that fits. Lookups beyond it are counted in a record.
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// What does not fit the number that is shared with the neighbours.
#[derive(Debug, Default)]
struct Record {
    /// Lookups beyond [`MAX_COUNT`].
    more_lookups: u64,
    opens: u32,
    /// The node with the last state of a file that was removed before it was forgotten.
    removed: Option<Arc<Node>>,
}

impl Record {
    const fn is_empty(&self) -> bool {
        self.more_lookups == 0 && self.opens == 0 && self.removed.is_none()
    }
}

/// The key of the number that an i-node shares with its neighbours, and the first bit of its count
/// there.
const fn place_of(ino: u64) -> (u64, u32) {
    let at = (ino & ((1 << NEIGHBOURS_LOG2) - 1)) as u32;
    (ino >> NEIGHBOURS_LOG2, at * COUNT_BITS)
}

#[derive(Debug, Default)]
struct Shard {
    /// The numbers with the counts; none of them is zero.
    counts: FxHashMap<u64, u64>,
    records: FxHashMap<u64, Record>,
}

impl Shard {
    fn add_lookups(&mut self, ino: u64, lookups: u64) {
        let (key, shift) = place_of(ino);
        let counts = self.counts.entry(key).or_default();
        let added = lookups.min(MAX_COUNT - (*counts >> shift & MAX_COUNT));
        *counts += added << shift;
        if lookups > added {
            self.records.entry(ino).or_default().more_lookups += lookups - added;
        }
    }

    fn lookups(&self, ino: u64) -> u64 {
        let (key, shift) = place_of(ino);
        let count = self.counts.get(&key).map_or(0, |counts| counts >> shift & MAX_COUNT);
        count + self.record(ino).map_or(0, |record| record.more_lookups)
    }

    fn drop_lookups(&mut self, ino: u64, lookups: u64) {
        let mut left = lookups;
        if !self.records.is_empty()
            && let Some(record) = self.records.get_mut(&ino)
        {
            let dropped = left.min(record.more_lookups);
            record.more_lookups -= dropped;
            left -= dropped;
            self.drop_empty(ino);
        }
        let (key, shift) = place_of(ino);
        if let Entry::Occupied(mut counts) = self.counts.entry(key) {
            let dropped = left.min(*counts.get() >> shift & MAX_COUNT);
            *counts.get_mut() -= dropped << shift;
            if *counts.get() == 0 {
                counts.remove();
            }
        }
    }

    /// Most i-nodes have no record.
    fn record(&self, ino: u64) -> Option<&Record> {
        if self.records.is_empty() { None } else { self.records.get(&ino) }
    }

    fn opens(&self, ino: u64) -> u32 {
        self.record(ino).map_or(0, |record| record.opens)
    }

    fn drop_empty(&mut self, ino: u64) {
        if let Entry::Occupied(entry) = self.records.entry(ino)
            && entry.get().is_empty()
        {
            entry.remove();
        }
    }

    /// The last state of a removed file, if nothing refers to the file any more.
    fn take_unreferenced(&mut self, ino: u64) -> Option<Arc<Node>> {
        self.record(ino)?;
        if self.lookups(ino) > 0 || self.opens(ino) > 0 {
            return None;
        }
        let removed = self.records.get_mut(&ino)?.removed.take();
        self.drop_empty(ino);
        removed
    }

    /// The i-nodes that are looked up.
    fn looked_up(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().flat_map(|(key, counts)| {
            let neighbours = (0..1 << NEIGHBOURS_LOG2).map(move |at| key << NEIGHBOURS_LOG2 | at);
            neighbours.filter(move |ino| counts >> place_of(*ino).1 & MAX_COUNT != 0)
        })
    }

    fn memory_bytes(&self) -> usize {
        let place_bytes = |entry_bytes: usize| (entry_bytes + 1) * 8 / 7;
        self.counts.capacity() * place_bytes(size_of::<(u64, u64)>())
            + self.records.capacity() * place_bytes(size_of::<(u64, Record)>())
    }

    /// Frees memory after most i-nodes were forgotten.
    fn shrink(&mut self) {
        if self.counts.capacity() > 4 * self.counts.len() + SMALL_LEN {
            self.counts.shrink_to(2 * self.counts.len());
        }
        if self.records.capacity() > 4 * self.records.len() + SMALL_LEN {
            self.records.shrink_to(2 * self.records.len());
        }
    }
}

/// Tables with room for no more entries than this are not shrunk.
const SMALL_LEN: usize = 1024;

/// The lookups and opens of each i-node.
#[derive(Debug)]
pub(crate) struct References {
    shards: Vec<Mutex<Shard>>,
    /// Whether a lookup keeps a file without a name, as an open does.
    lookups_keep_files: bool,
}

impl References {
    pub(crate) fn new(lookups_keep_files: bool) -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(), lookups_keep_files }
    }

    fn shard_of(&self, ino: Ino) -> &Mutex<Shard> {
        // Neighbours share a number, so they must be in the same shard.
        &self.shards[shard_of(Ino(ino.0 >> NEIGHBOURS_LOG2))]
    }

    pub(crate) fn add_lookup(&self, ino: Ino) {
        self.shard_of(ino).lock().add_lookups(ino.0, 1);
    }

    pub(crate) fn add_open(&self, ino: Ino) {
        self.shard_of(ino).lock().records.entry(ino.0).or_default().opens += 1;
    }

    /// Subtracts lookups. Returns the node with the last state of a removed file if nothing refers
    /// to that file any more.
    pub(crate) fn drop_lookups(&self, ino: Ino, count: u64) -> Option<Arc<Node>> {
        let mut shard = self.shard_of(ino).lock();
        shard.drop_lookups(ino.0, count);
        let removed = shard.take_unreferenced(ino.0);
        shard.shrink();
        removed
    }

    /// As [`Self::drop_lookups`], for one open.
    pub(crate) fn drop_open(&self, ino: Ino) -> Option<Arc<Node>> {
        let mut shard = self.shard_of(ino).lock();
        let record = shard.records.get_mut(&ino.0)?;
        record.opens = record.opens.saturating_sub(1);
        let removed = shard.take_unreferenced(ino.0);
        shard.drop_empty(ino.0);
        removed
    }

    /// Adds the lookups of another table, which is not used any more.
    pub(crate) fn take_lookups(&self, other: &Self) {
        for (own, shard) in self.shards.iter().zip(&other.shards) {
            let (mut own, shard) = (own.lock(), shard.lock());
            for ino in shard.looked_up() {
                own.add_lookups(ino, shard.lookups(ino));
            }
        }
    }

    /// Whether the file must stay although it has no name.
    pub(crate) fn is_in_use(&self, ino: Ino) -> bool {
        let shard = self.shard_of(ino).lock();
        shard.opens(ino.0) > 0 || (self.lookups_keep_files && shard.lookups(ino.0) > 0)
    }

    /// Keeps the node with the last state of a removed file until nothing refers to the file any
    /// more. Returns false if that is so already.
    pub(crate) fn keep_last_state(&self, node: &Arc<Node>) -> bool {
        let ino = node.ino().0;
        let mut shard = self.shard_of(node.ino()).lock();
        let is_referenced = shard.lookups(ino) > 0 || shard.opens(ino) > 0;
        if is_referenced {
            shard.records.entry(ino).or_default().removed = Some(Arc::clone(node));
        }
        is_referenced
    }

    /// How many i-nodes are looked up, and how many bytes the table takes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(count, bytes), shard| {
            let shard = shard.lock();
            (count + shard.looked_up().count() as u64, bytes + shard.memory_bytes() as u64)
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
        let [old, new] = [References::new(true), References::new(true)];
        old.add_lookup(Ino(9));
        old.add_lookup(Ino(9));
        old.add_open(Ino(10));
        new.add_lookup(Ino(9));
        new.take_lookups(&old);
        new.drop_lookups(Ino(9), 2);
        assert!(new.is_in_use(Ino(9)) && !new.is_in_use(Ino(10)));
        new.drop_lookups(Ino(9), 1);
        assert!(!new.is_in_use(Ino(9)));
    }

    #[test]
    fn a_reference_count_never_falls_below_nothing() {
        let refs = References::new(true);
        refs.drop_open(Ino(9));
        refs.add_lookup(Ino(9));
        refs.drop_open(Ino(9));
        assert!(refs.is_in_use(Ino(9)));
        refs.drop_lookups(Ino(9), 10);
        assert!(!refs.is_in_use(Ino(9)));
        assert!(!References::new(false).is_in_use(Ino(9)));
    }

    #[test]
    fn counts_are_those_of_a_plain_map() {
        let (refs, mut model) = (References::new(true), BTreeMap::<u64, u64>::new());
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
            assert_eq!(refs.is_in_use(Ino(ino)), model[&ino] > 0);
        }
        let referenced = model.values().filter(|&&count| count > 0).count() as u64;
        assert_eq!(refs.size().0, referenced);
        let copy = References::new(true);
        copy.take_lookups(&refs);
        for (ino, count) in model {
            let shard = copy.shard_of(Ino(ino)).lock();
            assert_eq!(shard.lookups(ino), count);
            assert_eq!(shard.records.contains_key(&ino), count > MAX_COUNT);
        }
    }

    #[test]
    fn a_million_looked_up_inodes_take_a_few_bytes_each_and_forgotten_ones_none() {
        let refs = References::new(true);
        let count = 1 << 20;
        for round in 0..3 {
            (2..count + 2).for_each(|ino| refs.add_lookup(Ino(ino)));
            let (looked_up, bytes) = refs.size();
            assert_eq!(looked_up, count);
            assert!(bytes < 3 * count, "{bytes} bytes in round {round}");
        }
        (2..count + 2).for_each(|ino| assert!(refs.drop_lookups(Ino(ino), 3).is_none()));
        let (looked_up, bytes) = refs.size();
        assert!(looked_up == 0 && bytes < 2 << 20, "{looked_up} in {bytes} bytes");
        // Numbers far from each other have no neighbours.
        (1..=100_000).for_each(|ino| refs.add_lookup(Ino(ino << 32)));
        assert!(refs.size().1 < 39 * 100_000, "{}", refs.size().1);
    }
}
