//! The removal list: the deleted lists that are being removed. Also, how a list is deleted in a
//! bounded number of changes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::{Key, Space};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::{State, space_end};

/// The maximum number of entries of a list that the deletion itself takes out.
pub(crate) const MAX_REMOVED_AT_ONCE: usize = 64;

/// The lists that are being removed, and how often each was deleted. The heads of several branches
/// may delete the same list, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    lists: BTreeMap<u64, u64>,
    /// While a change can be undone: the lists that were entered or removed since it began, and how
    /// often each had been deleted before.
    undo: Option<Vec<(u64, Option<u64>)>>,
}

impl Removals {
    /// Whether something may be left of a deleted list of this number.
    pub(crate) fn contains(&self, list: u64) -> bool {
        !self.lists.is_empty() && self.lists.contains_key(&list)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.lists.len()
    }

    /// The list with the lowest number from `list` on, or else the first one.
    pub(crate) fn next(&self, list: u64) -> Option<u64> {
        let next = self.lists.range(list..).next().or_else(|| self.lists.first_key_value());
        next.map(|(&list, _)| list)
    }

    /// All of them.
    pub(crate) fn lists(&self) -> Vec<u64> {
        self.lists.keys().copied().collect()
    }

    /// How often the list was deleted.
    pub(crate) fn times(&self, list: u64) -> u64 {
        self.lists.get(&list).copied().unwrap_or(0)
    }

    /// Enters a list that the map names, or that was deleted once more.
    pub(crate) fn enter(&mut self, list: u64) {
        self.note(list);
        *self.lists.entry(list).or_default() += 1;
    }

    /// Removes a list of which nothing is left.
    fn leave(&mut self, list: u64) {
        self.note(list);
        self.lists.remove(&list);
    }

    fn note(&mut self, list: u64) {
        if let Some(undo) = &mut self.undo {
            undo.push((list, self.lists.get(&list).copied()));
        }
    }

    /// Begins a change: from here on changes can be undone.
    pub(crate) fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// Makes permanent what was changed since [`Self::begin`].
    pub(crate) fn settle_changes(&mut self) {
        self.undo = None;
    }

    /// Undoes what was changed since [`Self::begin`].
    pub(crate) fn roll_back(&mut self) {
        for (list, times) in self.undo.take().into_iter().flatten().rev() {
            match times {
                Some(times) => self.lists.insert(list, times),
                None => self.lists.remove(&list),
            };
        }
    }
}

impl State {
    /// Deletes a list. What other versions have of it stays, hidden by the tombstone of the list
    /// (removal invariants 1 and 2).
    pub(crate) fn delete_list(&mut self, branch: u32, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        if self.has_no_past(branch, list) && self.take_small_list(list, nodes)? {
            return Ok(());
        }
        self.delete_list_entry(branch, list, nodes)?;
        if self.is_small_list(list, nodes)? {
            return self.prune_list(list, nodes);
        }
        self.removals.enter(list);
        self.put_system_record(REMOVALS_LIST, list, Some(&removal::encode()), nodes)
    }

    /// Whether the map has so few entries of the list that they can be taken out at once.
    pub(crate) fn is_small_list(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        Ok(!self.has_more_entries(list, MAX_REMOVED_AT_ONCE, nodes)?)
    }

    /// Whether the map has more than `max` entries of the list, of all versions together.
    pub(crate) fn has_more_entries(
        &self,
        list: u64,
        max: usize,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let mut count = 0;
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
        self.map.visit(&from, &to, nodes, &mut |_, _| {
            count += 1;
            if count > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(count > max)
    }

    /// Takes out everything that is left of deleted lists.
    pub(crate) fn finish_removals(&mut self, nodes: &dyn Nodes) -> Outcome<()> {
        for list in self.removals.lists() {
            self.prune_list(list, nodes)?;
            self.end_removal(list, nodes)?;
        }
        Ok(())
    }

    /// Notes that nothing is left of a deleted list.
    pub(crate) fn end_removal(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        self.put_system_record(REMOVALS_LIST, list, None, nodes)?;
        self.removals.leave(list);
        Ok(())
    }
}
