//! The facts of all files, by their numbers: in leaves of up to [`LEAF_LEN`] files, of which as
//! many are in memory as may be. The others are in a temporary file.
//!
//! In memory stays an index of the leaves, with the flags that their files have, so that nobody
//! looks for a flag where it is not.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Bound, ControlFlow, Range};

use rustc_hash::FxHashMap;
use zerocopy::{FromZeros, IntoBytes};

use super::facts::Facts;
use super::spill::{SlotNo, Spill};
use crate::error::Result;
use crate::types::Ino;

/// The most files of a leaf.
const LEAF_LEN: usize = 256;

/// The memory of a leaf.
const LEAF_BYTES: usize = LEAF_LEN * size_of::<Facts>() + size_of::<Leaf>();

/// The memory of a leaf's place in the index, with what the map and the queue take.
const PLACE_BYTES: usize = 2 * size_of::<(u64, Place)>();

/// The fewest leaves that are in memory.
const MIN_RESIDENT: usize = 8;

struct Leaf {
    /// In the order of numbers.
    facts: Vec<Facts>,
    is_dirty: bool,
    /// It was used since it was the turn of this leaf to leave memory.
    was_used: bool,
}

impl Leaf {
    fn new() -> Self {
        Self { facts: Vec::with_capacity(LEAF_LEN), is_dirty: true, was_used: true }
    }

    /// Where the facts of a file are, or would be.
    fn position(&self, ino: Ino) -> std::result::Result<usize, usize> {
        // Mostly all numbers from the first one on are in use.
        let first = self.facts.first().map_or(0, |first| first.ino);
        let at = ino.0.wrapping_sub(first) as usize;
        if self.facts.get(at).is_some_and(|facts| facts.ino == ino.0) {
            return Ok(at);
        }
        self.facts.binary_search_by_key(&ino.0, |facts| facts.ino)
    }
}

struct Place {
    leaf: Option<Box<Leaf>>,
    slot: Option<SlotNo>,
    /// How many files it has in the slot.
    len: u16,
    /// All flags that its files have, and maybe others.
    flags: u16,
}

/// The facts of all files, by their numbers.
pub(crate) struct Table {
    /// Each leaf has the files from its key up to the next one's.
    leaves: FxHashMap<u64, Place>,
    keys: BTreeSet<u64>,
    /// The numbers of the leaf that was found last: most files are near the one before.
    last: Range<u64>,
    /// The leaves in memory, each once, in the order in which it is their turn to leave.
    resident: VecDeque<u64>,
    max_resident: usize,
    spill: Spill,
    len: usize,
}

