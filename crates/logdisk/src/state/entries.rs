//! How entries of lists and records are put and removed.

use crate::fault::Outcome;
use crate::map::{Nodes, Replaced};
use crate::state::deletion::Remains;
use crate::state::item::ItemKey;
use crate::state::item::{space_end, system_key};
use crate::state::{State, YoungLists};
use dendro_base::sync::Arc;
use dendro_format::{Hints, Key, Space, Value};
use std::ops::ControlFlow;

impl State {
    /// Puts the entry of a list or record in the current epoch. Returns whether the head had
    /// already put one in this epoch.
    fn put_entry(
        &mut self,
        branch: u32,
        item: ItemKey,
        value: Value,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let epoch = self.versions.epoch();
        let may_hide = |before: Option<&Key>| match before {
            Some(before) if ItemKey::of(before) != item => false,
            Some(before) if before.branch == branch => {
                self.versions.newest_pin(branch) < Some(before.epoch)
            }
            _ => true,
        };
        let key = item.key(branch, epoch);
        match self.map.put_behind(&key, value, nodes, may_hide)? {
            Replaced::Nothing(may_hide) => {
                if may_hide && !self.has_no_past(branch, item.list) {
                    self.drop_unseen(branch, epoch, item, nodes)?;
                }
                Ok(false)
            }
            Replaced::Tombstone => Ok(false),
            Replaced::Entry => Ok(true),
        }
    }

    /// Removes the newest entry that the branch's head saw before `epoch`, if no version sees it.
    fn drop_unseen(
        &mut self,
        branch: u32,
        epoch: u64,
        item: ItemKey,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let (from, to) = (item.key(branch, 0), item.key(branch, epoch - 1));
        if let Some(key) = self.map.last_between(&from, &to, nodes)? {
            if !self.versions.is_seen(branch, key.epoch, epoch) {
                self.map.remove(&key, nodes)?;
            }
            return Ok(());
        }
        let ancestry = self.versions.head_ancestry(branch)?;
        if ancestry.is_short() {
            return Ok(());
        }
        let mut older = None;
        let mut is_list = false;
        self.look_back(ancestry, item, nodes, &mut |key, value| {
            if key.branch == branch {
                // As long as the list exists, what its ancestors have of it depends on their own
                // list entries.
                is_list = matches!(value, Value::List(_));
                return ControlFlow::Continue(());
            }
            older = Some(*key);
            ControlFlow::Break(())
        })?;
        let alone = |key: &Key| self.versions.sees_alone(branch, key.branch, key.epoch);
        match older.filter(|key| !is_list && alone(key)) {
            Some(key) => self.map.remove(&key, nodes).map(drop),
            None => Ok(()),
        }
    }

    /// Removes the entry of a list or record, and hides the entries of older versions. Returns
    /// whether the head had put one in the current epoch.
    fn delete_entry(&mut self, branch: u32, item: ItemKey, nodes: &dyn Nodes) -> Outcome<bool> {
        let epoch = self.versions.epoch();
        let old = self.map.remove(&item.key(branch, epoch), nodes)?;
        let is_own = old.is_some_and(|old| old != Value::Tombstone);
        if self.has_no_past(branch, item.list) {
            return Ok(is_own);
        }
        self.drop_unseen(branch, epoch, item, nodes)?;
        let ancestry = self.versions.head_ancestry(branch)?;
        let seen = self.newest(ancestry, item, nodes)?;
        if seen.is_some_and(|(_, value)| value != Value::Tombstone) {
            self.map.put(&item.key(branch, epoch), Value::Tombstone, nodes)?;
        }
        Ok(is_own)
    }

