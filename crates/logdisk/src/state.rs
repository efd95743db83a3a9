//! The state that the log describes: the map and the segments' usage, and how each change of the
//! log alters them. Running and recovering go through the same functions, so a log replayed gives
//! what was there when it was written.

pub(crate) mod chunk_edit;
pub(crate) mod prune;
pub(crate) mod removals;
pub(crate) mod slice;
pub(crate) mod visibility;

use std::ops::{ControlFlow, Range};

use dendro_base::sync::Arc;
use dendro_disk::{Error, MAX_PAGE_COUNT, MAX_UNIT_GROUPS};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::usage::USAGE_LIST;
use dendro_format::{Chunk, Key, PageRef, SegmentNo, Space, Value};

use dendro_policy::Present;

use crate::fault::Outcome;
use crate::log::segments::Segments;
use crate::map::{Map, Nodes};
use crate::state::chunk_edit::{Group, mask, past};
use crate::state::removals::Removals;
use crate::state::slice::Slice;
use crate::state::visibility::ItemKey;
use crate::versions::Versions;
use crate::versions::ancestry::Ancestry;

/// So many pages or fewer are looked for chunk by chunk.
const FEW_PAGES: u64 = 8 * CHUNK_PAGES;

/// Is called with records' indexes and values.
type VisitRecord<'a> = dyn FnMut(u64, &Arc<[u8]>) -> ControlFlow<()> + 'a;

pub(crate) type Slots = [Option<PageRef>; CHUNK_PAGES as usize];

/// Lists that were first made in an epoch: those that have a number from `first` on. There may be
/// others, for all that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct YoungLists {
    epoch: u64,
    first: u64,
}

/// The map, the segments, the versions, and what the next list is called.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) map: Map,
    pub(crate) segments: Segments,
    pub(crate) versions: Versions,
    pub(crate) removals: Removals,
    pub(crate) next_list: u64,
    pub(crate) young_lists: YoungLists,
    /// The log clock: bytes of blocks that clients have written.
    pub(crate) clock: u64,
    before: Option<Before>,
}

/// What is small enough to be kept as it was before a change.
#[derive(Debug)]
struct Before {
    next_list: u64,
    young_lists: YoungLists,
    clock: u64,
}

/// How many chunks a change may still visit that has pages in them.
#[derive(Debug)]
pub(crate) struct ChunkBudget(u64);

impl ChunkBudget {
    /// That of one unit of a client.
    pub(crate) const fn of_unit() -> Self {
        Self(MAX_UNIT_GROUPS)
    }

    /// For a unit that the log holds: it was found to be bounded when it was committed.
    pub(crate) const fn unlimited() -> Self {
        Self(u64::MAX)
    }

    /// Takes `count` chunks.
    ///
    /// # Errors
    /// [`Error::UnitTooLong`] when that is more than are left.
    pub(crate) fn take(&mut self, count: u64) -> Result<(), Error> {
        self.0 = self.0.checked_sub(count).ok_or(Error::UnitTooLong)?;
        Ok(())
    }
}

/// Where a list of the disk's own has its record `index`: those have no versions.
pub(crate) const fn system_key(list: u64, index: u64) -> Key {
    ItemKey::record(list, index).key(0, 1)
}

/// The first key behind all of a list's keys in `space`.
pub(crate) const fn space_end(list: u64, space: Space) -> Key {
    match space {
        Space::List => Key::first(list, Space::Records, 0),
        Space::Records => Key::first(list, Space::Chunks, 0),
        Space::Chunks => Key::first(list + 1, Space::List, 0),
    }
}

/// Bytes of map that `count` pages of zeros take at least, though they have no blocks. Who asks
/// for more of them than the volume can map asks in vain.
pub(crate) const fn zeroed_map_bytes(count: u64) -> u64 {
    count / CHUNK_PAGES * 8
}

/// The groups of 32 pages that `pages` touch, each with the slots of it that they touch.
pub(crate) fn groups(pages: Range<u64>) -> impl Iterator<Item = (u64, Range<u32>)> {
    let last = pages.end.div_ceil(CHUNK_PAGES);
    (pages.start / CHUNK_PAGES..if pages.is_empty() { 0 } else { last })
        .map(move |group| (group, slots_of(group, &pages)))
}

