//! The removal list: the deleted lists that are being removed.

use std::collections::BTreeMap;

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
    pub(super) fn leave(&mut self, list: u64) {
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
