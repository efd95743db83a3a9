//! A chunk edit: the pages of one chunk, as the head of a branch sees them, are taken out of the
//! map to be changed.
//!
//! Invariants:
//! 1. Each block is named by one entry of the map, whatever number of versions see it. Only where
//!    nothing is written may a page that was moved be named twice.
//!
//! The head writes into an entry of the current epoch. It may take a page out of an older entry if
//! no other version sees that page, which means that no version lies between that entry and now. A
//! page that other versions see stays in its entry. The head then covers it with a page of its own
//! or with a hole.

use std::ops::{ControlFlow, Range};

use dendro_base::sync::Arc;
use dendro_disk::Lid;
use dendro_format::chunk::{CHUNK_PAGES, Skip};
use dendro_format::{Chunk, PageRef, Value};
use smallvec::SmallVec;

use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::state::item::ItemKey;
use crate::state::{Slots, State};

/// The number of entries that a pin protects from change in which the previous page is searched
/// for. That page is only needed to tell the policy how long it lived.
const MAX_RETAINED: usize = 1;

/// The minimum number of entries for which a skip is used. Walking over fewer entries is faster
/// than a search.
const MIN_SKIPPED: u32 = 7;

/// A page of an older entry that the head sees.
#[derive(Clone, Copy, Debug)]
struct Below {
    page: PageRef,
    branch: u32,
    epoch: u64,
}

/// A page that is taken out of an older entry.
#[derive(Clone, Copy, Debug)]
struct Taken {
    branch: u32,
    epoch: u64,
    slot: u32,
    /// Whether its block is freed, and not put elsewhere.
    is_freed: bool,
}

/// The page before the head writes it, for a write that changes only the head's entry of the
/// current epoch. Such a write needs no chunk edit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPage {
    /// The page that the head wrote in the current epoch, which the write frees.
    pub(crate) own: Option<PageRef>,
    /// The page that the head sees, if it was searched for. It tells the policy how long the page
    /// lived.
    pub(crate) seen: Option<PageRef>,
}

impl OwnPage {
    const fn own(page: Option<PageRef>) -> Self {
        Self { own: page, seen: page }
    }
}

/// The pages of one chunk, taken out of the map. Changes take effect with [`State::put_edit`].
#[derive(Debug)]
pub(crate) struct ChunkEdit {
    item: ItemKey,
    branch: u32,
    epoch: u64,
    /// Whether the map has an entry of this epoch.
    is_own: bool,
    own: Slots,
    holes: u32,
    /// The pages of older entries, as far as they were asked for. They are seen where [`Self::own`]
    /// and [`Self::holes`] have nothing. Pages that a version retains anyway may be missing, unless
    /// the whole chunk was opened.
    below: Option<Box<[Option<Below>; CHUNK_PAGES as usize]>>,
    skip: Option<Skip>,
    /// Pages that are taken out of older entries.
    taken: SmallVec<[Taken; 4]>,
}

/// A bit for each slot of `slots`.
pub(crate) fn mask(slots: Range<u32>) -> u32 {
    slots.fold(0, |mask, slot| mask | 1 << slot)
}

/// The epoch behind `chunk` at which to continue the search for the slots in `wanted`, if the
/// entries between have nothing of them and are more than a search costs.
pub(crate) fn past(chunk: &Chunk, wanted: u32) -> Option<u64> {
    let skip = chunk.skip()?;
    (skip.len >= MIN_SKIPPED && skip.said & wanted == 0).then_some(skip.epoch)
}

impl ChunkEdit {
    /// The page at `slot`, as the head sees it.
    pub(crate) fn page(&self, slot: u32) -> Option<PageRef> {
        self.own[slot as usize].or_else(|| self.below_at(slot).map(|below| below.page))
    }

    /// Whether the head had put an entry of the chunk in the current epoch.
    pub(crate) const fn has_own(&self) -> bool {
        self.is_own
    }

    /// The page at `slot` if the head wrote it in the current epoch.
    pub(crate) fn own_page(&self, slot: u32) -> Option<PageRef> {
        self.own[slot as usize]
    }