/// The slots of `group` that lie in `pages`.
pub(crate) fn slots_of(group: u64, pages: &Range<u64>) -> Range<u32> {
    let first = group * CHUNK_PAGES;
    let start = pages.start.clamp(first, first + CHUNK_PAGES) - first;
    let end = pages.end.clamp(first, first + CHUNK_PAGES) - first;
    start as u32..end as u32
}

/// `count` pages from `first` on, as far as there can be any.
pub(crate) fn page_range(first: u64, count: u64) -> Range<u64> {
    first..first.saturating_add(count).min(MAX_PAGE_COUNT).max(first)
}

impl State {
    pub(crate) fn new(
        map: Map,
        segments: Segments,
        versions: Versions,
        removals: Removals,
        next_list: u64,
        clock: u64,
    ) -> Self {
        let young_lists = YoungLists::default();
        Self { map, segments, versions, removals, next_list, young_lists, clock, before: None }
    }

    /// From here on changes can be undone, but for those of the table of versions.
    pub(crate) fn begin(&mut self) {
        // What is dead already stays so.
        self.account_for_nodes();
        self.map.begin();
        self.segments.begin();
        self.removals.begin();
        self.before = Some(Before {
            next_list: self.next_list,
            young_lists: self.young_lists,
            clock: self.clock,
        });
    }

    /// What was changed since [`Self::begin`] stays.
    pub(crate) fn settle_changes(&mut self, nodes: &dyn Nodes) {
        self.map.settle_changes(nodes);
        self.segments.settle_changes();
        self.removals.settle_changes();
        self.before = None;
        self.account_for_nodes();
    }

    /// Undoes what was changed since [`Self::begin`].
    pub(crate) fn roll_back(&mut self) {
        self.map.roll_back();
        self.segments.roll_back();
        self.removals.roll_back();
        if let Some(before) = self.before.take() {
            self.next_list = before.next_list;
            self.young_lists = before.young_lists;
            self.clock = before.clock;
        }
        // Nodes that were made dirty stay so: what lies on the device of them is dead.
        self.account_for_nodes();
    }

    /// The volume as policies see it.
    pub(crate) fn present(&self) -> Present {
        let layout = self.segments.layout();
        Present {
            clock: self.clock,
            live_bytes: self.segments.live_bytes(),
            segment_bytes: layout.segment_size_bytes(),
            segment_count: layout.segment_count(),
        }
    }

    pub(crate) fn has_list(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        if list >= self.next_list {
            return Ok(false);
        }
        let item = ItemKey::list(list);
        if let Some(key) = self.sole_key(ancestry, item) {
            return self.map.look(&key, nodes, |value| matches!(value, Some(Value::List(_))));
        }
        let newest = self.newest(ancestry, item, nodes)?;
        Ok(matches!(newest, Some((_, Value::List(_)))))
    }

    /// The one key that `item` can have, where there is but one version of its list.
    pub(crate) fn sole_key(&self, ancestry: Ancestry<'_>, item: ItemKey) -> Option<Key> {
        let (branch, epoch) = (ancestry.nearest().branch, self.versions.epoch());
        let is_head = ancestry.nearest().last_epoch >= epoch;
        (is_head && self.has_no_past(branch, item.list)).then(|| item.key(branch, epoch))
    }

    /// Whether nothing of `list` that was written before this epoch can be seen from the head of
    /// `branch`: there is no older version, or none has the list.
    pub(crate) const fn has_no_past(&self, branch: u32, list: u64) -> bool {
        let epoch = self.versions.epoch();
        let is_young = self.young_lists.epoch == epoch && list >= self.young_lists.first;
        is_young || list >= self.next_list || self.versions.is_first(branch, epoch)
    }

    /// Whether what is looked for in `list` may be there: what is left of a list that was deleted
    /// while other versions had it is not.
    pub(crate) fn may_hold(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let is_only = self.versions.epoch() == 1 && !self.removals.contains(list);
        Ok(is_only || self.has_list(ancestry, list, nodes)?)
    }

    /// The chunk under exactly this key.
    pub(crate) fn chunk_at(&self, key: &Key, nodes: &dyn Nodes) -> Outcome<Option<Arc<Chunk>>> {
        match self.map.get(key, nodes)? {
            None => Ok(None),
            Some(Value::Chunk(chunk)) => Ok(Some(chunk)),
            Some(_) => Err(wrong_space(key.list).into()),
        }
    }

