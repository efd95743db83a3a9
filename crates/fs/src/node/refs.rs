//! Who holds an i-node: how often each was looked up and opened, and not forgotten since.
//!
//! The kernel holds what it has looked up for as long as it likes, millions of i-nodes, most of them
//! looked up once and numbered one after the other. So the counts of 16 neighbours are the digits of one
//! number: 1 to 3 bytes for each of many together, 19 to 39 for one that is alone there. A count that
//! does not fit goes on in a record.

use std::collections::hash_map::Entry;

use dendro_base::sync::{Arc, Mutex};
use rustc_hash::FxHashMap;

use super::{Node, SHARD_COUNT, shard_of};
use crate::types::Ino;

/// So many neighbours have their counts in one number, binary logarithm.
const NEIGHBOURS_LOG2: u32 = 4;
/// Bits of a count there.
const COUNT_BITS: u32 = u64::BITS >> NEIGHBOURS_LOG2;
/// The highest such count. One more is counted in a record.
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// What is known of an i-node beside the first lookups.
#[derive(Debug, Default)]
struct Record {
    /// Lookups beyond [`MAX_COUNT`].
    more: u64,
    opens: u32,
    /// What is remembered of it, when it was removed before it was forgotten.
    gone: Option<Arc<Node>>,
}

impl Record {
    const fn is_empty(&self) -> bool {
        self.more == 0 && self.opens == 0 && self.gone.is_none()
    }
}

/// The key of an i-node and its neighbours, and where in their number its count begins.
const fn place_of(ino: u64) -> (u64, u32) {
    let at = (ino & ((1 << NEIGHBOURS_LOG2) - 1)) as u32;
    (ino >> NEIGHBOURS_LOG2, at * COUNT_BITS)
}

#[derive(Debug, Default)]
struct Shard {
    /// None of them is zero.
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
            self.records.entry(ino).or_default().more += lookups - added;
        }
    }

    fn lookups(&self, ino: u64) -> u64 {
        let (key, shift) = place_of(ino);
        let count = self.counts.get(&key).map_or(0, |counts| counts >> shift & MAX_COUNT);
        count + self.record(ino).map_or(0, |record| record.more)
    }

    fn drop_lookups(&mut self, ino: u64, lookups: u64) {
        let mut left = lookups;
        if !self.records.is_empty()
            && let Some(record) = self.records.get_mut(&ino)
        {
            let dropped = left.min(record.more);
            record.more -= dropped;
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

    /// Of most there is none.
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

    /// What was remembered of a removed file, if nobody holds it.
    fn forgotten(&mut self, ino: u64) -> Option<Arc<Node>> {
        self.record(ino)?;
        if self.lookups(ino) > 0 || self.opens(ino) > 0 {
            return None;
        }
        let gone = self.records.get_mut(&ino)?.gone.take();
        self.drop_empty(ino);
        gone
    }

    /// The i-nodes that were looked up.
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

    /// Gives memory back where most has been forgotten.
    fn give_back(&mut self) {
        if self.counts.capacity() > 4 * self.counts.len() + SMALL_LEN {
            self.counts.shrink_to(2 * self.counts.len());
        }
        if self.records.capacity() > 4 * self.records.len() + SMALL_LEN {
            self.records.shrink_to(2 * self.records.len());
        }
    }
}

/// Tables that have room for so many are not made smaller.
const SMALL_LEN: usize = 1024;

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
        // Neighbours are in one shard.
        &self.shards[shard_of(Ino(ino.0 >> NEIGHBOURS_LOG2))]
    }

    pub(crate) fn add_lookup(&self, ino: Ino) {
        self.shard_of(ino).lock().add_lookups(ino.0, 1);
    }

    pub(crate) fn add_open(&self, ino: Ino) {
        self.shard_of(ino).lock().records.entry(ino.0).or_default().opens += 1;
    }

    /// Takes lookups back; answers what was remembered of a removed file that nobody holds now.
    pub(crate) fn drop_lookups(&self, ino: Ino, count: u64) -> Option<Arc<Node>> {
        let mut shard = self.shard_of(ino).lock();
        shard.drop_lookups(ino.0, count);
        let gone = shard.forgotten(ino.0);
        shard.give_back();
        gone
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
                own.add_lookups(ino, shard.lookups(ino));
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
            assert_eq!(shard.records.contains_key(&ino), count > MAX_COUNT);
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
            assert!(bytes < 3 * count, "{bytes} bytes in round {round}");
        }
        (2..count + 2).for_each(|ino| assert!(refs.drop_lookups(Ino(ino), 3).is_none()));
        let (held, bytes) = refs.size();
        assert!(held == 0 && bytes < 2 << 20, "{held} are held in {bytes} bytes");
        // Numbers far from each other have no neighbours.
        (1..=100_000).for_each(|ino| refs.add_lookup(Ino(ino << 32)));
        assert!(refs.size().1 < 39 * 100_000, "{}", refs.size().1);
    }
}
