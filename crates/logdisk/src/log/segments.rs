//! The segments: what state each is in, how much of it can be reached, who reads it now.

mod entry;
mod pins;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::BTreeSet;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};
use dendro_format::layout::FIRST_LOG_SEGMENT;
use dendro_format::record::WRITE_BLOCK_LEN_BYTES;
use dendro_format::{Addr, Head, Layout, NodePtr, PageRef, SegmentNo, Usage};
use dendro_policy::Class;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use zerocopy::FromZeros;

use self::entry::{AWAITS_LAST, AWAITS_NEXT, CHANGED, ENTRY_LEN_BYTES, Entry, UNRECORDED};
pub(crate) use self::pins::Pin;
use self::pins::Pins;
use self::undo::Undo;

/// What may be done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Holds nothing that anyone needs; may be filled.
    Clean,
    /// A head fills it, or will next.
    Open,
    /// Filled. When nothing in it can be reached it is *pending*: clean once a checkpoint that
    /// no longer needs it is durable, or the log tells that it may be filled anew.
    Dirty,
}

/// Pages that can be reached and are no whole blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageCounts {
    /// Those whose blocks are shorter than a page.
    pub(crate) short: u64,
    /// Those that have none, being zeros.
    pub(crate) zero: u64,
    /// Whether they were counted since the volume was made.
    pub(crate) are_exact: bool,
}

/// A segment as it was filled one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) segment: SegmentNo,
    opened: u16,
}

/// Counts of segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// That may be filled.
    pub clean: u32,
    /// That are being filled, or will be next.
    pub open: u32,
    /// That hold something.
    pub dirty: u32,
    /// That hold nothing any more, and wait for a checkpoint.
    pub pending: u32,
}

/// What a segment counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Clean,
    Open,
    Dirty,
    Pending,
}

impl Standing {
    const fn of(entry: &Entry) -> Self {
        match entry.state() {
            SegmentState::Clean => Self::Clean,
            SegmentState::Open => Self::Open,
            SegmentState::Dirty if entry.live_bytes == 0 => Self::Pending,
            SegmentState::Dirty => Self::Dirty,
        }
    }
}

impl SegmentCounts {
    const fn of(&mut self, standing: Standing) -> &mut u32 {
        match standing {
            Standing::Clean => &mut self.clean,
            Standing::Open => &mut self.open,
            Standing::Dirty => &mut self.dirty,
            Standing::Pending => &mut self.pending,
        }
    }
}

/// The table of all segments. Usage is kept exact: at each moment a segment's live bytes are the
/// sum of what the live map refers to in it.
#[derive(Debug)]
pub(crate) struct Segments {
    layout: Layout,
    table: Vec<Entry>,
    /// Segments from this one on have never held anything, and their entries take no memory.
    used_end: u32,
    clean: RoaringBitmap,
    pending: RoaringBitmap,
    /// Those that are marked as unrecorded, in the order in which they became so.
    unrecorded: Vec<u32>,
    /// Live bytes, when the last checkpoint was begun, of those that have changed since.
    frozen: FxHashMap<u32, u32>,
    /// Those in which blocks died of what no record tells: they wait for the checkpoint that begins
    /// next, or for the one that was begun last, as they are marked.
    awaiting_next: Vec<u32>,
    awaiting_last: Vec<u32>,
    /// Segments of payload heads that have become empty, or were when their head had done with
    /// them.
    reclaimable: Vec<SegmentNo>,
    live_bytes: u64,
    /// Of these, the map's nodes.
    node_bytes: u64,
    page_counts: PageCounts,
    counts: SegmentCounts,
    pins: Pins,
    undo: Undo,
}

impl Segments {
    /// All clean.
    pub(crate) fn new(layout: Layout) -> Self {
        let count = layout.segment_count();
        let mut clean = RoaringBitmap::new();
        clean.insert_range(FIRST_LOG_SEGMENT.0..count);
        let table = Entry::new_vec_zeroed(count as usize);
        Self {
            layout,
            table: table.expect("there is memory for the table of segments"),
            used_end: 0,
            counts: SegmentCounts { clean: clean.len() as u32, ..SegmentCounts::default() },
            clean,
            pending: RoaringBitmap::new(),
            unrecorded: Vec::new(),
            frozen: FxHashMap::default(),
            awaiting_next: Vec::new(),
            awaiting_last: Vec::new(),
            reclaimable: Vec::new(),
            live_bytes: 0,
            node_bytes: 0,
            page_counts: PageCounts::default(),
            pins: Pins::new(count),
            undo: Undo::default(),
        }
    }