    /// Stores a chunk under exactly this key, if it says anything.
    pub(crate) fn put_chunk(&mut self, key: &Key, chunk: Chunk, nodes: &dyn Nodes) -> Outcome<()> {
        if chunk.is_empty() {
            self.map.remove(key, nodes)?;
        } else {
            self.map.put(*key, Value::Chunk(Arc::new(chunk)), nodes)?;
        }
        Ok(())
    }

    /// Calls `visit` with the chunks that `pages` of `list` lie in, in order, as they are seen from
    /// `ancestry`, as far as `slice` goes.
    pub(crate) fn visit_chunks(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        pages: &Range<u64>,
        slice: &mut Slice,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(u64, &Chunk) -> ControlFlow<()>,
    ) -> Outcome<()> {
        if pages.is_empty() {
            return Ok(());
        }
        if pages.end - pages.start <= FEW_PAGES && self.versions.epoch() > 1 {
            return self.visit_few_chunks(ancestry, list, pages, slice, nodes, visit);
        }
        let from = Key::first(list, Space::Chunks, pages.start / CHUNK_PAGES);
        let to = Key::first(list, Space::Chunks, pages.end.div_ceil(CHUNK_PAGES));
        let mut layers = Layers::default();
        let mut has_ended = false;
        self.map.visit(&from, &to, nodes, &mut |key, value| {
            let Value::Chunk(chunk) = value else { return ControlFlow::Continue(()) };
            slice.count();
            if layers.number != Some(key.index) {
                let seen = layers.take();
                has_ended = seen.is_some_and(|(number, seen)| visit(number, &seen).is_break())
                    || slice.come_to(key.index).is_break();
                if has_ended {
                    return ControlFlow::Break(());
                }
                layers.number = Some(key.index);
            }
            if ancestry.sees(key) {
                layers.add(chunk);
            }
            ControlFlow::Continue(())
        })?;
        if let Some((number, seen)) = layers.take().filter(|_| !has_ended) {
            let _ = visit(number, &seen);
        }
        Ok(())
    }

