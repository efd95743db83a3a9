//! The state that the log describes: the map and the segments' usage, and how each change of the
//! log alters them. Running and recovering go through the same functions, so a log replayed gives
//! what was there when it was written.

use std::ops::{ControlFlow, Range};

use dendro_base::sync::Arc;
use dendro_disk::{Error, MAX_PAGE_COUNT};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::usage::USAGE_LIST;
use dendro_format::{Chunk, Key, PageRef, SegmentNo, Space, Value};

use crate::fault::Outcome;
use crate::map::{Map, Nodes};
use crate::segments::Segments;

/// The branch and epoch that everything is written in as long as there is but one version.
pub(crate) const BRANCH: u32 = 0;
pub(crate) const EPOCH: u64 = 1;

pub(crate) type Slots = [Option<PageRef>; CHUNK_PAGES as usize];

/// The map, the segments, and what the next list is called.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) map: Map,
    pub(crate) segments: Segments,
    pub(crate) next_list: u64,
    /// The log clock: bytes of blocks that clients have written.
    pub(crate) clock: u64,
}

pub(crate) const fn key(list: u64, space: Space, index: u64) -> Key {
    Key { list, space, index, branch: BRANCH, epoch: EPOCH }
}

pub(crate) const fn chunk_key(list: u64, group: u64) -> Key {
    key(list, Space::Chunks, group)
}