    /// Takes over the entry that the head wrote in the current epoch.
    fn load_own(&mut self, chunk: &Chunk) {
        self.is_own = true;
        (self.own, self.holes, self.skip) = (chunk.slots(), chunk.holes(), chunk.skip());
    }

    /// Notes that the page at `slot` is to be taken out of the older entry that has it.
    fn take_out(&mut self, below: &Below, slot: u32, is_freed: bool) {
        let Below { branch, epoch, .. } = *below;
        self.taken.push(Taken { branch, epoch, slot, is_freed });
    }

    fn below_at(&self, slot: u32) -> Option<Below> {
        let shows = self.own[slot as usize].is_none() && self.holes >> slot & 1 == 0;
        self.below.as_ref().filter(|_| shows).and_then(|below| below[slot as usize])
    }
}

impl State {
    /// Opens `slots` of a chunk, as the head of `branch` sees it. The slots can be written. To make
    /// holes, the chunk must be opened with [`Self::edit_chunk_whole`].
    pub(crate) fn edit_chunk(
        &self,
        branch: u32,
        list: u64,
        number: u64,
        slots: Range<u32>,
        nodes: &dyn Nodes,
    ) -> Outcome<ChunkEdit> {
        self.open_slots(branch, ItemKey::chunk(list, number), slots, false, nodes)
    }

    /// As [`Self::edit_chunk`], with the pages that lie below the head's own pages.
    pub(crate) fn edit_chunk_whole(
        &self,
        branch: u32,
        list: u64,
        number: u64,
        slots: Range<u32>,
        nodes: &dyn Nodes,
    ) -> Outcome<ChunkEdit> {
        self.open_slots(branch, ItemKey::chunk(list, number), slots, true, nodes)
    }

    fn open_slots(
        &self,
        branch: u32,
        item: ItemKey,
        slots: Range<u32>,
        looks_below: bool,
        nodes: &dyn Nodes,
    ) -> Outcome<ChunkEdit> {
        let epoch = self.versions.epoch();
        let mut edit = ChunkEdit {
            item,
            branch,
            epoch,
            is_own: false,
            own: [None; CHUNK_PAGES as usize],
            holes: 0,
            below: None,
            skip: None,
            taken: SmallVec::new(),
        };
        if self.has_no_past(branch, item.list) {
            if let Some(chunk) = self.chunk_at(&item.key(branch, epoch), nodes)? {
                edit.load_own(&chunk);
            }
            return Ok(edit);
        }
        let mut wanted = mask(slots);
        let mut below: Option<Box<[_; CHUNK_PAGES as usize]>> = None;
        let ancestry = self.versions.head_ancestry(branch)?;
        let newest_pin = self.versions.newest_pin(branch).filter(|_| !looks_below);
        let mut retained_count = 0;
        let mut before: Option<(u64, Arc<Chunk>)> = None;
        let mut is_new = true;
        self.look_back_past(ancestry, item, nodes, &mut |key, value| {
            let Value::Chunk(chunk) = value else { return ControlFlow::Break(()) };
            if newest_pin.is_some_and(|pin| key.branch != branch || key.epoch <= pin) {
                retained_count += 1;
            }
            if (key.branch, key.epoch) == (branch, epoch) {
                edit.load_own(chunk);
                is_new = false;
                if looks_below {
                    // The chunk has these holes because something lies below them.
                    wanted &= !chunk.holes();
                    return ControlFlow::Continue(past(chunk, wanted));
                }
            } else {
                if is_new && key.branch == branch && before.is_none() {
                    before = Some((key.epoch, Arc::clone(chunk)));
                }
                for (slot, page) in chunk.iter_masked(wanted) {
                    let (branch, epoch) = (key.branch, key.epoch);
                    let below = below.get_or_insert_with(|| Box::new([None; _]));
                    below[slot as usize] = Some(Below { page, branch, epoch });
                }
            }
            wanted &= !chunk.said();
            if wanted == 0 || retained_count == MAX_RETAINED {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(past(chunk, wanted))
            }
        })?;
        if let Some((epoch, chunk)) = before {
            edit.skip = Some(self.skip_over(item, branch, epoch, &chunk, nodes)?);
        }
        edit.below = below;
        Ok(edit)
    }

