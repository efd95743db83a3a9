//! How a list is deleted in a bounded number of changes, and how its removal ends.

use std::ops::ControlFlow;

use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::{Key, Space};

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::state::item::space_end;

/// The maximum number of entries of a list that the deletion itself takes out.
pub(crate) const MAX_REMOVED_AT_ONCE: usize = 64;

/// What becomes of what deleted lists have left when a list of their number is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// It is taken out at once.
    TakenOut,
    /// It is set aside, and the removal takes it out. Nothing of it was written in this epoch.
    SetAside,
    /// Either, as it is possible: the log is applied again.
    Either,
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
        self.put_removal(list, nodes)
    }

    /// Takes out or sets aside what deleted lists of this number have left, so that the list can be
    /// made.
    pub(super) fn make_way(
        &mut self,
        list: u64,
        remains: Remains,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let are_set_aside = match remains {
            Remains::TakenOut => false,
            Remains::SetAside => true,
            Remains::Either => {
                !self.is_small_list(list, nodes)? && !self.is_written_now(list, nodes)?
            }
        };
        if are_set_aside {
            // The entries of the list itself must not be seen again when the removal has ended.
            self.take_list_entries(list, nodes)?;
            self.removals.remake(list, self.versions.epoch());
            return self.put_removal(list, nodes);
        }
        self.prune_list(list, nodes)?;
        if self.removals.contains(list) { self.end_removal(list, nodes) } else { Ok(()) }
    }

    /// Takes out the entries which say that the list exists or was deleted.
    fn take_list_entries(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        let mut keys = Vec::new();
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::List));
        self.map.visit(&from, &to, nodes, &mut |key, _| {
            keys.push(*key);
            ControlFlow::Continue(())
        })?;
        keys.iter().try_for_each(|key| self.map.remove(key, nodes).map(drop))
    }

    /// Whether the map has something in the list that was written in the current epoch.
    fn is_written_now(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        let epoch = self.versions.epoch();
        let (from, to) = (Key::first(list, Space::Records, 0), space_end(list, Space::Chunks));
        let mut is_written = false;
        self.map.visit_newer(&from, &to, epoch - 1, nodes, &mut |key, _| {
            is_written = key.epoch >= epoch;
            if is_written { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_written)
    }

    fn put_removal(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        let removal = removal::encode(self.removals.remade_in(list));
        self.put_system_record(REMOVALS_LIST, list, Some(&removal), nodes)
    }

    /// Whether the map has so few entries of the list that they can be taken out at once.
    fn is_small_list(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
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