    /// As [`Self::visit_chunks`], with a search for each chunk: where there are many versions of one,
    /// the newest are all that is looked at. Tells of no other pages.
    fn visit_few_chunks(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        pages: &Range<u64>,
        slice: &mut Slice,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(u64, &Chunk) -> ControlFlow<()>,
    ) -> Outcome<()> {
        for (number, slots) in groups(pages.clone()) {
            slice.pass_to(number);
            let mut wanted = mask(slots);
            let mut seen: Slots = [None; CHUNK_PAGES as usize];
            let mut has_any = false;
            let item = ItemKey::chunk(list, number);
            self.look_back_past(ancestry, item, nodes, &mut |_, value| {
                let Value::Chunk(chunk) = value else { return ControlFlow::Break(()) };
                for (slot, page) in chunk.iter_masked(wanted) {
                    seen[slot as usize] = Some(page);
                    has_any = true;
                }
                wanted &= !chunk.said();
                if wanted == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(past(chunk, wanted))
                }
            })?;
            if has_any && visit(number, &Chunk::from_slots(&seen)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the records of `list`, in order, as they are seen
    /// from `ancestry`, until it breaks or `slice` ends, which tells where to begin.
    pub(crate) fn visit_records(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        slice: &mut Slice,
        nodes: &dyn Nodes,
        visit: &mut VisitRecord<'_>,
    ) -> Outcome<()> {
        let start = Key::first(list, Space::Records, slice.next);
        let end = space_end(list, Space::Records);
        let mut newest: Option<(u64, Arc<[u8]>)> = None;
        let mut at = None;
        let mut has_ended = false;
        // Of what is seen of a record, the newest comes last.
        self.map.visit(&start, &end, nodes, &mut |key, value| {
            slice.count();
            if at.replace(key.index) != Some(key.index) {
                let seen = newest.take();
                has_ended = seen.is_some_and(|(index, bytes)| visit(index, &bytes).is_break())
                    || slice.come_to(key.index).is_break();
                if has_ended {
                    return ControlFlow::Break(());
                }
            }
            if ancestry.sees(key) {
                newest = match value {
                    Value::Record(bytes) => Some((key.index, Arc::clone(bytes))),
                    _ => None,
                };
            }
            ControlFlow::Continue(())
        })?;
        if let Some((index, bytes)) = newest.filter(|_| !has_ended) {
            let _ = visit(index, &bytes);
        }
        Ok(())
    }

    /// The numbers of the chunks in which the head of `branch` has pages of `pages`, which are taken
    /// from `budget`.
    ///
    /// # Errors
    /// [`Error::UnitTooLong`] when there are more than the budget has left.
    fn chunks_with_pages(
        &self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<u64>> {
        let max = usize::try_from(budget.0).unwrap_or(usize::MAX);
        let ancestry = self.versions.head_ancestry(branch)?;
        let mut groups = Vec::new();
        let mut slice = Slice::whole(0);
        self.visit_chunks(ancestry, list, pages, &mut slice, nodes, &mut |group, chunk| {
            if chunk.present() & mask(slots_of(group, pages)) != 0 {
                groups.push(group);
            }
            if groups.len() > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        budget.take(groups.len() as u64)?;
        Ok(groups)
    }

    /// Puts a list's or a record's entry into the epoch that heads write in; says whether the head
    /// had put one in it before.
    fn put_entry(
        &mut self,
        branch: u32,
        item: ItemKey,
        value: Value,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let epoch = self.versions.epoch();
        let found = self.map.put(item.key(branch, epoch), value, nodes)?;
        if let Some(old) = found.old {
            return Ok(old != Value::Tombstone);
        }
        if self.has_no_past(branch, item.list) {
            return Ok(false);
        }
        let pin = self.versions.newest_pin(branch);
        match found.before {
            Some(before) if ItemKey::of(&before) != item => {}
            Some(before) if before.branch == branch && pin >= Some(before.epoch) => {}
            _ => self.drop_unseen(branch, epoch, item, nodes)?,
        }
        Ok(false)
    }

    /// Removes the entry that the branch's head saw before `epoch` if no version sees it.
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
                // As long as a list is there, what its ancestors have of it hangs on theirs.
                is_list = matches!(value, Value::List(_));
                return ControlFlow::Continue(());
            }
            older = Some(*key);
            ControlFlow::Break(())
        })?;
        let alone = |key: &Key| self.versions.is_alone_with(branch, key.branch, key.epoch);
        match older.filter(|key| !is_list && alone(key)) {
            Some(key) => self.map.remove(&key, nodes).map(drop),
            None => Ok(()),
        }
    }

    /// Removes a list's or a record's entry, and hides what older versions have; says whether the
    /// head had put one in its epoch.
    fn delete_entry(&mut self, branch: u32, item: ItemKey, nodes: &dyn Nodes) -> Outcome<bool> {
        let epoch = self.versions.epoch();
        let old = self.map.remove(&item.key(branch, epoch), nodes)?;
        let is_own = old.is_some_and(|old| old != Value::Tombstone);
        if self.has_no_past(branch, item.list) {
            return Ok(is_own);
        }
        self.drop_unseen(branch, epoch, item, nodes)?;
        let ancestry = self.versions.head_ancestry(branch)?;
        let shows = self.newest(ancestry, item, nodes)?;
        if shows.is_some_and(|(_, value)| value != Value::Tombstone) {
            self.map.put(item.key(branch, epoch), Value::Tombstone, nodes)?;
        }
        Ok(is_own)
    }

    /// Makes a list that no version has.
    pub(crate) fn create_list(
        &mut self,
        branch: u32,
        list: u64,
        hints: u16,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let is_being_removed = self.removals.contains(list);
        if is_being_removed || (self.versions.epoch() > 1 && list < self.next_list) {
            // What only deleted versions had of one with this number must not come back with it.
            self.prune_list(list, nodes)?;
        }
        if is_being_removed {
            self.end_removal(list, nodes)?;
        }
        self.put_list(branch, list, hints, nodes)
    }

    pub(crate) fn put_list(
        &mut self,
        branch: u32,
        list: u64,
        hints: u16,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let epoch = self.versions.epoch();
        if self.young_lists.epoch != epoch {
            self.young_lists = YoungLists { epoch, first: self.next_list };
        }
        self.next_list = self.next_list.max(list + 1);
        self.put_entry(branch, ItemKey::list(list), Value::List(hints), nodes).map(drop)
    }

    /// Takes a list out that no other version sees, with all that it holds, if it lies in one leaf;
    /// says whether it does.
    pub(crate) fn take_small_list(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
        let Some(taken) = self.map.take_from_leaf(&from, &to, nodes)? else { return Ok(false) };
        for (_, value) in &taken {
            let Value::Chunk(chunk) = value else { continue };
            chunk.iter().for_each(|(_, page)| self.segments.block_died(&page, self.clock));
        }
        Ok(true)
    }

    /// Takes away the entry that says that a list exists, or hides it.
    pub(crate) fn delete_list_entry(
        &mut self,
        branch: u32,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.delete_entry(branch, ItemKey::list(list), nodes).map(drop)
    }

    /// Puts a record; says whether the head had put it in its epoch before.
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

    /// Deletes a record; says whether the head had put it in its epoch.
    pub(crate) fn delete_record(
        &mut self,
        branch: u32,
        list: u64,
        index: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        self.delete_entry(branch, ItemKey::record(list, index), nodes)
    }

    /// Puts a record of a list of the disk's own, or removes it.
    pub(crate) fn put_system_record(
        &mut self,
        list: u64,
        index: u64,
        value: Option<&[u8]>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let key = system_key(list, index);
        match value {
            Some(value) => drop(self.map.put(key, Value::Record(Arc::from(value)), nodes)?),
            None => drop(self.map.remove(&key, nodes)?),
        }
        Ok(())
    }

    /// A page was written as `block`, by a client.
    pub(crate) fn set_page(
        &mut self,
        branch: u32,
        list: u64,
        page: u64,
        block: PageRef,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let (number, slot) = (page / CHUNK_PAGES, (page % CHUNK_PAGES) as u32);
        let item = ItemKey::chunk(list, number);
        if let Some(before) = self.sole_page(branch, item, slot, nodes)? {
            return self.replace_own(branch, item, (slot, before.own), block, nodes);
        }
        let mut group = self.open_group(branch, list, number, slot..slot + 1, nodes)?;
        self.replace(&mut group, slot, block);
        self.put_group(&group, nodes)
    }

    /// Puts blocks that were moved in the place of their old ones in the chunk under exactly this
    /// key, as old as those were.
    pub(crate) fn move_blocks_of(
        &mut self,
        key: &Key,
        moved: &[(u32, PageRef)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let Some(chunk) = self.chunk_at(key, nodes)? else { return Ok(()) };
        let mut slots = chunk.slots();
        for (slot, block) in moved {
            let Some(there) = slots[*slot as usize] else { continue };
            let written_at = self.segments.policy_view_at(there.addr).written_at;
            self.segments.block_died(&there, self.clock);
            self.segments.block_born(block, written_at, self.clock);
            slots[*slot as usize] = Some(*block);
        }
        let rest = chunk.with_slots(&slots, chunk.holes());
        self.put_chunk(key, rest, nodes)
    }

    pub(crate) fn zero_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: Range<u64>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        for (number, slots) in groups(pages) {
            let mut group = self.open_group(branch, list, number, slots.clone(), nodes)?;
            for slot in slots {
                self.replace(&mut group, slot, PageRef::ZERO);
            }
            self.put_group(&group, nodes)?;
        }
        Ok(())
    }

    pub(crate) fn punch_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.change_pages(branch, list, &pages, budget, nodes, &mut |state, group, _, slot| {
            state.punch(group, slot);
            Ok(())
        })
    }