/// The first key behind all of a list's keys in `space`.
pub(crate) const fn space_end(list: u64, space: Space) -> Key {
    match space {
        Space::List => Key::first(list, Space::Records, 0),
        Space::Records => Key::first(list, Space::Chunks, 0),
        Space::Chunks => Key::first(list + 1, Space::List, 0),
    }
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
    pub(crate) fn has_list(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        Ok(self.map.get(&key(list, Space::List, 0), nodes)?.is_some())
    }

    pub(crate) fn chunk(
        &self,
        list: u64,
        group: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<Arc<Chunk>>> {
        match self.map.get(&chunk_key(list, group), nodes)? {
            None => Ok(None),
            Some(Value::Chunk(chunk)) => Ok(Some(chunk)),
            Some(_) => Err(wrong_space(list).into()),
        }
    }

    pub(crate) fn slots(&self, list: u64, group: u64, nodes: &dyn Nodes) -> Outcome<Slots> {
        Ok(self
            .chunk(list, group, nodes)?
            .map_or([None; CHUNK_PAGES as usize], |chunk| chunk.slots()))
    }

    /// Calls `visit` with the chunks that `pages` of `list` lie in, in order.
    pub(crate) fn visit_chunks(
        &self,
        list: u64,
        pages: &Range<u64>,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(u64, &Arc<Chunk>) -> ControlFlow<()>,
    ) -> Outcome<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let from = Key::first(list, Space::Chunks, pages.start / CHUNK_PAGES);
        let to = Key::first(list, Space::Chunks, pages.end.div_ceil(CHUNK_PAGES));
        self.map.visit(&from, &to, nodes, &mut |key, value| match value {
            Value::Chunk(chunk) => visit(key.index, chunk),
            _ => ControlFlow::Continue(()),
        })
    }

    fn chunks(
        &self,
        list: u64,
        pages: &Range<u64>,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<(u64, Arc<Chunk>)>> {
        let mut chunks = Vec::new();
        self.visit_chunks(list, pages, nodes, &mut |group, chunk| {
            chunks.push((group, Arc::clone(chunk)));
            ControlFlow::Continue(())
        })?;
        Ok(chunks)
    }

    pub(crate) fn put_list(&mut self, list: u64, hints: u16, nodes: &dyn Nodes) -> Outcome<()> {
        self.next_list = self.next_list.max(list + 1);
        self.map.put(key(list, Space::List, 0), Value::List(hints), nodes)?;
        Ok(())
    }

    pub(crate) fn delete_list(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        let mut keys = Vec::new();
        let mut blocks = Vec::new();
        let from = Key::first(list, Space::List, 0);
        self.map.visit(&from, &space_end(list, Space::Chunks), nodes, &mut |key, value| {
            keys.push(*key);
            if let Value::Chunk(chunk) = value {
                blocks.extend(chunk.iter().map(|(_, page)| page));
            }
            ControlFlow::Continue(())
        })?;
        for key in &keys {
            self.map.remove(key, nodes)?;
        }
        for block in &blocks {
            self.segments.block_died(block, self.clock);
        }
        Ok(())
    }

    pub(crate) fn put_record(
        &mut self,
        list: u64,
        index: u64,
        value: &[u8],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.map.put(key(list, Space::Records, index), Value::Record(Arc::from(value)), nodes)?;
        Ok(())
    }

    pub(crate) fn delete_record(
        &mut self,
        list: u64,
        index: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.map.remove(&key(list, Space::Records, index), nodes)?;
        Ok(())
    }

    /// Stores a group's slots, whatever was under its key.
    pub(crate) fn put_slots(
        &mut self,
        list: u64,
        group: u64,
        slots: &Slots,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let key = chunk_key(list, group);
        let chunk = Chunk::from_slots(slots);
        if chunk.is_empty() {
            self.map.remove(&key, nodes)?;
        } else {
            self.map.put(key, Value::Chunk(Arc::new(chunk)), nodes)?;
        }
        Ok(())
    }

    /// Puts a page's new block in the place of its old one.
    pub(crate) fn replace(&mut self, slot: &mut Option<PageRef>, block: PageRef) {
        self.clock += u64::from(block.footprint_bytes());
        if let Some(old) = slot.replace(block) {
            self.segments.block_died(&old, self.clock);
        }
        self.segments.block_born(&block, self.clock, self.clock);
    }

    /// Puts a block that was moved in the place of its old one, as old as that was.
    pub(crate) fn replace_moved(&mut self, slot: &mut Option<PageRef>, block: PageRef) {
        let mut written_at = self.clock;
        if let Some(old) = slot.replace(block) {
            written_at = self.segments.figures_at(old.addr).written_at;
            self.segments.block_died(&old, self.clock);
        }
        self.segments.block_born(&block, written_at, self.clock);
    }

    /// A page was written as `block`, by a client or, if it lies among survivors, by the cleaner.
    pub(crate) fn set_page(
        &mut self,
        list: u64,
        page: u64,
        block: PageRef,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let group = page / CHUNK_PAGES;
        let mut slots = self.slots(list, group, nodes)?;
        let slot = &mut slots[(page % CHUNK_PAGES) as usize];
        let class = self.segments.figures_at(block.addr).class;
        if class.survivor_index().is_some() {
            self.replace_moved(slot, block);
        } else {
            self.replace(slot, block);
        }
        self.put_slots(list, group, &slots, nodes)
    }

    pub(crate) fn zero_pages(
        &mut self,
        list: u64,
        pages: Range<u64>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        for (group, range) in groups(pages) {
            let mut slots = self.slots(list, group, nodes)?;
            for slot in range {
                self.replace(&mut slots[slot as usize], PageRef::ZERO);
            }
            self.put_slots(list, group, &slots, nodes)?;
        }
        Ok(())
    }

    pub(crate) fn punch_pages(
        &mut self,
        list: u64,
        pages: Range<u64>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        for (_, block) in self.take_pages(list, &pages, nodes)? {
            self.segments.block_died(&block, self.clock);
        }
        Ok(())
    }

    /// Makes pages holes and returns them, their blocks still alive.
    fn take_pages(
        &mut self,
        list: u64,
        pages: &Range<u64>,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<(u64, PageRef)>> {
        let mut taken = Vec::new();
        for (group, chunk) in self.chunks(list, pages, nodes)? {
            let mut slots = chunk.slots();
            let before = taken.len();
            for slot in slots_of(group, pages) {
                if let Some(block) = slots[slot as usize].take() {
                    taken.push((group * CHUNK_PAGES + u64::from(slot), block));
                }
            }
            if taken.len() > before {
                self.put_slots(list, group, &slots, nodes)?;
            }
        }
        Ok(taken)
    }

    /// Puts pages, ascending, where holes are.
    fn give_pages(
        &mut self,
        list: u64,
        pages: &[(u64, PageRef)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        for group in pages.chunk_by(|a, b| a.0 / CHUNK_PAGES == b.0 / CHUNK_PAGES) {
            let number = group[0].0 / CHUNK_PAGES;
            let mut slots = self.slots(list, number, nodes)?;
            for (page, block) in group {
                slots[(page % CHUNK_PAGES) as usize] = Some(*block);
            }
            self.put_slots(list, number, &slots, nodes)?;
        }
        Ok(())
    }

    pub(crate) fn move_pages(
        &mut self,
        (from, from_page): (u64, u64),
        (to, to_page): (u64, u64),
        count: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let mut pages = self.take_pages(from, &page_range(from_page, count), nodes)?;
        self.punch_pages(to, page_range(to_page, count), nodes)?;
        for (page, _) in &mut pages {
            *page = *page - from_page + to_page;
        }
        self.give_pages(to, &pages, nodes)
    }

    pub(crate) fn swap_pages(&mut self, a: u64, b: u64, nodes: &dyn Nodes) -> Outcome<()> {
        if a == b {
            return Ok(());
        }
        let all = 0..MAX_PAGE_COUNT;
        let of_a = self.take_pages(a, &all, nodes)?;
        let of_b = self.take_pages(b, &all, nodes)?;
        self.give_pages(a, &of_b, nodes)?;
        self.give_pages(b, &of_a, nodes)
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
        self.account_for_nodes();
        for number in self.segments.take_unrecorded() {
            let usage = self.segments.usage(SegmentNo(number));
            let index = u64::from(number);
            if usage.live_bytes == 0 {
                self.delete_record(USAGE_LIST, index, nodes)?;
            } else {
                self.put_record(USAGE_LIST, index, &usage.encode(), nodes)?;
            }
        }
        self.account_for_nodes();
        Ok(())
    }
}

fn wrong_space(list: u64) -> Error {
    Error::Corrupted(format!("the map holds something else where pages of list {list} should be"))
}
