//! What the entries of the new map refer to: live bytes of each segment, pages, the place of each
//! block.

use std::collections::BTreeSet;

use dendro_format::compression::check_kind;
use dendro_format::rearrangement::REARRANGEMENT_INDEX;
use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Addr, Chunk, CompressedPages, Key, Layout, PageRef, SegmentNo, Value};

use super::extents::Extents;
use crate::read::UsageTable;

/// Counts over entries.
#[derive(Debug)]
pub(super) struct Account {
    /// The segments that the new map may refer to.
    layout: Layout,
    live: Vec<u64>,
    pub(super) extents: Extents,
    /// What was taken more than once.
    pub(super) contested: Extents,
    /// Whether there are pages whose blocks lie elsewhere than in the log.
    pub(super) has_outside: bool,
    pub(super) short_count: u64,
    pub(super) zero_count: u64,
    pub(super) compressed: CompressedPages,
    /// Above all lists.
    pub(super) next_list: u64,
    /// The latest epoch of an entry.
    pub(super) epoch: u64,
    /// The branches of entries.
    pub(super) branches: BTreeSet<u32>,
    /// Whether there is a unit of which something is left to be done.
    pub(super) has_rearrangement: bool,
    /// What the old map said of the usage of segments.
    pub(super) old_usage: UsageTable,
}

impl Account {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            live: vec![0; layout.segment_count() as usize],
            extents: Extents::default(),
            contested: Extents::default(),
            has_outside: false,
            short_count: 0,
            zero_count: 0,
            compressed: CompressedPages::default(),
            next_list: 0,
            epoch: 0,
            branches: BTreeSet::new(),
            has_rearrangement: false,
            old_usage: UsageTable::default(),
        }
    }

    /// About the memory that it takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.live.len() * size_of::<u64>()) as u64
            + self.extents.memory_bytes()
            + self.contested.memory_bytes()
    }

    /// Counts an entry.
    pub(super) fn add(&mut self, key: &Key, value: &Value) {
        self.epoch = self.epoch.max(key.epoch);
        if key.list < FIRST_SYSTEM_LIST {
            self.next_list = self.next_list.max(key.list + 1);
            self.branches.insert(key.branch);
        }
        match value {
            Value::Chunk(chunk) => self.add_chunk(chunk),
            Value::Record(bytes) if key.list == USAGE_LIST => {
                // A record that cannot be read is made anew with the others.
                let _ = self.old_usage.insert_record(key, bytes);
            }
            Value::Record(_) if key.list == VERSIONS_LIST && key.index == REARRANGEMENT_INDEX => {
                self.has_rearrangement = true;
            }
            _ => {}
        }
    }

    /// Counts a chunk without the pages that `is_lost` of the counts so far, and each of these as a
    /// short block in its place. Returns a bit for each of their slots.
    pub(super) fn add_chunk_without(
        &mut self,
        key: &Key,
        chunk: &Chunk,
        is_lost: impl Fn(PageRef, &Self) -> bool,
    ) -> u32 {
        self.add(key, &Value::Tombstone);
        let mut lost = 0;
        for (slots, page) in chunk.blocks() {
            if is_lost(page, self) {
                lost |= slots;
                self.short_count += u64::from(slots.count_ones());
            } else {
                self.add_block(slots.count_ones(), page);
            }
        }
        lost
    }

    fn add_chunk(&mut self, chunk: &Chunk) {
        for (slots, page) in chunk.blocks() {
            self.add_block(slots.count_ones(), page);
        }
    }

    /// Counts a block with so many pages, of which `page` is one.
    fn add_block(&mut self, page_count: u32, page: PageRef) {
        if page.len_bytes == 0 {
            self.zero_count += 1;
            return;
        }
        if page.is_short() {
            self.short_count += u64::from(page_count);
        }
        for at in 0..page_count {
            self.compressed.add(&page, if at == 0 { page.footprint_bytes() } else { 0 });
        }
        let len_bytes = u64::from(page.footprint_bytes());
        if self.layout.holds(page.addr, len_bytes) {
            self.add_live(page.addr, len_bytes);
            self.take(page.addr, len_bytes);
        } else {
            self.has_outside = true;
        }
    }

    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Notes what bytes are taken by.
    pub(super) fn take(&mut self, addr: Addr, len_bytes: u64) {
        if !self.extents.take(addr, len_bytes) {
            self.contested.take(addr, len_bytes);
        }
    }

    /// Counts bytes that lie in one segment.
    pub(super) fn add_live(&mut self, addr: Addr, len_bytes: u64) {
        self.live[self.layout.segment_of(addr).0 as usize] += len_bytes;
    }

    /// Live bytes of a segment.
    pub(super) fn live_bytes_of(&self, segment: SegmentNo) -> u64 {
        self.live.get(segment.0 as usize).copied().unwrap_or(0)
    }

    /// Whether a page can be taken into the map: its block can be read, lies in the log, and is
    /// nobody else's.
    pub(super) fn admits(&self, page: PageRef) -> bool {
        let len_bytes = u64::from(page.footprint_bytes());
        page.len_bytes == 0
            || check_kind(&page).is_ok()
                && self.layout.holds(page.addr, len_bytes)
                && self.extents.is_free(page.addr, len_bytes)
    }
}