    /// The skip for a new entry directly above `chunk`, which was written in `epoch`.
    fn skip_over(
        &self,
        item: ItemKey,
        branch: u32,
        epoch: u64,
        chunk: &Chunk,
        nodes: &dyn Nodes,
    ) -> Outcome<Skip> {
        let next = Skip { depth: 1, epoch, len: 1, said: 0 };
        let Some(skip) = chunk.skip() else { return Ok(next) };
        let depth = skip.depth.saturating_add(1);
        let next = Skip { depth, ..next };
        let Some(target) = self.chunk_at(&item.key(branch, skip.epoch), nodes)? else {
            return Ok(next);
        };
        Ok(match target.skip() {
            Some(further) if further.len == skip.len => Skip {
                depth,
                epoch: further.epoch,
                len: skip.len.saturating_add(further.len).saturating_add(1),
                said: chunk.said() | skip.said | target.said() | further.said,
            },
            _ => next,
        })
    }

    fn is_seen_by_others(&self, edit: &ChunkEdit, below: &Below) -> bool {
        if below.branch == edit.branch {
            self.versions.is_seen(below.branch, below.epoch, edit.epoch)
        } else {
            !self.versions.sees_alone(edit.branch, below.branch, below.epoch)
        }
    }

    /// The page at `slot` whose block is freed when the head writes another there. A frame is freed
    /// only with the last of its pages.
    pub(crate) fn freed_page(&self, edit: &ChunkEdit, slot: u32) -> Option<PageRef> {
        let below = edit.below_at(slot).filter(|below| !self.is_seen_by_others(edit, below));
        let freed = edit.own_page(slot).or(below.map(|below| below.page));
        freed.filter(|page| !page.is_in_frame())
    }

    /// Whether the page at `slot` cannot be moved, because an older version also has it, or because
    /// it lies in a frame, which one entry alone may name.
    pub(crate) fn is_shared(&self, edit: &ChunkEdit, slot: u32) -> bool {
        edit.page(slot).is_some_and(|page| page.is_in_frame())
            || edit.below_at(slot).is_some_and(|below| self.is_seen_by_others(edit, &below))
    }