    /// From here on what changes in the usage of segments by blocks can be undone.
    pub(crate) fn begin(&mut self) {
        self.undo.begin(self.live_bytes, self.page_counts);
    }

    /// What was changed since [`Self::begin`] stays.
    pub(crate) fn settle_changes(&mut self) {
        self.undo.end();
    }

    /// Undoes what blocks have changed in the usage of segments since [`Self::begin`]. Segments that
    /// were opened or closed since stay so.
    pub(crate) fn roll_back(&mut self) {
        let Some((live_bytes, page_counts, entries)) = self.undo.take() else { return };
        for (segment, saved) in entries.into_iter().rev() {
            self.change(segment, |entry| entry.restore_usage(&saved));
        }
        (self.live_bytes, self.page_counts) = (live_bytes, page_counts);
    }

    /// RecordContext what the table takes in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let numbers = self.unrecorded.capacity()
            + self.awaiting_next.capacity()
            + self.awaiting_last.capacity()
            + self.reclaimable.capacity()
            // A bit for each in both sets, at worst.
            + self.table.len() / 16
            // The hash table keeps a byte more for each pair.
            + self.frozen.capacity() * 5 / 2;
        let entries_bytes = self.used_end as usize * ENTRY_LEN_BYTES;
        (entries_bytes + numbers * size_of::<u32>() + self.pins.memory_bytes()) as u64
    }

    pub(crate) const fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes of the map's nodes on the device that the live map refers to.
    pub(crate) const fn node_bytes(&self) -> u64 {
        self.node_bytes
    }

    /// Pages that can be reached and are no whole blocks.
    pub(crate) const fn page_counts(&self) -> PageCounts {
        self.page_counts
    }

    /// What pages of zeros take when they are written.
    pub(crate) fn zero_pages_bytes(&self) -> u64 {
        self.page_counts.zero.saturating_mul(PAGE_SIZE as u64)
    }

    /// What the records beside these take in the log. A count that cannot be is not believed.
    pub(crate) fn short_records_bytes(&self) -> u64 {
        let most = self.live_bytes / GRAIN_SIZE as u64;
        self.page_counts.short.min(most) * WRITE_BLOCK_LEN_BYTES as u64
    }

    /// So many can be reached, as a checkpoint tells.
    pub(crate) const fn restore_page_counts(&mut self, counts: PageCounts) {
        self.page_counts = counts;
    }

    /// What lives in the segment, with the records that it takes where it is moved to.
    pub(crate) fn packed_bytes_of(&self, segment: SegmentNo) -> u32 {
        let entry = &self.table[segment.0 as usize];
        let records_bytes = entry.short_count.saturating_mul(WRITE_BLOCK_LEN_BYTES as u32);
        entry.live_bytes.saturating_add(records_bytes)
    }

    /// So many blocks shorter than a page live in the segment.
    pub(crate) fn set_short_count(&mut self, segment: SegmentNo, count: usize) {
        self.table[segment.0 as usize].short_count = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// The clean segments, those that are taken first in front.
    pub(crate) fn clean_segments(&self) -> Vec<SegmentNo> {
        self.clean.iter().map(SegmentNo).collect()
    }

    pub(crate) const fn clean_count(&self) -> u32 {
        self.counts.clean
    }

    pub(crate) const fn counts(&self) -> SegmentCounts {
        self.counts
    }

    pub(crate) const fn has_pending(&self) -> bool {
        self.counts.pending > 0
    }

    /// Changes a segment and keeps the counts and sets.
    fn change<T>(&mut self, segment: SegmentNo, change: impl FnOnce(&mut Entry) -> T) -> T {
        let entry = &mut self.table[segment.0 as usize];
        let before = Standing::of(entry);
        let result = change(entry);
        let after = Standing::of(entry);
        if before != after {
            self.note_standing(segment, before, after);
        }
        result
    }

    fn note_standing(&mut self, segment: SegmentNo, before: Standing, after: Standing) {
        *self.counts.of(before) -= 1;
        *self.counts.of(after) += 1;
        match before {
            Standing::Clean => self.clean.remove(segment.0),
            Standing::Pending => self.pending.remove(segment.0),
            Standing::Open | Standing::Dirty => false,
        };
        match after {
            Standing::Clean => self.clean.insert(segment.0),
            Standing::Pending => self.pending.insert(segment.0),
            Standing::Open | Standing::Dirty => false,
        };
        self.used_end = self.used_end.max(segment.0 + 1);
    }

    /// Changes how much lives in a segment, and keeps how much did when the last checkpoint was begun.
    fn change_live<T>(&mut self, segment: SegmentNo, change: impl FnOnce(&mut Entry) -> T) -> T {
        let entry = &mut self.table[segment.0 as usize];
        self.undo.note(segment, entry);
        if entry.mark(CHANGED) {
            self.frozen.insert(segment.0, entry.live_bytes);
        }
        self.change(segment, change)
    }

    pub(crate) fn state(&self, segment: SegmentNo) -> SegmentState {
        self.table[segment.0 as usize].state()
    }

    pub(crate) fn usage(&self, segment: SegmentNo) -> Usage {
        let entry = &self.table[segment.0 as usize];
        Usage {
            live_bytes: entry.live_bytes,
            head: entry.head(),
            class: entry.class().number(),
            written_at: entry.written_at(),
        }
    }

    pub(crate) fn head(&self, segment: SegmentNo) -> Head {
        self.table[segment.0 as usize].head()
    }

    /// What the cleaner's policies see of the segment.
    pub(crate) fn policy_view(&self, segment: SegmentNo) -> dendro_policy::Segment {
        self.table[segment.0 as usize].policy_view(segment, self.capacity_bytes())
    }

    /// What a segment has room for.
    const fn capacity_bytes(&self) -> u32 {
        self.layout.segment_size_bytes() as u32
    }

    /// The segment that `addr` lies in, as the cleaner's policies see it.
    pub(crate) fn policy_view_at(&self, addr: Addr) -> dendro_policy::Segment {
        self.policy_view(self.layout.segment_of(addr))
    }

    pub(crate) fn live_bytes_of(&self, segment: SegmentNo) -> u32 {
        self.table[segment.0 as usize].live_bytes
    }

    /// Keeps the segment that `addr` lies in from being filled anew. Called with the map locked,
    /// so that whoever found `addr` in it reads what was meant.
    pub(crate) fn pin(&self, addr: Addr) -> Pin {
        self.pins.pin(self.layout.segment_of(addr))
    }

    /// Takes a clean segment that nobody reads, the lowest: what is used stays together at the
    /// front, and an image file stays short.
    pub(crate) fn open(&mut self, head: Head, class: Class) -> Option<SegmentNo> {
        let is_free = |number: &u32| !self.pins.is_pinned(SegmentNo(*number));
        let segment = SegmentNo(self.clean.iter().find(is_free)?);
        self.take(segment, head);
        let entry = &mut self.table[segment.0 as usize];
        entry.set_policy_view(&dendro_policy::Segment { class, ..Default::default() });
        entry.short_count = 0;
        Some(segment)
    }

    /// Whether more than `count` clean segments can be opened.
    pub(crate) fn has_free(&self, count: usize) -> bool {
        if (self.counts.clean as usize).saturating_sub(self.pins.count_at_most()) > count {
            return true;
        }
        let is_free = |number: &u32| !self.pins.is_pinned(SegmentNo(*number));
        self.clean.iter().filter(is_free).nth(count).is_some()
    }

    /// Takes a segment, whatever state it is in, for a head to fill: recovery continues there.
    pub(crate) fn take(&mut self, segment: SegmentNo, head: Head) {
        self.change(segment, |entry| {
            entry.set_state(SegmentState::Open);
            entry.set_head(head);
            entry.opened = entry.opened.wrapping_add(1);
        });
    }

    /// A head has done with the segment.
    pub(crate) fn close(&mut self, segment: SegmentNo) {
        let is_empty = self.change(segment, |entry| {
            entry.set_state(SegmentState::Dirty);
            entry.live_bytes == 0
        });
        if is_empty {
            self.note_empty(segment);
        }
    }

    /// Nothing in the segment can be reached any more.
    fn note_empty(&mut self, segment: SegmentNo) {
        let entry = &self.table[segment.0 as usize];
        let is_recorded =
            entry.head() == Head::Payload && !entry.is_marked(AWAITS_NEXT | AWAITS_LAST);
        if is_recorded && entry.state() == SegmentState::Dirty {
            self.reclaimable.push(segment);
        }
    }

    /// A checkpoint begins. The segments that nothing in the live map refers to and no head fills.
    pub(crate) fn freeze(&mut self) -> Vec<Generation> {
        for number in std::mem::take(&mut self.frozen).into_keys() {
            self.table[number as usize].unmark(CHANGED);
        }
        for number in std::mem::take(&mut self.awaiting_next) {
            let entry = &mut self.table[number as usize];
            entry.unmark(AWAITS_NEXT);
            if entry.mark(AWAITS_LAST) {
                self.awaiting_last.push(number);
            }
        }
        self.pending.iter().map(|number| self.generation(SegmentNo(number))).collect()
    }

    /// What the map of the checkpoint begun last refers to in the segment, whatever fills it now.
    pub(crate) fn frozen_bytes_of(&self, segment: SegmentNo) -> u32 {
        self.frozen.get(&segment.0).copied().unwrap_or_else(|| self.live_bytes_of(segment))
    }

    /// The checkpoint begun last is durable.
    pub(crate) fn note_settled(&mut self) {
        for number in std::mem::take(&mut self.awaiting_last) {
            self.table[number as usize].unmark(AWAITS_LAST);
        }
    }

    /// Whether nothing lives in the segment, and a checkpoint, or the log, has yet to make it clean.
    pub(crate) fn is_pending(&self, segment: SegmentNo) -> bool {
        Standing::of(&self.table[segment.0 as usize]) == Standing::Pending
    }

    fn generation(&self, segment: SegmentNo) -> Generation {
        Generation { segment, opened: self.table[segment.0 as usize].opened }
    }

    /// Whether nobody has begun to fill the segment since, which was empty.
    pub(crate) fn is_still_pending(&self, generation: Generation) -> bool {
        self.is_pending(generation.segment) && self.generation(generation.segment) == generation
    }

    /// Segments of payload heads that have become empty since the last call, by what records tell.
    pub(crate) fn take_reclaimable(&mut self) -> Vec<Generation> {
        let reclaimable = std::mem::take(&mut self.reclaimable);
        // One that a change reclaimable which was undone is named once more when it is empty again.
        let reclaimable: BTreeSet<_> = reclaimable.into_iter().collect();
        let reclaimable = reclaimable.into_iter().filter(|&segment| self.is_pending(segment));
        reclaimable.map(|segment| self.generation(segment)).collect()
    }

    /// Something else makes these clean, given in their order.
    pub(crate) fn forget_reclaimable(&mut self, segments: &[SegmentNo]) {
        self.reclaimable.retain(|segment| segments.binary_search(segment).is_err());
    }

    /// How many these are, about.
    pub(crate) const fn reclaimable_count(&self) -> usize {
        self.reclaimable.len()
    }

    /// A block of the segment at `addr` dies of what no record tells: after a crash it lives again,
    /// unless a checkpoint that begins later is durable.
    pub(crate) fn await_checkpoint(&mut self, addr: Addr) {
        let segment = self.layout.segment_of(addr);
        if self.table[segment.0 as usize].mark(AWAITS_NEXT) {
            self.awaiting_next.push(segment.0);
        }
    }

    /// Neither a checkpoint nor the log behind it needs the segment any more.
    ///
    /// # Panics
    /// When something in it can be reached, or a head fills it: filling it anew would lose data.
    pub(crate) fn set_clean(&mut self, segment: SegmentNo) {
        self.change(segment, |entry| {
            let is_pending = Standing::of(entry) == Standing::Pending;
            assert!(is_pending, "segment {segment} is still needed");
            entry.set_state(SegmentState::Clean);
        });
    }

    /// Sets a segment's usage, as a checkpoint tells it.
    pub(crate) fn restore(&mut self, segment: SegmentNo, usage: &Usage) {
        let before = self.live_bytes_of(segment);
        self.live_bytes = self.live_bytes - u64::from(before) + u64::from(usage.live_bytes);
        let nodes_of =
            |head: Head, bytes: u32| if head == Head::Map { u64::from(bytes) } else { 0 };
        self.node_bytes = self.node_bytes.saturating_sub(nodes_of(self.head(segment), before))
            + nodes_of(usage.head, usage.live_bytes);
        // When it was filled and lost blocks is not kept; this is the best guess.
        let statistics = dendro_policy::Segment {
            live_bytes: usage.live_bytes,
            class: Class::from_number(usage.class),
            written_at: usage.written_at,
            filled_at: usage.written_at,
            last_death: usage.written_at,
            ..self.policy_view(segment)
        };
        self.change(segment, |entry| {
            entry.set_head(usage.head);
            entry.set_policy_view(&statistics);
            entry.set_state(match entry.state() {
                _ if usage.live_bytes > 0 => SegmentState::Dirty,
                SegmentState::Dirty => SegmentState::Clean,
                other => other,
            });
        });
    }

    /// A block can be reached now, at `clock`, that its client wrote at `written_at`.
    pub(crate) fn block_added(&mut self, block: &PageRef, written_at: u64, clock: u64) {
        self.page_counts.zero += u64::from(block.len_bytes == 0);
        if let Some(entry) = self.entry_of_short(block) {
            entry.short_count += 1;
            self.page_counts.short += 1;
        }
        self.bytes_added(block.addr, block.footprint_bytes(), written_at, clock);
    }

    /// A block cannot be reached any more, at `clock`.
    pub(crate) fn block_freed(&mut self, block: &PageRef, clock: u64) {
        let zeros = u64::from(block.len_bytes == 0);
        self.page_counts.zero = self.page_counts.zero.saturating_sub(zeros);
        if let Some(entry) = self.entry_of_short(block) {
            entry.short_count = entry.short_count.saturating_sub(1);
            self.page_counts.short = self.page_counts.short.saturating_sub(1);
        }
        self.bytes_freed(block.addr, block.footprint_bytes(), clock);
    }

    /// The segment of a block, if that is shorter than a page.
    fn entry_of_short(&mut self, block: &PageRef) -> Option<&mut Entry> {
        let is_short = (1..PAGE_SIZE).contains(&usize::from(block.len_bytes));
        let segment = is_short.then(|| self.layout.segment_of(block.addr))?;
        let entry = &mut self.table[segment.0 as usize];
        self.undo.note(segment, entry);
        Some(entry)
    }

    pub(crate) fn node_added(&mut self, node: &NodePtr, clock: u64) {
        self.node_bytes += u64::from(node_footprint_bytes(node));
        self.bytes_added(node.addr, node_footprint_bytes(node), clock, clock);
    }

    pub(crate) fn node_freed(&mut self, node: &NodePtr, clock: u64) {
        self.node_bytes = self.node_bytes.saturating_sub(u64::from(node_footprint_bytes(node)));
        self.bytes_freed(node.addr, node_footprint_bytes(node), clock);
    }

    fn bytes_added(&mut self, addr: Addr, len_bytes: u32, written_at: u64, clock: u64) {
        if len_bytes == 0 {
            return;
        }
        let segment = self.layout.segment_of(addr);
        let capacity_bytes = self.capacity_bytes();
        self.change_live(segment, |entry| {
            let mut statistics = entry.policy_view(segment, capacity_bytes);
            statistics.add(len_bytes, written_at, clock);
            entry.set_policy_view(&statistics);
        });
        self.live_bytes += u64::from(len_bytes);
        self.mark_unrecorded(segment);
    }

    fn bytes_freed(&mut self, addr: Addr, len_bytes: u32, clock: u64) {
        if len_bytes == 0 {
            return;
        }
        let segment = self.layout.segment_of(addr);
        let capacity_bytes = self.capacity_bytes();
        let freed_bytes = self.change_live(segment, |entry| {
            // Only an image that was made to deceive can get below zero; the checker tells.
            let freed_bytes = len_bytes.min(entry.live_bytes);
            let mut statistics = entry.policy_view(segment, capacity_bytes);
            statistics.remove(freed_bytes, clock);
            entry.set_policy_view(&statistics);
            freed_bytes
        });
        if self.live_bytes_of(segment) == 0 {
            self.note_empty(segment);
        }
        self.live_bytes -= u64::from(freed_bytes);
        self.mark_unrecorded(segment);
    }

    /// Says what a segment was filled with, when its partial segments tell and nothing else does.
    pub(crate) fn set_class(&mut self, segment: SegmentNo, head: Head, class: Class) {
        let entry = &mut self.table[segment.0 as usize];
        entry.set_head(head);
        entry.set_class(class);
    }

    /// After recovery: whatever holds something is not clean, whichever head filled it, and what is
    /// empty waits for a checkpoint.
    pub(crate) fn settle(&mut self) {
        self.reclaimable.clear();
        for segment in self.layout.log_segments() {
            let entry = &self.table[segment.0 as usize];
            if entry.live_bytes > 0 && entry.state() == SegmentState::Clean {
                self.close(segment);
            }
        }
    }

    /// Whether someone reads the segment now.
    pub(crate) fn is_pinned(&self, segment: SegmentNo) -> bool {
        self.pins.is_pinned(segment)
    }

    /// The usage records of all segments are up to date.
    pub(crate) fn note_recorded(&mut self) {
        for number in std::mem::take(&mut self.unrecorded) {
            self.table[number as usize].unmark(UNRECORDED);
        }
    }

    pub(crate) fn unrecorded(&self) -> &[u32] {
        &self.unrecorded
    }

    pub(crate) fn mark_unrecorded(&mut self, segment: SegmentNo) {
        if self.table[segment.0 as usize].mark(UNRECORDED) {
            self.unrecorded.push(segment.0);
        }
    }
}

pub(crate) fn node_footprint_bytes(node: &NodePtr) -> u32 {
    align_up(u64::from(node.len_bytes), GRAIN_SIZE as u64) as u32
}
