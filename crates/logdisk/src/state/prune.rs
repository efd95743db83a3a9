//! Pruning: entries that no version sees are removed from the map.
//!
//! The versions that see an entry of a branch are those of the branch's versions that lie between
//! the epoch of the entry and the next entry of the same item. For a chunk this holds page by page.
//! A version here is a snapshot, an epoch that another branch was made from, or the head. An entry
//! that no version sees is removed and its blocks are freed, and so are tombstones and holes that
//! hide nothing any more. The tombstone of a list also hides what is in it: it stays as long as an
//! ancestor of its branch has the list. An epoch that a branch was made from counts only as long as
//! something of the item is inherited through that branch ([`Inheritance`]).

use std::borrow::Cow;
use std::ops::ControlFlow;

use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Chunk, Key, Space, Value};

use crate::fault::Outcome;
use crate::map::{Entry, Nodes};
use crate::state::item::ItemKey;
use crate::state::item::space_end;
use crate::state::{Slots, State};
use crate::versions::inheritance::Inheritance;

/// The end of an entry that was not replaced: the head sees it.
const FOREVER: u64 = u64::MAX;

/// The entries of one item that remain, in the order of their keys. Each has the slots of itself
/// and of all entries that its branch sees below it, so that the newest one that a branch sees
/// answers for all.
type Remaining = Vec<(Key, u32)>;

/// What pruning does with the entries of some items.
#[derive(Debug, Default)]
struct Pruning {
    /// Entries that are removed, or that get a smaller chunk.
    changes: Vec<(Key, Option<Chunk>)>,
    /// The pages of entries, and the slots of those that go, a bit for each.
    freed: Vec<(Slots, u32)>,
}

impl State {
    /// Removes the entries of `list` that no version sees.
    pub(super) fn prune_list(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        let from = Key::first(list, Space::List, 0);
        let to = space_end(list, Space::Chunks);
        self.prune(&from, &to, true, nodes)
    }

    /// Removes what no version sees of the items from `from` to before `to`, which are in lists of
    /// clients. If the log has no record of this, the segments in which blocks are freed wait for a
    /// checkpoint.
    pub(crate) fn prune(
        &mut self,
        from: &Key,
        to: &Key,
        is_logged: bool,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let pruning = self.pruning(from, to, nodes)?;
        for (mut slots, gone) in pruning.freed {
            for slot in (0..CHUNK_PAGES as u32).filter(|slot| gone >> slot & 1 == 1) {
                // This holds for a frame that keeps other pages too: what frees these may be
                // logged, and would not free the frame when the log is applied again.
                if let Some(page) = slots[slot as usize].filter(|page| page.len_bytes > 0)
                    && !is_logged
                {
                    self.segments.await_checkpoint(page.addr);
                }
                self.drop_from(&mut slots, slot);
            }
        }
        for (key, chunk) in pruning.changes {
            match chunk {
                Some(chunk) => self.put_chunk(&key, chunk, nodes)?,
                None => drop(self.map.remove(&key, nodes)?),
            }
        }
        Ok(())
    }

    /// Whether some version has the list.
    pub(crate) fn is_in_some_version(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        self.is_in_version_of(list, &|_| true, nodes)
    }

    /// Whether lists of this number that others have are to be left alone when `branch` makes one:
    /// a version is being received into it, or only other clients have the number.
    pub(crate) fn is_beside_others(
        &self,
        branch: u32,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let table = self.versions.table();
        if table.is_receiving(branch) || !table.are_clients_several() {
            return Ok(table.is_receiving(branch));
        }
        if !self.may_have_remains(list) {
            return Ok(false);
        }
        let (client, _) = table.client_of(branch);
        let is_own = |branch| table.client_of(branch).0 == client;
        Ok(!self.is_in_version_of(list, &is_own, nodes)?
            && self.is_in_version_of(list, &|branch| !is_own(branch), nodes)?)
    }