    /// The page at `slot` if a write needs only [`Self::replace_own`]. The head must have an entry
    /// of the chunk in the current epoch, and either nothing older can be seen at the slot, or a
    /// version retains the older page. The head's own page must not lie in a frame. `None` means
    /// that the write needs a chunk edit.
    pub(super) fn sole_page(
        &self,
        branch: u32,
        item: ItemKey,
        slot: u32,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<OwnPage>> {
        Ok(self.look_at_page(branch, item, slot, nodes)?.1)
    }

    /// Whether the head has an entry of the chunk in the current epoch, and the result of
    /// [`Self::sole_page`].
    pub(crate) fn look_at_page(
        &self,
        branch: u32,
        item: ItemKey,
        slot: u32,
        nodes: &dyn Nodes,
    ) -> Outcome<(bool, Option<OwnPage>)> {
        let epoch = self.versions.epoch();
        let has_no_past = self.has_no_past(branch, item.list);
        let (is_there, is_in_frame, before) =
            self.map.look(&item.key(branch, epoch), nodes, |value| match value {
                Some(Value::Chunk(chunk)) => {
                    let is_settled = has_no_past || chunk.said() >> slot & 1 == 1;
                    let own = chunk.get(slot);
                    let is_in_frame = own.is_some_and(|own| own.is_in_frame());
                    (true, is_in_frame, is_settled.then_some(OwnPage::own(own)))
                }
                value => (value.is_some(), false, None),
            })?;
        if is_in_frame {
            return Ok((true, None));
        }
        if is_there && before.is_none() {
            return Ok((true, self.page_retained_below(branch, item, slot, nodes)?));
        }
        Ok((is_there, before))
    }

    /// As [`Self::sole_page`], for a slot of which the head's own entry has nothing. If the newest
    /// pin of the branch sees the entry directly below, no page may be taken out of an older entry.
    fn page_retained_below(
        &self,
        branch: u32,
        item: ItemKey,
        slot: u32,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<OwnPage>> {
        let Some(pin) = self.versions.newest_pin(branch) else { return Ok(None) };
        let mut before = None;
        let ancestry = self.versions.head_ancestry(branch)?;
        self.look_back(ancestry, item, nodes, &mut |key, value| match value {
            Value::Chunk(_) if (key.branch, key.epoch) == (branch, self.versions.epoch()) => {
                ControlFlow::Continue(())
            }
            Value::Chunk(chunk) if key.branch != branch || key.epoch <= pin => {
                before = Some(OwnPage { own: None, seen: chunk.get(slot) });
                ControlFlow::Break(())
            }
            _ => ControlFlow::Break(()),
        })?;
        Ok(before)
    }

    /// Replaces the head's own page, which [`Self::sole_page`] has found, by a new block that is no
    /// frame.
    pub(crate) fn replace_own(
        &mut self,
        branch: u32,
        item: ItemKey,
        (slot, own): (u32, Option<PageRef>),
        block: PageRef,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.clock += u64::from(block.footprint_bytes());
        if let Some(own) = own {
            self.segments.block_freed(&own, self.clock);
        }
        self.segments.block_added(&block, self.clock, self.clock);
        let key = item.key(branch, self.versions.epoch());
        self.map.set_page(&key, slot, block, nodes)
    }

    /// Replaces a page by a new block.
    pub(crate) fn replace(&mut self, edit: &mut ChunkEdit, slot: u32, block: PageRef) {
        self.clock += u64::from(block.footprint_bytes());
        self.drop_page(edit, slot);
        self.add_to(&edit.own, &block, self.clock);
        edit.own[slot as usize] = Some(block);
        edit.holes &= !(1 << slot);
    }

    /// Makes a page a hole; frees its block unless other versions see it.
    pub(super) fn punch(&mut self, edit: &mut ChunkEdit, slot: u32) {
        self.drop_page(edit, slot);
        Self::cover(edit, slot);
    }

    /// Makes a page a hole and returns it; its block stays live.
    ///
    /// # Errors
    /// When an older version also has the page: see [`Self::is_shared`].
    pub(super) fn take_page(&self, edit: &mut ChunkEdit, slot: u32) -> Outcome<Option<PageRef>> {
        let is_shared = self.is_shared(edit, slot);
        if is_shared && !self.is_in_memory_only {
            return Err(Fault::Shared(Lid(edit.item.list), edit.item.index));
        }
        let page = edit.page(slot);
        if !is_shared && let (None, Some(below)) = (edit.own[slot as usize], edit.below_at(slot)) {
            edit.take_out(&below, slot, false);
        }
        edit.own[slot as usize] = None;
        Self::cover(edit, slot);
        Ok(page)
    }

    /// Puts a page that was taken elsewhere into a hole.
    pub(super) const fn give_page(edit: &mut ChunkEdit, slot: u32, page: PageRef) {
        edit.own[slot as usize] = Some(page);
        edit.holes &= !(1 << slot);
    }

    /// Removes the page at `slot`; frees its block unless other versions see it.
    fn drop_page(&mut self, edit: &mut ChunkEdit, slot: u32) {
        if edit.own[slot as usize].is_some() {
            self.drop_from(&mut edit.own, slot);
        } else if let Some(below) = edit.below_at(slot)
            && !self.is_seen_by_others(edit, &below)
        {
            edit.take_out(&below, slot, true);
        }
    }

    /// Makes a hole at `slot` if an older entry has a page there, so that this page is not seen.
    fn cover(edit: &mut ChunkEdit, slot: u32) {
        if edit.below.as_ref().is_some_and(|below| below[slot as usize].is_some()) {
            edit.holes |= 1 << slot;
        }
    }

    /// Puts the edited chunk back into the map.
    pub(crate) fn put_edit(&mut self, edit: &ChunkEdit, nodes: &dyn Nodes) -> Outcome<()> {
        let key = edit.item.key(edit.branch, edit.epoch);
        let chunk = Chunk::with_holes(&edit.own, edit.holes).with_skip(edit.skip);
        self.put_chunk(&key, chunk, nodes)?;
        for Taken { branch, epoch, slot, is_freed } in &edit.taken {
            let key = edit.item.key(*branch, *epoch);
            let Some(chunk) = self.chunk_at(&key, nodes)? else { continue };
            let mut slots = chunk.slots();
            if *is_freed {
                self.drop_from(&mut slots, *slot);
            }
            slots[*slot as usize] = None;
            let rest = chunk.with_slots(&slots, chunk.holes());
            self.put_chunk(&key, rest, nodes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_disk::{Aru, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};

    use crate::testing::{disk_in_memory, make_list};
    use crate::{LogDisk, OpenOptions};

    fn disk() -> LogDisk {
        disk_in_memory(64, 4096, OpenOptions::default())
    }

    #[test]
    fn skips_with_invalid_targets_or_overflowing_lengths_are_harmless() {
        let disk = disk();
        let list = make_list(&disk);
        let head = disk.branch_off(View::HEAD, "branch").unwrap().head();
        let forged = |epoch: u64| {
            let mut slots = [None; CHUNK_PAGES as usize];
            slots[3] = Some(PageRef::ZERO);
            let skip = Skip { depth: u32::MAX, epoch, len: u32::MAX, said: 0 };
            Value::Chunk(Arc::new(Chunk::from_slots(&slots).with_skip(Some(skip))))
        };
        let snapshot = disk.snapshot(head.branch, None).unwrap();
        {
            let nodes = crate::map::store::PinnedNodes::loading(disk.volume().store());
            let mut engine = disk.volume().write();
            let item = ItemKey::chunk(list.0, 0);
            for (epoch, to) in [(0, 9), (snapshot.epoch, 0)] {
                engine
                    .state_mut()
                    .map
                    .put(&item.key(head.branch, epoch), forged(to), &nodes)
                    .unwrap();
            }
        }
        let mut page = [1; PAGE_SIZE];
        disk.read_pages(head, list, 5, &mut page).unwrap();
        assert_eq!(page, [0; PAGE_SIZE]);
        let mut aru = Aru::new(head);
        aru.write_pages(list, 5, vec![2; PAGE_SIZE]);
        disk.commit(aru).unwrap();
        disk.read_pages(head, list, 5, &mut page).unwrap();
        assert_eq!(page, [2; PAGE_SIZE]);
    }

    #[test]
    fn a_page_below_a_thousand_versions_of_its_neighbours_is_found_in_few_steps() {
        let disk = disk();
        let list = disk.allocate_list().unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        aru.write_pages(list, 0, vec![1; 32 * PAGE_SIZE]);
        disk.commit(aru).unwrap();
        for number in 0..1000 {
            disk.snapshot(0, None).unwrap();
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, number % 3, vec![2; PAGE_SIZE]);
            disk.commit(aru).unwrap();
        }
        let engine = disk.volume().read();
        let nodes = crate::map::store::PinnedNodes::loading(disk.volume().store());
        let ancestry = engine.state().versions.head_ancestry(0).unwrap();
        let (mut step_count, mut found) = (0, None);
        let item = ItemKey::chunk(list.0, 0);
        engine
            .state()
            .look_back_past(ancestry, item, &nodes, &mut |_, value| {
                let Value::Chunk(chunk) = value else { return ControlFlow::Break(()) };
                step_count += 1;
                found = chunk.get(17);
                match found {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(past(chunk, 1 << 17)),
                }
            })
            .unwrap();
        assert!(found.is_some());
        assert!(step_count < 40, "{step_count} steps");
    }
}