    /// Makes a list that no version has. `remains` says what becomes of what deleted lists of its
    /// number have left.
    pub(crate) fn create_list(
        &mut self,
        branch: u32,
        list: u64,
        hints: Hints,
        remains: Remains,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        if self.is_beside_others(branch, list, nodes)? {
            // Other versions may have a list of this number, which nobody confuses with this one as
            // long as none is taken for the only one of its number. When the log is applied again,
            // something may be left of a list that was removed before this one was made.
            let ancestry = self.versions.head_ancestry(branch)?;
            let had_one = self.newest(ancestry, ItemKey::list(list), nodes)?.is_some();
            if had_one || self.removals.contains(list) {
                self.prune_list(list, nodes)?;
            }
            if self.young_lists.epoch == self.versions.epoch() && list < self.next_list {
                self.young_lists.first = self.next_list;
            }
        } else if self.may_have_remains(list) {
            // They must not become visible in the new list.
            self.make_way(list, remains, nodes)?;
        }
        self.put_list(branch, list, hints, nodes)
    }

    /// Whether the map may have entries of deleted lists of this number, or of a list that only
    /// deleted versions had.
    pub(crate) fn may_have_remains(&self, list: u64) -> bool {
        self.removals.contains(list) || (self.versions.epoch() > 1 && list < self.next_list)
    }

    /// Puts the entry of a list again. The branch may have lost the list, and other versions may
    /// have it.
    pub(crate) fn put_list_again(
        &mut self,
        branch: u32,
        list: u64,
        hints: Hints,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let ancestry = self.versions.head_ancestry(branch)?;
        if !self.has_list(ancestry, list, nodes)? {
            // When the log is applied again, something may be left of a list that the branch has
            // deleted: the log does not tell that all of it had been taken out by then.
            let had_one = self.newest(ancestry, ItemKey::list(list), nodes)?.is_some();
            if had_one || self.removals.contains(list) {
                self.make_way(list, Remains::TakenOut, nodes)?;
            }
            if self.has_no_past(branch, list) {
                // The list may not be taken for the only one of its number.
                self.young_lists.first = self.next_list;
            }
        }
        self.put_list(branch, list, hints, nodes)
    }

    fn put_list(&mut self, branch: u32, list: u64, hints: Hints, nodes: &dyn Nodes) -> Outcome<()> {
        let epoch = self.versions.epoch();
        if self.young_lists.epoch != epoch {
            self.young_lists = YoungLists { epoch, first: self.next_list };
        }
        self.next_list = self.next_list.max(list + 1);
        self.put_entry(branch, ItemKey::list(list), Value::List(hints), nodes).map(drop)
    }

    /// Takes out a list that no other version sees, with everything in it, if it lies in one leaf.
    /// Returns whether it does.
    pub(super) fn take_small_list(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
        let Some(taken) = self.map.take_from_leaf(&from, &to, nodes)? else { return Ok(false) };
        for (_, value) in &taken {
            let Value::Chunk(chunk) = value else { continue };
            self.drop_all(chunk.slots());
        }
        Ok(true)
    }

    /// Removes the entry of a list, or hides it.
    pub(super) fn delete_list_entry(
        &mut self,
        branch: u32,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.delete_entry(branch, ItemKey::list(list), nodes).map(drop)
    }

    /// Puts a record; returns whether the head had put it in the current epoch before.
    pub(crate) fn put_record(
        &mut self,
        branch: u32,
        list: u64,
        index: u64,
        value: Arc<[u8]>,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        self.put_entry(branch, ItemKey::record(list, index), Value::Record(value), nodes)
    }

    /// Deletes a record; returns whether the head had put it in the current epoch.
    pub(crate) fn delete_record(
        &mut self,
        branch: u32,
        list: u64,
        index: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        self.delete_entry(branch, ItemKey::record(list, index), nodes)
    }

    /// Puts or removes a record of one of the disk's own lists.
    pub(crate) fn put_system_record(
        &mut self,
        list: u64,
        index: u64,
        value: Option<&[u8]>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let key = system_key(list, index);
        match value {
            Some(value) => drop(self.map.put(&key, Value::Record(Arc::from(value)), nodes)?),
            None => drop(self.map.remove(&key, nodes)?),
        }
        Ok(())
    }
}
