//! How pages are written, zeroed, punched and moved in the state, chunk by chunk.

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::state::chunk_edit::{ChunkEdit, mask};
use crate::state::item::ItemKey;
use crate::state::slice::Slice;
use dendro_base::sync::Arc;
use dendro_disk::{Error, MAX_PAGE_COUNT, MAX_UNIT_GROUPS};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Chunk, Key, PageRef, Value};
use std::ops::{ControlFlow, Range};

/// The number of chunks with pages that a unit may still visit (space invariant 2).
#[derive(Debug)]
pub(crate) struct ChunkBudget(u64);

impl ChunkBudget {
    /// The budget of a unit of a client.
    pub(crate) const fn of_unit() -> Self {
        Self(MAX_UNIT_GROUPS)
    }

    /// The budget of a unit in the log: its size was checked when it was committed.
    pub(crate) const fn unlimited() -> Self {
        Self(u64::MAX)
    }

    /// The budget, but for at most `count` chunks.
    pub(crate) fn at_most(&self, count: u64) -> Self {
        Self(self.0.min(count))
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

/// Checks that a list can have these pages.
///
/// # Errors
/// [`Error::OutOfRange`].
pub(crate) fn check_range(first_page: u64, count: u64) -> Result<(), Error> {
    match first_page.checked_add(count) {
        Some(end) if end <= MAX_PAGE_COUNT => Ok(()),
        _ => Err(Error::OutOfRange { first_page, count }),
    }
}

/// The minimum bytes of map that `count` pages of zeros take, although they have no blocks. A
/// request for more of them than the volume can map must fail.
pub(crate) const fn zeroed_map_bytes(count: u64) -> u64 {
    count / CHUNK_PAGES * 8
}

/// The chunks that `pages` lie in, each with its slots that belong to `pages`.
pub(crate) fn chunks_of(pages: Range<u64>) -> impl Iterator<Item = (u64, Range<u32>)> {
    let last = pages.end.div_ceil(CHUNK_PAGES);
    (pages.start / CHUNK_PAGES..if pages.is_empty() { 0 } else { last })
        .map(move |number| (number, slots_of(number, &pages)))
}

/// The slots of chunk `number` that lie in `pages`.
pub(crate) fn slots_of(number: u64, pages: &Range<u64>) -> Range<u32> {
    let first = number * CHUNK_PAGES;
    let start = pages.start.clamp(first, first + CHUNK_PAGES) - first;
    let end = pages.end.clamp(first, first + CHUNK_PAGES) - first;
    start as u32..end as u32
}

/// The range of `count` pages from `first` on, limited to the maximum number of pages.
pub(crate) fn page_range(first: u64, count: u64) -> Range<u64> {
    first..first.saturating_add(count).min(MAX_PAGE_COUNT).max(first)
}

impl State {
    /// The chunk under exactly this key.
    pub(crate) fn chunk_at(&self, key: &Key, nodes: &dyn Nodes) -> Outcome<Option<Arc<Chunk>>> {
        match self.map.get(key, nodes)? {
            None => Ok(None),
            Some(Value::Chunk(chunk)) => Ok(Some(chunk)),
            Some(_) => Err(wrong_space(key.list).into()),
        }
    }

    /// Stores a chunk under exactly this key, or removes the entry if the chunk is empty.
    pub(super) fn put_chunk(&mut self, key: &Key, chunk: Chunk, nodes: &dyn Nodes) -> Outcome<()> {
        if chunk.is_empty() {
            self.map.remove(key, nodes)?;
        } else {
            self.map.put(key, Value::Chunk(Arc::new(chunk)), nodes)?;
        }
        Ok(())
    }

    /// The numbers of the chunks in which the head of `branch` has some of `pages`. They are taken
    /// from `budget`.
    ///
    /// # Errors
    /// [`Error::UnitTooLong`] when there are more than the budget has left.
    pub(super) fn chunks_with_pages(
        &self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<u64>> {
        let max = usize::try_from(budget.0).unwrap_or(usize::MAX);
        let ancestry = self.versions.head_ancestry(branch)?;
        let mut numbers = Vec::new();
        let mut slice = Slice::whole(0);
        self.visit_chunks(ancestry, list, pages, &mut slice, nodes, &mut |number, chunk| {
            if chunk.present() & mask(slots_of(number, pages)) != 0 {
                numbers.push(number);
            }
            if numbers.len() > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        budget.take(numbers.len() as u64)?;
        Ok(numbers)
    }

    /// Enters that a client wrote a page as `block`.
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
        if !block.is_in_frame()
            && let Some(before) = self.sole_page(branch, item, slot, nodes)?
        {
            return self.replace_own(branch, item, (slot, before.own), block, nodes);
        }
        let mut edit = self.edit_chunk(branch, list, number, slot..slot + 1, nodes)?;
        self.replace(&mut edit, slot, block);
        self.put_edit(&edit, nodes)
    }

    /// Replaces blocks in the chunk under exactly this key by the places that they were moved to.
    /// They keep the age of the old blocks.
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
            self.drop_from(&mut slots, *slot);
            self.add_to(&slots, block, written_at);
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
        for (number, slots) in chunks_of(pages) {
            let mut edit = self.edit_chunk(branch, list, number, slots.clone(), nodes)?;
            for slot in slots {
                self.replace(&mut edit, slot, PageRef::ZERO);
            }
            self.put_edit(&edit, nodes)?;
        }
        Ok(())
    }

    /// Makes pages holes; returns the number of chunks in which there were some.
    pub(crate) fn punch_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<u64> {
        self.change_pages(branch, list, &pages, budget, nodes, &mut |state, edit, _, slot| {
            state.punch(edit, slot);
            Ok(())
        })
    }

    /// Calls `change` with the index and slot of each page of `pages` that is not a hole. Returns
    /// the number of chunks in which there are some.
    fn change_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
        change: &mut dyn FnMut(&mut Self, &mut ChunkEdit, u64, u32) -> Outcome<()>,
    ) -> Outcome<u64> {
        let numbers = self.chunks_with_pages(branch, list, pages, budget, nodes)?;
        for &number in &numbers {
            let slots = slots_of(number, pages);
            let mut edit = self.edit_chunk_whole(branch, list, number, slots.clone(), nodes)?;
            for slot in slots {
                if edit.page(slot).is_some() {
                    change(self, &mut edit, number * CHUNK_PAGES + u64::from(slot), slot)?;
                }
            }
            self.put_edit(&edit, nodes)?;
        }
        Ok(numbers.len() as u64)
    }

    /// Makes pages holes and returns them, with the number of their chunks; their blocks stay live.
    fn take_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<(Vec<(u64, PageRef)>, u64)> {
        let mut taken = Vec::new();
        let count = self.change_pages(
            branch,
            list,
            pages,
            budget,
            nodes,
            &mut |state, edit, page_index, slot| {
                taken.extend(state.take_page(edit, slot)?.map(|page| (page_index, page)));
                Ok(())
            },
        )?;
        Ok((taken, count))
    }

    /// Puts pages, in ascending order, into holes.
    fn give_pages(
        &mut self,
        branch: u32,
        list: u64,
        pages: &[(u64, PageRef)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        for given in pages.chunk_by(|a, b| a.0 / CHUNK_PAGES == b.0 / CHUNK_PAGES) {
            let number = given[0].0 / CHUNK_PAGES;
            let mut edit = self.edit_chunk(branch, list, number, 0..0, nodes)?;
            for (page_index, page) in given {
                Self::give_page(&mut edit, (page_index % CHUNK_PAGES) as u32, *page);
            }
            self.put_edit(&edit, nodes)?;
        }
        Ok(())
    }

    /// Moves pages; returns the number of chunks in which there were some, on both sides.
    pub(crate) fn move_pages(
        &mut self,
        branch: u32,
        (from, from_page): (u64, u64),
        (to, to_page): (u64, u64),
        count: u64,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<u64> {
        let (there, here) = (page_range(from_page, count), page_range(to_page, count));
        let (mut pages, taken) = self.take_pages(branch, from, &there, budget, nodes)?;
        let punched = self.punch_pages(branch, to, here, budget, nodes)?;
        for (page, _) in &mut pages {
            *page = *page - from_page + to_page;
        }
        self.give_pages(branch, to, &pages, nodes)?;
        Ok(taken + punched)
    }

    /// Exchanges the pages of two lists in a range; returns the number of chunks in which there
    /// were some, in both.
    pub(crate) fn swap_pages(
        &mut self,
        branch: u32,
        (a, b): (u64, u64),
        pages: &Range<u64>,
        budget: &mut ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<u64> {
        if a == b {
            return Ok(0);
        }
        let (of_a, count_of_a) = self.take_pages(branch, a, pages, budget, nodes)?;
        let (of_b, count_of_b) = self.take_pages(branch, b, pages, budget, nodes)?;
        self.give_pages(branch, a, &of_b, nodes)?;
        self.give_pages(branch, b, &of_a, nodes)?;
        Ok(count_of_a + count_of_b)
    }
}

fn wrong_space(list: u64) -> Error {
    Error::Corrupted(format!("the map holds something else where pages of list {list} should be"))
}