    /// Whether a version has the list that comes from one of the branches that `is_meant` is true
    /// of.
    fn is_in_version_of(
        &self,
        list: u64,
        is_meant: &dyn Fn(u32) -> bool,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let mut entries = Vec::new();
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::List));
        self.map.visit(&from, &to, nodes, &mut |key, value| {
            entries.push((*key, value.clone()));
            ControlFlow::Continue(())
        })?;
        let current = self.without_remains(&entries);
        Ok(current.chunk_by(|(a, _), (b, _)| a.branch == b.branch).any(|own| {
            let branch = own[0].0.branch;
            let mut next = FOREVER;
            is_meant(branch)
                && own.iter().rev().any(|(key, value)| {
                    let upto = std::mem::replace(&mut next, key.epoch);
                    *value != Value::Tombstone && self.versions.is_seen(branch, key.epoch, upto)
                })
        }))
    }

    /// Whether [`Self::prune`] would remove something.
    pub(crate) fn has_unseen(&self, from: &Key, to: &Key, nodes: &dyn Nodes) -> Outcome<bool> {
        Ok(!self.pruning(from, to, nodes)?.changes.is_empty())
    }

    fn pruning(&self, from: &Key, to: &Key, nodes: &dyn Nodes) -> Outcome<Pruning> {
        let mut pruning = Pruning::default();
        self.visit_items(from, to, nodes, &mut |entries, list_entries| {
            self.judge(entries, list_entries, &mut pruning);
        })?;
        Ok(pruning)
    }

    /// Calls `visit` with all entries of each item, and with the entries of the item's list.
    pub(crate) fn visit_items(
        &self,
        from: &Key,
        to: &Key,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(&[Entry], &[Entry]),
    ) -> Outcome<()> {
        let mut list_entries: Vec<Entry> = Vec::new();
        let first = Key::first(from.list, Space::List, 0);
        self.map.visit(&first, from, nodes, &mut |key, value| {
            if key.space != Space::List {
                return ControlFlow::Break(());
            }
            list_entries.push((*key, value.clone()));
            ControlFlow::Continue(())
        })?;
        let mut entries: Vec<Entry> = Vec::new();
        self.map.visit(from, to, nodes, &mut |key, value| {
            if entries.first().is_some_and(|(first, _)| ItemKey::of(first) != ItemKey::of(key)) {
                visit(&entries, &list_entries);
                entries.clear();
            }
            // The entries of the list itself come before those of its content.
            if list_entries.first().is_some_and(|(first, _)| first.list != key.list) {
                list_entries.clear();
            }
            if key.space == Space::List {
                list_entries.push((*key, value.clone()));
            }
            entries.push((*key, value.clone()));
            ControlFlow::Continue(())
        })?;
        if !entries.is_empty() {
            visit(&entries, &list_entries);
        }
        Ok(())
    }

    /// The epoch up to which versions of `branch` can see the content of a list.
    fn list_end(&self, branch: u32, list_entries: &[Entry]) -> u64 {
        let Some(ancestry) = self.versions.whole_ancestry(branch) else { return 0 };
        match ancestry.newest_of(list_entries) {
            Some((key, Value::Tombstone)) if key.branch == branch => {
                // Only damage leaves a tombstone that hides nothing.
                let has_list = list_entries.iter().any(|(_, it)| matches!(it, Value::List(_)));
                if has_list { key.epoch } else { 0 }
            }
            Some((_, Value::List(_))) => FOREVER,
            _ => 0,
        }
    }

    /// The slots that `branch` sees of the entries that remain of other branches.
    fn slots_under(&self, branch: u32, remaining: &Remaining) -> u32 {
        let ancestry = self.versions.whole_ancestry(branch);
        let newest = ancestry.as_ref().and_then(|ancestry| ancestry.newest_of(remaining));
        newest.map_or(0, |(_, slots)| *slots)
    }

    /// Whether entries of a list remain in ancestors of `branch`, if only such as the branch does
    /// not see. What the branch would see of the content may be older, and is hidden by the list's
    /// tombstone alone.
    fn has_of_ancestors(&self, branch: u32, remaining: &Remaining) -> bool {
        let ancestry = self.versions.whole_ancestry(branch);
        ancestry
            .is_some_and(|ancestry| remaining.iter().any(|(key, _)| ancestry.passes(key.branch)))
    }

    /// The entries of an item without those that belong to a deleted list of the number.
    pub(crate) fn without_remains<'e>(&self, entries: &'e [Entry]) -> Cow<'e, [Entry]> {
        let first_epoch = entries.first().map_or(0, |(key, _)| self.removals.first_epoch(key.list));
        if first_epoch == 0 {
            return Cow::Borrowed(entries);
        }
        entries.iter().filter(|(key, _)| key.epoch >= first_epoch).cloned().collect()
    }

    fn judge(&self, entries: &[Entry], list_entries: &[Entry], pruning: &mut Pruning) {
        let list = entries.first().map_or(0, |(key, _)| key.list);
        let first_epoch = self.removals.first_epoch(list);
        for (key, value) in entries.iter().filter(|(key, _)| key.epoch < first_epoch) {
            if let Value::Chunk(chunk) = value {
                pruning.freed.push((chunk.slots(), chunk.present()));
            }
            pruning.changes.push((*key, None));
        }
        let (entries, list_entries) =
            (&*self.without_remains(entries), &*self.without_remains(list_entries));
        let mut remaining = Remaining::with_capacity(entries.len());
        let inheritance = Inheritance::new(&self.versions, entries, list_entries);
        for own in entries.chunk_by(|(a, _), (b, _)| a.branch == b.branch) {
            let branch = own[0].0.branch;
            let is_list = own[0].0.space == Space::List;
            let end = if is_list { FOREVER } else { self.list_end(branch, list_entries) };
            if own[0].0.space == Space::Chunks {
                self.judge_chunks(own, end, &inheritance, &mut remaining, pruning);
            } else {
                self.judge_values(own, end, &inheritance, &mut remaining, pruning);
            }
        }
    }

    /// Judges the entries that a branch has of a list or a record. `remaining` has the entries that
    /// remain of the branches before it, each with all slots.
    fn judge_values(
        &self,
        own: &[Entry],
        end: u64,
        inheritance: &Inheritance<'_>,
        remaining: &mut Remaining,
        pruning: &mut Pruning,
    ) {
        let branch = own[0].0.branch;
        let mut next = end;
        let mut seen = vec![false; own.len()];
        for (at, (key, _)) in own.iter().enumerate().rev() {
            seen[at] = inheritance.seen(branch, key.epoch, next.min(end)) & 1 == 1;
            next = key.epoch;
        }
        let mut under = self.slots_under(branch, remaining);
        if under == 0 && own[0].0.space == Space::List && self.has_of_ancestors(branch, remaining) {
            under = u32::MAX;
        }
        for ((key, value), seen) in own.iter().zip(seen) {
            if seen && (*value != Value::Tombstone || under != 0) {
                under = u32::MAX;
                remaining.push((*key, under));
            } else {
                pruning.changes.push((*key, None));
            }
        }
    }

    /// Judges the entries that a branch has of a chunk. `remaining` has the entries that remain of
    /// the branches before it.
    fn judge_chunks(
        &self,
        own: &[Entry],
        end: u64,
        inheritance: &Inheritance<'_>,
        remaining: &mut Remaining,
        pruning: &mut Pruning,
    ) {
        let branch = own[0].0.branch;
        // The pages of other branches that are seen where this branch has neither a page nor a
        // hole.
        let mut under = self.slots_under(branch, remaining);
        let mut next = [end; CHUNK_PAGES as usize];
        let mut seen = vec![0_u32; own.len()];
        for (at, (key, value)) in own.iter().enumerate().rev() {
            let covered = covered(value);
            for slot in (0..CHUNK_PAGES as u32).filter(|slot| covered >> slot & 1 == 1) {
                let upto = &mut next[slot as usize];
                seen[at] |= inheritance.seen(branch, key.epoch, (*upto).min(end)) & 1 << slot;
                *upto = key.epoch;
            }
        }
        for ((key, value), seen) in own.iter().zip(seen) {
            let Value::Chunk(chunk) = value else { continue };
            let holes = chunk.holes() & seen & under;
            if chunk.present() & !seen == 0 && holes == chunk.holes() {
                under |= chunk.present();
                remaining.push((*key, under));
                continue;
            }
            let mut slots = chunk.slots();
            pruning.freed.push((slots, chunk.present() & !seen));
            for (slot, _) in chunk.iter().filter(|(slot, _)| seen >> slot & 1 == 0) {
                slots[slot as usize] = None;
            }
            let rest = chunk.with_slots(&slots, holes);
            under |= rest.present();
            pruning.changes.push((*key, (!rest.is_empty()).then_some(rest)));
            remaining.push((*key, under));
        }
    }
}

