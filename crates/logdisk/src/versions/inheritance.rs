//! Inheritance: which versions see an item of a branch through branches that were made from it.
//!
//! A new branch begins with everything that its parent has, so the epoch that it was made from must
//! stay readable. But an item of the parent is inherited only if the branch has not changed or
//! deleted the item since, or if one of the branch's own views is older than that change. So a
//! chain of branches of which only the last remains, as promotion and rollback leave it, retains
//! nothing that the last branch has replaced.

use std::cell::RefCell;

use dendro_format::{Space, Value};
use rustc_hash::FxHashMap;

use crate::map::Entry;
use crate::versions::Versions;

/// All slots of a chunk. A record or a list has all bits or none.
const ALL: u32 = u32::MAX;
/// The epoch of a change that was never made; it is later than every view.
const NEVER: u64 = u64::MAX;
/// The maximum number of ancestors without a view of their own that are searched. What lies farther
/// back counts as seen.
const MAX_DEPTH: u32 = 128;

/// One item with all its entries, and what of it is inherited.
pub(crate) struct Inheritance<'a> {
    versions: &'a Versions,
    entries: &'a [Entry],
    list_entries: &'a [Entry],
    /// The slots that were computed for branches already.
    known: RefCell<FxHashMap<u32, u32>>,
}

impl<'a> Inheritance<'a> {
    pub(crate) fn new(
        versions: &'a Versions,
        entries: &'a [Entry],
        list_entries: &'a [Entry],
    ) -> Self {
        Self { versions, entries, list_entries, known: RefCell::default() }
    }

    /// A bit for each slot in which some version sees what `branch` wrote in epoch `from` and
    /// replaced in epoch `to`. A record or list has all bits or none.
    pub(crate) fn seen(&self, branch: u32, from: u64, to: u64) -> u32 {
        let viewers = self.versions.viewers(branch, from, to);
        if viewers.has_view {
            return ALL;
        }
        let mut seen = 0;
        for (_, child) in viewers.forks {
            seen |= self.inherited(*child, 0);
            if seen == ALL {
                break;
            }
        }
        seen
    }

    /// The slots in which some view of `child`, or of a branch made from it, sees what its parent
    /// had.
    fn inherited(&self, child: u32, depth: u32) -> u32 {
        if depth == MAX_DEPTH {
            return ALL;
        }
        if !self.begins_with_list(child) {
            return 0;
        }
        // Branches have higher numbers than their parents (ancestry invariant 1).
        let ends_before =
            |entries: &[Entry]| entries.last().is_none_or(|(key, _)| key.branch < child);
        if ends_before(self.entries) && ends_before(self.list_entries) {
            return ALL;
        }
        if let Some(slots) = self.known.borrow().get(&child) {
            return *slots;
        }
        let first = self.first_changed(child);
        let replaced_after = |epoch: u64| {
            (0..first.len()).fold(0, |slots, at| slots | u32::from(first[at] > epoch) << at)
        };
        let mut slots = self.versions.oldest_view(child).map_or(0, replaced_after);
        for (fork, grandchild) in self.versions.viewers(child, 0, NEVER).forks {
            let candidates = replaced_after(*fork) & !slots;
            if candidates != 0 {
                slots |= candidates & self.inherited(*grandchild, depth + 1);
            }
        }
        self.known.borrow_mut().insert(child, slots);
        slots
    }

    /// Whether the list existed when `branch` was made. For a list itself this does not matter.
    fn begins_with_list(&self, branch: u32) -> bool {
        let Some(ancestry) = self.versions.whole_ancestry(branch) else { return false };
        let had_list = || {
            let newest = ancestry.inherited()?.newest_of(self.list_entries)?;
            Some(matches!(newest, (_, Value::List(_))))
        };
        self.is_list() || had_list() == Some(true)
    }

    fn is_list(&self) -> bool {
        self.entries.first().is_some_and(|(key, _)| key.space == Space::List)
    }

    /// The first epoch in which `branch` wrote or deleted each slot.
    fn first_changed(&self, branch: u32) -> [u64; u32::BITS as usize] {
        let of_branch = |entries: &'a [Entry]| {
            let from = entries.partition_point(|(key, _)| key.branch < branch);
            let own = &entries[from..];
            own[..own.partition_point(|(key, _)| key.branch == branch)].iter()
        };
        let is_list = self.is_list();
        // Deleting a list deletes everything in it.
        let deleted = of_branch(self.list_entries)
            .find(|(_, value)| !is_list && *value == Value::Tombstone)
            .map_or(NEVER, |(key, _)| key.epoch);
        let mut first = [deleted; u32::BITS as usize];
        for (key, value) in of_branch(self.entries).rev() {
            let changed = match value {
                Value::Chunk(chunk) => chunk.said(),
                // Whether the content of a list is seen depends on the list's entries in the branch
                // that wrote it.
                Value::List(_) => 0,
                _ => ALL,
            };
            for (slot, first) in first.iter_mut().enumerate() {
                if changed >> slot & 1 == 1 {
                    *first = key.epoch.min(*first);
                }
            }
        }
        first
    }
}
