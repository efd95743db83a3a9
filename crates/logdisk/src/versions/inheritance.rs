//! Who sees an item of a branch through others that were made from it.
//!
//! A branch begins with all that its parent had, so the moment that it was made from must stay
//! readable; but only what the branch has not written or deleted since can be seen through it, by the
//! oldest of its own views if that is older than the change. So a chain of branches of which only the
//! last is left, as promoted clones and rollbacks leave it, keeps nothing that the last has replaced.

use std::cell::RefCell;

use dendro_format::{Space, Value};
use smallvec::SmallVec;

use crate::map::Entry;
use crate::versions::Versions;

/// All slots of a chunk; of a record or a list, it.
const ALL: u32 = u32::MAX;
/// What was never said, later than every view.
const NEVER: u64 = u64::MAX;
/// Inheritance so many ancestors without a view of their own is looked; what lies farther back counts as
/// seen.
const MAX_DEPTH: u32 = 128;

/// One item, all of its entries, and what of it shows through branches.
pub(crate) struct Inheritance<'a> {
    versions: &'a Versions,
    entries: &'a [Entry],
    list_entries: &'a [Entry],
    /// What is known of branches already.
    known: RefCell<SmallVec<[(u32, u32); 4]>>,
}

impl<'a> Inheritance<'a> {
    pub(crate) fn new(
        versions: &'a Versions,
        entries: &'a [Entry],
        list_entries: &'a [Entry],
    ) -> Self {
        Self { versions, entries, list_entries, known: RefCell::default() }
    }

    /// A bit for each slot in which what `branch` wrote in epoch `from`, and what gave way in epoch
    /// `to`, is seen; a record or list is seen with all bits or none.
    pub(crate) fn seen(&self, branch: u32, from: u64, to: u64) -> u32 {
        let seers = self.versions.seers(branch, from, to);
        if seers.has_view {
            return ALL;
        }
        let mut seen = 0;
        for (_, child) in seers.forks {
            seen |= self.inherited(*child, 0);
            if seen == ALL {
                break;
            }
        }
        seen
    }

    /// The slots in which some view of `child`, or through it, sees what its parent had.
    fn inherited(&self, child: u32, depth: u32) -> u32 {
        if depth == MAX_DEPTH {
            return ALL;
        }
        if !self.begins_with_list(child) {
            return 0;
        }
        // Those who were made from others have higher numbers.
        let ends_before =
            |entries: &[Entry]| entries.last().is_none_or(|(key, _)| key.branch < child);
        if ends_before(self.entries) && ends_before(self.list_entries) {
            return ALL;
        }
        if let Some((_, slots)) = self.known.borrow().iter().find(|(known, _)| *known == child) {
            return *slots;
        }
        let first = self.first_said(child);
        let said_after = |epoch: u64| {
            (0..first.len()).fold(0, |slots, at| slots | u32::from(first[at] > epoch) << at)
        };
        let mut slots = self.versions.oldest_view(child).map_or(0, said_after);
        for (fork, grandchild) in self.versions.seers(child, 0, NEVER).forks {
            let candidates = said_after(*fork) & !slots;
            if candidates != 0 {
                slots |= candidates & self.inherited(*grandchild, depth + 1);
            }
        }
        self.known.borrow_mut().push((child, slots));
        slots
    }

    /// Whether the list was there when `branch` was made; of a list itself it does not matter.
    fn begins_with_list(&self, branch: u32) -> bool {
        let Some(ancestry) = self.versions.whole_ancestry(branch) else { return false };
        let mut before = self.list_entries.iter().rev();
        let newest = before.find(|(key, _)| key.branch != branch && ancestry.sees(key));
        self.is_list() || matches!(newest, Some((_, Value::List(_))))
    }

    fn is_list(&self) -> bool {
        self.entries.first().is_some_and(|(key, _)| key.space == Space::List)
    }

    /// When `branch` first said something of its own about each slot.
    fn first_said(&self, branch: u32) -> [u64; u32::BITS as usize] {
        let of_branch = |entries: &'a [Entry]| {
            let from = entries.partition_point(|(key, _)| key.branch < branch);
            let own = &entries[from..];
            own[..own.partition_point(|(key, _)| key.branch == branch)].iter()
        };
        let is_list = self.is_list();
        // A list that was deleted takes all that is in it along.
        let deleted = of_branch(self.list_entries)
            .find(|(_, value)| !is_list && *value == Value::Tombstone)
            .map_or(NEVER, |(key, _)| key.epoch);
        let mut first = [deleted; u32::BITS as usize];
        for (key, value) in of_branch(self.entries).rev() {
            let said = match value {
                Value::Chunk(chunk) => chunk.said(),
                // What is in a list hangs on the entries of those who wrote it.
                Value::List(_) => 0,
                _ => ALL,
            };
            for (slot, first) in first.iter_mut().enumerate() {
                if said >> slot & 1 == 1 {
                    *first = key.epoch.min(*first);
                }
            }
        }
        first
    }
}