fn covered(value: &Value) -> u32 {
    if let Value::Chunk(chunk) = value { chunk.said() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::testing::disk_in_memory;
    use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, Versions, View};

    #[test]
    fn what_a_snapshot_has_of_a_list_goes_if_damage_took_the_list_from_it() {
        let disk = disk_in_memory(16, 256, OpenOptions::default());
        let (list, other) = (disk.allocate_list().unwrap(), disk.allocate_list().unwrap());
        let mut aru = Aru::new(View::HEAD);
        for list in [list, other] {
            aru.create_list(list, ListHints::default());
            aru.put_record(list, 0, &b"record"[..]).write_pages(list, 0, b"page");
        }
        disk.commit(aru).unwrap();
        let snapshot = disk.snapshot(0, None).unwrap().view();
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list).delete_list(other);
        disk.commit(aru).unwrap();
        let entries = |list: Lid| {
            let (from, to) = (Key::first(list.0, Space::List, 0), space_end(list.0, Space::Chunks));
            let mut keys = Vec::new();
            let look = disk.volume().look(|engine, nodes| {
                engine.state().map.visit(&from, &to, nodes, &mut |key, _| {
                    keys.push(*key);
                    ControlFlow::Continue(())
                })
            });
            look.unwrap();
            keys
        };
        let lost = entries(list)[0];
        assert!(lost.space == Space::List && entries(list).len() == 4);
        let holder = crate::volume::holds::LockHolder::Removal;
        let take = disk.volume().change(holder, |engine, nodes| {
            engine.transact(nodes, |engine| engine.state_mut().map.remove(&lost, nodes))
        });
        assert!(take.unwrap().is_some());
        let prune = disk.volume().change(holder, |engine, nodes| {
            engine.transact(nodes, |engine| {
                engine.state_mut().prune_list(list.0, nodes)?;
                engine.state_mut().prune_list(other.0, nodes)
            })
        });
        prune.unwrap();
        assert_eq!(entries(list), []);
        assert_eq!(disk.record(snapshot, other, 0).unwrap().as_deref(), Some(&b"record"[..]));
    }
}