    /// Calls `change` for each page of `pages` that is not a hole, with its index and its slot.
    fn change_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
        change: &mut dyn FnMut(&mut Self, &mut Group, u64, u32) -> Outcome<()>,
    ) -> Outcome<()> {
        for number in self.chunks_with_pages(branch, list, pages, budget, nodes)? {
            let slots = slots_of(number, pages);
            let mut group = self.open_group_whole(branch, list, number, slots.clone(), nodes)?;
            for slot in slots {
                if group.page(slot).is_some() {
                    change(self, &mut group, number * CHUNK_PAGES + u64::from(slot), slot)?;
                }
            }
            self.put_group(&group, nodes)?;
        }
        Ok(())
    }

    /// Makes pages holes and returns them, their blocks still alive.
    fn take_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<(u64, PageRef)>> {
        let mut taken = Vec::new();
        self.change_pages(
            branch,
            list,
            pages,
            budget,
            nodes,
            &mut |state, group, page_index, slot| {
                taken.extend(state.take_page(group, slot)?.map(|page| (page_index, page)));
                Ok(())
            },
        )?;
        Ok(taken)
    }

    /// Puts pages, ascending, where holes are.
    fn give_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: &[(u64, PageRef)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        for given in pages.chunk_by(|a, b| a.0 / CHUNK_PAGES == b.0 / CHUNK_PAGES) {
            let number = given[0].0 / CHUNK_PAGES;
            let mut group = self.open_group(branch, list, number, 0..0, nodes)?;
            for (page_index, page) in given {
                Self::give_page(&mut group, (page_index % CHUNK_PAGES) as u32, *page);
            }
            self.put_group(&group, nodes)?;
        }
        Ok(())
    }

    pub(crate) fn move_pages(
        &mut self,
        branch: u32,
        (from, from_page): (u64, u64),
        (to, to_page): (u64, u64),
        count: u64,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let there = page_range(from_page, count);
        let mut pages = self.take_pages(branch, from, &there, budget, nodes)?;
        self.punch_pages(branch, to, page_range(to_page, count), budget, nodes)?;
        for (page, _) in &mut pages {
            *page = *page - from_page + to_page;
        }
        self.give_pages(branch, to, &pages, nodes)
    }

    pub(crate) fn swap_pages(
        &mut self,
        branch: u32,
        a: u64,
        b: u64,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        if a == b {
            return Ok(());
        }
        let all = 0..MAX_PAGE_COUNT;
        let of_a = self.take_pages(branch, a, &all, budget, nodes)?;
        let of_b = self.take_pages(branch, b, &all, budget, nodes)?;
        self.give_pages(branch, a, &of_b, nodes)?;
        self.give_pages(branch, b, &of_a, nodes)
    }

    /// Accounts for nodes of the map that are no longer used.
    pub(crate) fn account_for_nodes(&mut self) {
        if self.map.has_released() {
            for node in self.map.take_released() {
                self.segments.node_died(&node, self.clock);
            }
        }
    }

    /// Brings the usage records in the map up to date. What doing so changes in its turn is left
    /// in [`Segments::unrecorded`], for the checkpoint itself to tell.
    pub(crate) fn record_usage(&mut self, nodes: &dyn Nodes) -> Outcome<()> {
        let mut numbers = self.segments.unrecorded().to_vec();
        numbers.sort_unstable();
        for number in numbers {
            let usage = self.segments.usage(SegmentNo(number));
            let index = u64::from(number);
            let record = usage.encode();
            let value = (usage.live_bytes > 0).then_some(&record[..]);
            self.put_system_record(USAGE_LIST, index, value, nodes)?;
        }
        self.segments.note_recorded();
        Ok(())
    }
}

/// What is seen of a chunk, put together from its entries, oldest first.
#[derive(Default)]
struct Layers {
    number: Option<u64>,
    first: Option<Arc<Chunk>>,
    merged: Option<Box<Slots>>,
}

impl Layers {
    fn add(&mut self, chunk: &Arc<Chunk>) {
        let Some(first) = &self.first else {
            self.first = Some(Arc::clone(chunk));
            return;
        };
        let merged = self.merged.get_or_insert_with(|| Box::new(first.slots()));
        for (slot, page) in merged.iter_mut().enumerate() {
            if chunk.holes() >> slot & 1 == 1 {
                *page = None;
            }
        }
        for (slot, page) in chunk.iter() {
            merged[slot as usize] = Some(page);
        }
    }

    fn take(&mut self) -> Option<(u64, Arc<Chunk>)> {
        let number = self.number.take()?;
        let first = self.first.take()?;
        let seen = match self.merged.take() {
            Some(merged) => Arc::new(Chunk::from_slots(&merged)),
            None => first,
        };
        Some((number, seen))
    }
}

fn wrong_space(list: u64) -> Error {
    Error::Corrupted(format!("the map holds something else where pages of list {list} should be"))
}
