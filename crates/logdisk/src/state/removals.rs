//! The removal list: the deleted lists that are being removed.

use std::collections::BTreeMap;

/// The removal of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Removal {
    /// How often the list was deleted. The heads of several branches may delete the same list, one
    /// after the other.
    times: u64,
    /// If a list of its number was made since, the epoch in which that was: what was written before
    /// it belongs to the deleted list.
    first_epoch: Option<u64>,
}

/// The lists that are being removed.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    lists: BTreeMap<u64, Removal>,
    /// While a change can be undone: the lists that were entered or removed since it began, and
    /// what was known of each before.
    undo: Option<Vec<(u64, Option<Removal>)>>,
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

    /// The list with the lowest number from `list` on, or else the first one. Some are passed over.
    pub(crate) fn next(&self, list: u64, is_passed_over: impl Fn(u64) -> bool) -> Option<u64> {
        let lists = self.lists.range(list..).chain(self.lists.range(..list));
        lists.map(|(&list, _)| list).find(|&list| !is_passed_over(list))
    }

    /// All of them.
    pub(crate) fn lists(&self) -> Vec<u64> {
        self.lists.keys().copied().collect()
    }

    /// How often the list was deleted or made again.
    pub(crate) fn times(&self, list: u64) -> u64 {
        self.lists.get(&list).map_or(0, |removal| removal.times)
    }

    /// The first epoch of which the list has entries. Older ones belong to a deleted list of its
    /// number, and no version sees them.
    #[inline]
    pub(crate) fn first_epoch(&self, list: u64) -> u64 {
        self.remade_in(list).unwrap_or(0)
    }

    /// The epoch in which the list was made again, if it was made before its removal is finished.
    #[inline]
    pub(super) fn remade_in(&self, list: u64) -> Option<u64> {
        if self.lists.is_empty() { None } else { self.lists.get(&list)?.first_epoch }
    }

    /// Whether some list was made again before its removal is finished.
    pub(crate) fn are_remade(&self) -> bool {
        self.lists.values().any(|removal| removal.first_epoch.is_some())
    }

    /// Enters a list that was deleted once more.
    pub(super) fn enter(&mut self, list: u64) {
        self.note(list);
        self.lists.entry(list).or_default().times += 1;
    }

    /// Enters a list that is made again in `epoch`, in which nothing of it was written before. All
    /// that the map has of it by now is to be removed.
    pub(super) fn remake(&mut self, list: u64, epoch: u64) {
        self.enter(list);
        self.lists.entry(list).or_default().first_epoch = Some(epoch);
    }

    /// Enters a list that the map names.
    pub(crate) fn restore(&mut self, list: u64, first_epoch: Option<u64>) {
        self.lists.insert(list, Removal { times: 1, first_epoch });
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
        for (list, before) in self.undo.take().into_iter().flatten().rev() {
            match before {
                Some(removal) => self.lists.insert(list, removal),
                None => self.lists.remove(&list),
            };
        }
    }
}