impl Table {
    /// A table whose leaves take `memory_bytes` at most.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let fitting = usize::try_from(memory_bytes).unwrap_or(usize::MAX) / LEAF_BYTES;
        Self {
            leaves: FxHashMap::default(),
            keys: BTreeSet::new(),
            last: 0..0,
            resident: VecDeque::new(),
            max_resident: fitting.max(MIN_RESIDENT),
            spill: Spill::new(LEAF_LEN * size_of::<Facts>()),
            len: 0,
        }
    }

    /// The facts of a file; those of one that is not there if the table has none.
    pub(crate) fn get(&mut self, ino: Ino) -> Result<Facts> {
        let none = Facts::none(ino);
        let Some(key) = self.key_of(ino) else { return Ok(none) };
        let place = self.leaves.get_mut(&key).expect("there is such a leaf");
        let facts_of = |leaf: &mut Leaf| {
            leaf.was_used = true;
            leaf.position(ino).map_or(none, |at| leaf.facts[at])
        };
        match &mut place.leaf {
            Some(leaf) => Ok(facts_of(leaf)),
            None => Ok(facts_of(self.leaf(key)?)),
        }
    }

    /// Changes the facts of a file. Facts that say nothing are not kept.
    pub(crate) fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Facts)) -> Result<()> {
        // Nearly always the leaf is in memory and has room.
        if let Some(key) = self.key_of(ino)
            && let Some(place) = self.leaves.get_mut(&key)
            && let Some(leaf) = &mut place.leaf
        {
            let found = leaf.position(ino);
            let before = found.map_or(Facts::none(ino), |at| leaf.facts[at]);
            let mut facts = before;
            change(&mut facts);
            leaf.was_used = true;
            match found {
                _ if facts == before => return Ok(()),
                Ok(at) if !facts.is_empty() => leaf.facts[at] = facts,
                Err(at) if leaf.facts.len() < LEAF_LEN => {
                    leaf.facts.insert(at, facts);
                    self.len += 1;
                }
                _ => return self.put(facts),
            }
            leaf.is_dirty = true;
            place.flags |= facts.flags;
            return Ok(());
        }
        let before = self.get(ino)?;
        let mut facts = before;
        change(&mut facts);
        if facts != before { self.put(facts) } else { Ok(()) }
    }

    /// Calls `visit` with the files that have one of `flags`, by their numbers.
    pub(super) fn visit(
        &mut self,
        flags: u16,
        mut visit: impl FnMut(&Facts) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut start = Some(0);
        while let Some(key) = start.and_then(|start| self.next_leaf(start, flags)) {
            let mut of_leaf = self.leaf(key)?.facts.iter().filter(|facts| facts.has(flags));
            if of_leaf.try_for_each(&mut visit).is_break() {
                break;
            }
            start = key.checked_add(1);
        }
        Ok(())
    }

    /// The key of the first leaf from `start` on that may have files with one of `flags`.
    fn next_leaf(&self, start: u64, flags: u16) -> Option<u64> {
        self.keys.range(start..).copied().find(|key| self.leaves[key].flags & flags != 0)
    }

    fn put(&mut self, facts: Facts) -> Result<()> {
        let key = match self.key_of(facts.ino()) {
            Some(key) => key,
            None => self.add_leaf(0, Leaf::new())?,
        };
        let leaf = self.leaf(key)?;
        match leaf.position(facts.ino()) {
            Ok(at) if facts.is_empty() => {
                leaf.facts.remove(at);
                leaf.is_dirty = true;
                let is_empty = leaf.facts.is_empty();
                self.len -= 1;
                if is_empty {
                    self.drop_leaf(key);
                }
                return Ok(());
            }
            Ok(at) => leaf.facts[at] = facts,
            Err(_) if facts.is_empty() => return Ok(()),
            Err(at) if leaf.facts.len() == LEAF_LEN => {
                self.split(key, at, facts.ino)?;
                return self.put(facts);
            }
            Err(at) => {
                leaf.facts.insert(at, facts);
                self.len += 1;
            }
        }
        let place = self.leaves.get_mut(&key).expect("the leaf was just used");
        place.flags |= facts.flags;
        place.leaf.as_mut().expect("it is in memory").is_dirty = true;
        Ok(())
    }

    /// Makes room in a full leaf for a file with number `ino` at position `at`.
    fn split(&mut self, key: u64, at: usize, ino: u64) -> Result<()> {
        let mut upper = Leaf::new();
        let mut upper_key = ino;
        let flags = self.leaves[&key].flags;
        // Files mostly come by ascending numbers, and then leaves get full.
        if at < LEAF_LEN {
            let leaf = self.leaf(key)?;
            upper.facts.extend(leaf.facts.drain(LEAF_LEN / 2..));
            leaf.is_dirty = true;
            upper_key = upper.facts[0].ino;
        }
        self.add_leaf(upper_key, upper)?;
        self.leaves.get_mut(&upper_key).expect("it was just added").flags = flags;
        Ok(())
    }

    /// The first file from `from` on that has one of `flags`; with 0 the first one.
    pub(super) fn next(&mut self, from: Ino, flags: u16) -> Result<Option<Facts>> {
        self.find(from, |of| flags == 0 || of & flags != 0)
    }

    /// The first file from `from` on that has all of `flags`.
    pub(super) fn next_with_all(&mut self, from: Ino, flags: u16) -> Result<Option<Facts>> {
        self.find(from, |of| of & flags == flags)
    }

    /// The first file from `from` on whose flags are wanted, as they then are with more of them.
    fn find(&mut self, from: Ino, is_wanted: impl Fn(u16) -> bool) -> Result<Option<Facts>> {
        let mut start = self.key_of(from).unwrap_or(0);
        loop {
            let may_have = |key: &&u64| is_wanted(self.leaves[*key].flags);
            let Some(&key) = self.keys.range(start..).find(may_have) else { return Ok(None) };
            let facts = &self.leaf(key)?.facts;
            let first = facts.partition_point(|facts| facts.ino < from.0);
            if let Some(found) = facts[first..].iter().find(|facts| is_wanted(facts.flags)) {
                return Ok(Some(*found));
            }
            match key.checked_add(1) {
                Some(next) => start = next,
                None => return Ok(None),
            }
        }
    }

    /// Takes `flags` away from all files.
    pub(super) fn clear_flags(&mut self, flags: u16) -> Result<()> {
        let mut start = Some(0);
        while let Some(key) = start.and_then(|start| self.next_leaf(start, flags)) {
            let leaf = self.leaf(key)?;
            leaf.is_dirty = true;
            let len_before = leaf.facts.len();
            leaf.facts.iter_mut().for_each(|facts| facts.flags &= !flags);
            leaf.facts.retain(|facts| !facts.is_empty());
            let left = leaf.facts.iter().fold(0, |all, facts| all | facts.flags);
            let len = leaf.facts.len();
            self.len -= len_before - len;
            if len == 0 {
                self.drop_leaf(key);
            } else {
                self.leaves.get_mut(&key).expect("it was just used").flags = left;
            }
            start = key.checked_add(1);
        }
        Ok(())
    }

    /// How many files it has.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes of memory that it takes, the allocator's own aside.
    pub(super) fn memory_bytes(&self) -> usize {
        self.resident.len() * LEAF_BYTES + self.leaves.len() * PLACE_BYTES
    }

    /// The key of the leaf that has the file, or would have it.
    fn key_of(&mut self, ino: Ino) -> Option<u64> {
        if !self.last.contains(&ino.0) {
            let start = *self.keys.range(..=ino.0).next_back()?;
            let next = self.keys.range((Bound::Excluded(start), Bound::Unbounded)).next();
            self.last = start..next.copied().unwrap_or(u64::MAX);
        }
        Some(self.last.start)
    }

    /// The leaf with this key, which is brought into memory.
    fn leaf(&mut self, key: u64) -> Result<&mut Leaf> {
        if self.leaves[&key].leaf.is_none() {
            self.make_room()?;
            let place = self.leaves.get_mut(&key).expect("there is such a leaf");
            let mut leaf = Leaf { is_dirty: false, ..Leaf::new() };
            leaf.facts.resize(place.len.into(), Facts::new_zeroed());
            let slot = place.slot.expect("what is not in memory has a slot");
            self.spill.read(slot, leaf.facts.as_mut_bytes())?;
            place.leaf = Some(Box::new(leaf));
            self.resident.push_back(key);
        }
        let place = self.leaves.get_mut(&key).expect("there is such a leaf");
        let leaf = place.leaf.as_mut().expect("it was brought into memory");
        leaf.was_used = true;
        Ok(leaf)
    }

    fn add_leaf(&mut self, key: u64, leaf: Leaf) -> Result<u64> {
        self.make_room()?;
        let place = Place { leaf: Some(Box::new(leaf)), slot: None, len: 0, flags: 0 };
        self.leaves.insert(key, place);
        self.keys.insert(key);
        self.last = 0..0;
        self.resident.push_back(key);
        Ok(key)
    }

    /// Removes a leaf, which is in memory.
    fn drop_leaf(&mut self, key: u64) {
        let place = self.leaves.remove(&key);
        self.keys.remove(&key);
        self.last = 0..0;
        self.resident.retain(|&resident| resident != key);
        if let Some(slot) = place.and_then(|place| place.slot) {
            self.spill.free(slot);
        }
    }

    /// Writes leaves to the file until another one has room in memory: of those that were not used
    /// since it was their turn last, the one whose turn it is.
    fn make_room(&mut self) -> Result<()> {
        while self.resident.len() >= self.max_resident {
            let key = self.resident.pop_front().expect("some are in memory");
            let place = self.leaves.get_mut(&key).expect("a leaf in memory is in the index");
            let leaf = place.leaf.as_mut().expect("it is in memory");
            if leaf.was_used {
                leaf.was_used = false;
                self.resident.push_back(key);
                continue;
            }
            if leaf.is_dirty {
                let slot = match place.slot {
                    Some(slot) => slot,
                    None => *place.slot.insert(self.spill.allocate()?),
                };
                self.spill.write(slot, leaf.facts.as_bytes())?;
                place.len = leaf.facts.len() as u16;
            }
            place.leaf = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dendro_base::Rng;

    use super::*;

    const A: u16 = 1;
    const B: u16 = 2;

    fn filled(memory_bytes: u64) -> Table {
        let mut table = Table::new(memory_bytes);
        for ino in 4..1_000_004 {
            table.change(Ino(ino), |facts| facts.nlink = 1).unwrap();
        }
        table
    }

    #[test]
    fn a_million_files_take_less_than_42_bytes_each_and_with_a_bound_that() {
        let mut table = filled(u64::MAX);
        assert_eq!(table.len(), 1_000_000);
        assert!(table.memory_bytes() < 42_000_000, "{}", table.memory_bytes());
        let mut bounded = filled(1 << 20);
        // The index has 4,000 leaves.
        assert!(bounded.memory_bytes() < (1 << 20) + 400_000, "{}", bounded.memory_bytes());
        assert!(bounded.leaves.values().filter(|place| place.slot.is_some()).count() > 3000);
        for table in [&mut table, &mut bounded] {
            for ino in 4..1_000_004 {
                assert_eq!(table.get(Ino(ino)).unwrap().nlink, 1);
                table.change(Ino(ino), |facts| facts.nlink = 0).unwrap();
            }
            assert_eq!((table.len(), table.memory_bytes()), (0, 0));
        }
    }

    /// What a plain map of numbers has is what the table has, whatever is in memory.
    fn compare_with_a_map(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut table = Table::new(0);
        let mut map: BTreeMap<u64, (u32, u16)> = BTreeMap::new();
        for _ in 0..60_000 {
            let ino = if rng.below(2) == 0 { rng.below(9000) } else { u64::MAX - rng.below(3000) };
            let (nlink, flags) = (rng.below(3) as u32, rng.below(4) as u16);
            table.change(Ino(ino), |facts| (facts.nlink, facts.flags) = (nlink, flags)).unwrap();
            match (nlink, flags) {
                (0, 0) => drop(map.remove(&ino)),
                of => drop(map.insert(ino, of)),
            }
            if rng.below(10_000) == 0 {
                table.clear_flags(A).unwrap();
                map.values_mut().for_each(|(_, flags)| *flags &= !A);
                map.retain(|_, of| *of != (0, 0));
            }
        }
        assert_eq!(table.len(), map.len(), "seed {seed}");
        assert!(table.resident.len() <= MIN_RESIDENT && table.leaves.len() > 30);
        for mask in [0, A, B] {
            let wanted = |of: &&u64| mask == 0 || map[*of].1 & mask != 0;
            let mut next = Some(Ino(0));
            for &ino in map.keys().filter(wanted) {
                let found = table.next(next.take().unwrap(), mask).unwrap().unwrap();
                assert_eq!(
                    (found.ino, (found.nlink, found.flags)),
                    (ino, map[&ino]),
                    "seed {seed}"
                );
                next = ino.checked_add(1).map(Ino);
            }
            if let Some(next) = next {
                assert_eq!(table.next(next, mask).unwrap(), None, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_table_has_what_a_plain_map_has() {
        (0..8).for_each(compare_with_a_map);
    }
}
