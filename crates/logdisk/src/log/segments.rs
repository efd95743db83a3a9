//! The table of segments: the state of each segment, its live bytes, and whether somebody reads it.
//!
//! Invariants:
//! 1. A segment's live bytes are at each moment the sum of what the live map refers to in it.
//! 2. A segment is filled again only when nobody reads it, and when it was empty at the freeze of a
//!    checkpoint that is durable, or when a durable partial segment states that what emptied it is
//!    durable.
//! 3. While a state is held, only segments become clean that were empty at its freeze.

mod backed;
mod discard;
mod entry;
mod grow;
mod hold;
mod mirror;
mod pins;
mod preferred;
mod retire;
mod shrink;
mod state;
#[cfg(test)]
mod tests;
mod tiers;
mod undo;

use std::collections::BTreeSet;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::layout::FIRST_LOG_SEGMENT;
use dendro_format::record::WRITE_BLOCK_LEN_BYTES;
use dendro_format::{Addr, Head, Layout, NodePtr, PageRef, SegmentNo, Usage};
use dendro_policy::Class;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use zerocopy::FromZeros;

use self::backed::Backed;
pub(crate) use self::backed::Surplus;
use self::entry::{AWAITS_LAST, AWAITS_NEXT, CHANGED, ENTRY_LEN_BYTES, Entry, UNRECORDED};
pub(crate) use self::grow::NewTable;
pub(crate) use self::hold::{FrozenSegments, Hold};
pub(crate) use self::pins::Pin;
use self::pins::Pins;
pub(crate) use self::state::PageCounts;
pub use self::state::SegmentState;
pub(crate) use self::tiers::{FastCounts, Tiers};
use self::undo::Undo;
use super::mirrors::Mirrors;

/// One use of a segment, from when it is opened until it becomes clean again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    segment: SegmentNo,
    opened: u16,
}

impl Generation {
    pub(crate) const fn segment(&self) -> SegmentNo {
        self.segment
    }
}

/// Counts of segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Segments that may be filled.
    pub clean: u32,
    /// Segments that are being filled, or will be filled next.
    pub open: u32,
    /// Segments that hold live bytes.
    pub dirty: u32,
    /// Segments that were filled and hold nothing live; they wait until they may become clean.
    pub pending: u32,
    /// Segments that are never filled again, because the device could not write them or because
    /// parts of such segments lie in them; and those that a volume gives up that becomes shorter.
    pub retired: u32,
    /// Segments that mirror segments of the map.
    pub mirror: u32,
}

/// The state that a segment is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Clean,
    Open,
    Dirty,
    Pending,
    Retired,
    Mirror,
}

impl Standing {
    const fn of(entry: &Entry, is_given_up: bool) -> Self {
        match entry.state() {
            SegmentState::Clean if is_given_up => Self::Retired,
            SegmentState::Clean => Self::Clean,
            SegmentState::Open => Self::Open,
            SegmentState::Dirty if entry.live_bytes == 0 => Self::Pending,
            SegmentState::Dirty => Self::Dirty,
            SegmentState::Retired => Self::Retired,
            SegmentState::Mirror => Self::Mirror,
        }
    }

    const fn count_in(self, counts: &mut SegmentCounts) -> &mut u32 {
        match self {
            Self::Clean => &mut counts.clean,
            Self::Open => &mut counts.open,
            Self::Dirty => &mut counts.dirty,
            Self::Pending => &mut counts.pending,
            Self::Retired => &mut counts.retired,
            Self::Mirror => &mut counts.mirror,
        }
    }
}

/// The table of all segments.
#[derive(Debug)]
pub(crate) struct Segments {
    layout: Layout,
    table: Vec<Entry>,
    /// Segments from this one on have never held anything, and their entries take no memory.
    used_end: u32,
    /// Segments from this one on are given up.
    end: u32,
    /// Those of them in which something is needed.
    leaving: RoaringBitmap,
    clean: RoaringBitmap,
    /// Those of them for which the device is likely to have storage.
    backed: Backed,
    tiers: Tiers,
    pending: RoaringBitmap,
    /// The segments that become retired when they would become clean, and those that are.
    retired: RoaringBitmap,
    mirrors: Mirrors,
    /// The segments marked [`UNRECORDED`], in the order in which they were marked.
    unrecorded: Vec<u32>,
    /// The live bytes at the last freeze, of the segments whose live bytes have changed since.
    frozen: FxHashMap<u32, u32>,
    /// The segments in which blocks were freed without a record in the log, by their marks: those
    /// that wait for the checkpoint that begins next, and those that wait for the one that began
    /// last.
    awaiting_next: Vec<u32>,
    awaiting_last: Vec<u32>,
    /// Segments of payload streams that became empty after their stream had closed them, or were
    /// empty when it closed them.
    reclaimable: Vec<SegmentNo>,
    live_bytes: u64,
    /// The part of the live bytes that are nodes of the map.
    node_bytes: u64,
    page_counts: PageCounts,
    counts: SegmentCounts,
    /// Clean segments that are not filled for the time being: those that are being discarded or
    /// written ahead.
    withheld_count: u32,
    pins: Pins,
    /// The newest hold, which may have ended.
    hold: Option<Hold>,
    undo: Undo,
}

impl Segments {
    /// A table in which all segments are clean.
    pub(crate) fn new(layout: Layout) -> Self {
        let count = layout.segment_count();
        let mut clean = RoaringBitmap::new();
        clean.insert_range(FIRST_LOG_SEGMENT.0..count);
        let table = Entry::new_vec_zeroed(count as usize);
        Self {
            layout,
            table: table.expect("there is memory for the table of segments"),
            used_end: 0,
            end: count,
            leaving: RoaringBitmap::new(),
            counts: SegmentCounts { clean: clean.len() as u32, ..SegmentCounts::default() },
            clean,
            backed: Backed::default(),
            tiers: Tiers::default(),
            pending: RoaringBitmap::new(),
            retired: RoaringBitmap::new(),
            mirrors: Mirrors::default(),
            unrecorded: Vec::new(),
            frozen: FxHashMap::default(),
            awaiting_next: Vec::new(),
            awaiting_last: Vec::new(),
            reclaimable: Vec::new(),
            live_bytes: 0,
            node_bytes: 0,
            page_counts: PageCounts::default(),
            withheld_count: 0,
            pins: Pins::new(count),
            hold: None,
            undo: Undo::default(),
        }
    }

    /// Begins a change: from here on, what blocks change in the usage of segments can be undone.
    pub(crate) fn begin(&mut self) {
        self.undo.begin(self.live_bytes, self.page_counts);
    }

    /// Makes permanent what was changed since [`Self::begin`].
    pub(crate) fn settle_changes(&mut self) {
        self.undo.end();
    }

    /// Undoes what blocks have changed in the usage of segments since [`Self::begin`]. Segments
    /// that were opened or closed since then stay so.
    pub(crate) fn roll_back(&mut self) {
        let Some((live_bytes, page_counts, entries)) = self.undo.take() else { return };
        for (segment, saved) in entries.into_iter().rev() {
            self.change(segment, |entry| entry.restore_usage(&saved));
        }
        (self.live_bytes, self.page_counts) = (live_bytes, page_counts);
    }

    /// The approximate memory that the table takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let numbers = self.unrecorded.capacity()
            + self.awaiting_next.capacity()
            + self.awaiting_last.capacity()
            + self.reclaimable.capacity()
            // Each of the two sets takes a bit for each segment at worst.
            + self.table.len() / 16
            // The hash table takes one byte more for each pair.
            + self.frozen.capacity() * 5 / 2;
        let entries_bytes = self.used_end as usize * ENTRY_LEN_BYTES;
        let backed_bytes = self.backed.memory_bytes(self.table.len());
        (entries_bytes + numbers * size_of::<u32>() + self.pins.memory_bytes() + backed_bytes)
            as u64
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

    /// The live pages that are not whole blocks.
    pub(crate) const fn page_counts(&self) -> PageCounts {
        self.page_counts
    }

    /// The bytes that the pages of zeros would take if they were written.
    pub(crate) fn zero_pages_bytes(&self) -> u64 {
        self.page_counts.zero.saturating_mul(PAGE_SIZE as u64)
    }

    /// The bytes that the records of short blocks take in the log, one for each page of a frame.
    /// The count is limited to what the live bytes allow, because a checkpoint may be damaged.
    pub(crate) fn short_records_bytes(&self) -> u64 {
        let most = self.live_bytes / GRAIN_SIZE as u64 * CHUNK_PAGES;
        self.page_counts.short.min(most) * WRITE_BLOCK_LEN_BYTES as u64
    }

    /// Sets the page counts to what a checkpoint states.
    pub(crate) const fn restore_page_counts(&mut self, counts: PageCounts) {
        self.page_counts = counts;
    }

    /// The segment's live bytes, and the bytes of the records that its short blocks need where they
    /// are moved to.
    pub(crate) fn packed_bytes_of(&self, segment: SegmentNo) -> u32 {
        let entry = &self.table[segment.0 as usize];
        let records_bytes = entry.short_count.saturating_mul(WRITE_BLOCK_LEN_BYTES as u32);
        entry.live_bytes.saturating_add(records_bytes)
    }

    /// Sets how many live blocks of the segment are shorter than a page.
    pub(crate) fn set_short_count(&mut self, segment: SegmentNo, count: usize) {
        self.table[segment.0 as usize].short_count = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// The clean segments, in the order in which they are opened.
    pub(crate) fn clean_segments(&self) -> Vec<SegmentNo> {
        self.clean.iter().map(SegmentNo).collect()
    }

    /// The clean segments that may be filled. Those that are being discarded or written ahead are
    /// not counted: whoever relied on them would have to wait for the device.
    pub(crate) const fn clean_count(&self) -> u32 {
        self.counts.clean.saturating_sub(self.withheld_count)
    }

    /// The segments by state; as clean count those that [`Self::clean_count`] counts.
    pub(crate) const fn counts(&self) -> SegmentCounts {
        SegmentCounts { clean: self.clean_count(), ..self.counts }
    }

    pub(crate) const fn has_pending(&self) -> bool {
        self.counts.pending > 0
    }

    /// Changes a segment, and keeps the counts and sets up to date.
    fn change<T>(&mut self, segment: SegmentNo, change: impl FnOnce(&mut Entry) -> T) -> T {
        let is_given_up = self.is_given_up(segment);
        let entry = &mut self.table[segment.0 as usize];
        let before = Standing::of(entry, is_given_up);
        let result = change(entry);
        let after = Standing::of(entry, is_given_up);
        if before != after {
            self.note_standing(segment, before, after);
        }
        result
    }

    fn note_standing(&mut self, segment: SegmentNo, before: Standing, after: Standing) {
        *before.count_in(&mut self.counts) -= 1;
        *after.count_in(&mut self.counts) += 1;
        match before {
            Standing::Clean => {
                self.backed.remove(segment.0);
                self.clean.remove(segment.0)
            }
            Standing::Pending => self.pending.remove(segment.0),
            Standing::Open | Standing::Dirty | Standing::Retired | Standing::Mirror => false,
        };
        match after {
            Standing::Clean => {
                self.backed.insert(segment.0);
                self.clean.insert(segment.0)
            }
            Standing::Pending => self.pending.insert(segment.0),
            Standing::Retired => self.leaving.remove(segment.0),
            Standing::Open | Standing::Dirty | Standing::Mirror => false,
        };
        self.used_end = self.used_end.max(segment.0 + 1);
    }

    /// Changes the live bytes of a segment, and records what they were at the last freeze.
    fn change_live<T>(&mut self, segment: SegmentNo, change: impl FnOnce(&mut Entry) -> T) -> T {
        let entry = &mut self.table[segment.0 as usize];
        self.undo.note(segment, entry);
        if entry.mark(CHANGED) {
            self.frozen.insert(segment.0, entry.live_bytes);
        }
        let was_empty = entry.live_bytes == 0;
        let result = change(entry);
        // Nothing else that is counted depends on live bytes.
        if entry.state() == SegmentState::Dirty && was_empty != (entry.live_bytes == 0) {
            let (full, empty) = (Standing::Dirty, Standing::Pending);
            let (before, after) = if was_empty { (empty, full) } else { (full, empty) };
            self.note_standing(segment, before, after);
        }
        result
    }

    pub(crate) fn state(&self, segment: SegmentNo) -> SegmentState {
        match self.table[segment.0 as usize].state() {
            SegmentState::Clean if self.is_given_up(segment) => SegmentState::Retired,
            state => state,
        }
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

    /// The segment as the cleaner's policies see it.
    pub(crate) fn policy_view(&self, segment: SegmentNo) -> dendro_policy::Segment {
        self.table[segment.0 as usize].policy_view(segment, self.capacity_bytes())
    }

    /// The bytes that a segment has room for.
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

    /// Pins the segment that `addr` lies in, so that it is not filled again (segments invariant 2).
    /// The caller holds the engine's lock, so that `addr` is still in use when the pin takes
    /// effect.
    pub(crate) fn pin(&self, addr: Addr) -> Pin {
        self.pins.pin(self.layout.segment_of(addr))
    }

    /// Opens the lowest clean segment that nobody reads (segments invariant 2) and that is backed;
    /// without any, the lowest clean one. The lowest one is taken so that the used segments stay
    /// together at the front and an image file stays short. Where there are tiers, a segment is
    /// taken of the one that this stream and class prefer, if it has any.
    pub(crate) fn open(&mut self, head: Head, class: Class) -> Option<SegmentNo> {
        let is_free = |number: &u32| !self.pins.is_pinned(SegmentNo(*number));
        let first = |of: &RoaringBitmap| of.iter().find(is_free);
        let preferred = |of| self.preferred(of, head, class).as_ref().and_then(first);
        let segment = preferred(&self.backed.all)
            .or_else(|| preferred(&self.clean))
            .or_else(|| first(&self.backed.all))
            .or_else(|| first(&self.clean))?;
        let is_backed = self.backed.all.contains(segment);
        let segment = SegmentNo(segment);
        self.backed.note_opened(is_backed);
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

    /// Opens a segment in whatever state it is. Recovery continues in such a segment.
    pub(crate) fn take(&mut self, segment: SegmentNo, head: Head) {
        self.change(segment, |entry| {
            entry.set_state(SegmentState::Open);
            entry.set_head(head);
            entry.opened = entry.opened.wrapping_add(1);
        });
    }

    /// Closes a segment that its stream has finished with.
    pub(crate) fn close(&mut self, segment: SegmentNo) {
        let is_empty = self.change(segment, |entry| {
            entry.set_state(SegmentState::Dirty);
            entry.live_bytes == 0
        });
        if is_empty {
            self.note_empty(segment);
        }
    }

    /// Notes that nothing in the segment is live any more.
    fn note_empty(&mut self, segment: SegmentNo) {
        let entry = &self.table[segment.0 as usize];
        let is_logged =
            entry.head() == Head::Payload && !entry.is_marked(AWAITS_NEXT | AWAITS_LAST);
        if is_logged && entry.state() == SegmentState::Dirty {
            self.reclaimable.push(segment);
        }
    }

    /// Begins a checkpoint. Returns the pending segments: the checkpoint does not refer to them.
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

    /// Begins to hold a state (segments invariant 3): that of the checkpoint which the caller
    /// begins next. `None`: one is held already.
    pub(crate) fn begin_hold(&mut self) -> Option<Hold> {
        if self.is_held() {
            return None;
        }
        Some(self.hold.insert(Hold::default()).clone())
    }

    /// Whether a state is held.
    pub(crate) fn is_held(&self) -> bool {
        self.hold.as_ref().is_some_and(Hold::is_held)
    }

    /// Gives up the state that is held.
    pub(crate) fn end_hold(&self) {
        self.hold.iter().for_each(Hold::end);
    }

    /// What belongs to the state at this moment, apart from where streams continue.
    pub(crate) fn frozen(&self) -> FrozenSegments {
        FrozenSegments::new(&self.clean | &self.pending)
    }

    /// The bytes that the map of the last frozen checkpoint refers to in the segment, whatever
    /// fills the segment now.
    pub(crate) fn frozen_bytes_of(&self, segment: SegmentNo) -> u32 {
        self.frozen.get(&segment.0).copied().unwrap_or_else(|| self.live_bytes_of(segment))
    }

    /// Notes that the checkpoint that began last is durable.
    pub(crate) fn note_settled(&mut self) {
        self.backed.note_checkpoint();
        for number in std::mem::take(&mut self.awaiting_last) {
            self.table[number as usize].unmark(AWAITS_LAST);
        }
    }

    /// Whether nothing in the segment is live, and it waits until a checkpoint or the log makes it
    /// clean.
    pub(crate) fn is_pending(&self, segment: SegmentNo) -> bool {
        Standing::of(&self.table[segment.0 as usize], false) == Standing::Pending
    }

    /// The generation of the segment that `addr` lies in.
    pub(crate) fn generation_at(&self, addr: Addr) -> Generation {
        self.generation(self.layout.segment_of(addr))
    }

    fn generation(&self, segment: SegmentNo) -> Generation {
        Generation { segment, opened: self.table[segment.0 as usize].opened }
    }

    /// Whether the segment is still pending and has not been opened since `generation`.
    pub(crate) fn is_still_pending(&self, generation: Generation) -> bool {
        self.is_pending(generation.segment) && self.generation(generation.segment) == generation
    }

    /// The segments of payload streams that became empty since the last call, where the log has a
    /// record of everything that emptied them.
    pub(crate) fn take_reclaimable(&mut self) -> Vec<Generation> {
        let reclaimable = std::mem::take(&mut self.reclaimable);
        // A segment that a change emptied is entered again if that change was undone and a later
        // one empties it.
        let reclaimable: BTreeSet<_> = reclaimable.into_iter().collect();
        let reclaimable = reclaimable.into_iter().filter(|&segment| self.is_pending(segment));
        reclaimable.map(|segment| self.generation(segment)).collect()
    }

    /// Removes these segments, which are sorted, because a checkpoint makes them clean.
    pub(crate) fn forget_reclaimable(&mut self, segments: &[SegmentNo]) {
        self.reclaimable.retain(|segment| segments.binary_search(segment).is_err());
    }

    /// The number of reclaimable segments; some may be counted twice or have come into use again.
    pub(crate) const fn reclaimable_count(&self) -> usize {
        self.reclaimable.len()
    }

    /// Marks the segment of a block that is freed without a record in the log. After a crash the
    /// block is live again, unless a checkpoint that begins later is durable. So the segment waits
    /// for such a checkpoint.
    pub(crate) fn await_checkpoint(&mut self, addr: Addr) {
        let segment = self.layout.segment_of(addr);
        if self.table[segment.0 as usize].mark(AWAITS_NEXT) {
            self.awaiting_next.push(segment.0);
        }
    }

    /// Makes a segment clean, or retires it, that neither a checkpoint nor the log behind it needs
    /// (segments invariant 2).
    ///
    /// # Panics
    /// If something in the segment is live, or a stream fills it: filling it again would lose data.
    pub(crate) fn set_clean(&mut self, segment: SegmentNo) {
        let state = self.state_when_clean(segment);
        self.change(segment, |entry| {
            let is_pending = Standing::of(entry, false) == Standing::Pending;
            assert!(is_pending, "segment {segment} is still needed");
            entry.set_state(state);
        });
        self.release_mirror(segment);
    }

    /// Sets a segment's usage to what a checkpoint states.
    pub(crate) fn restore(&mut self, segment: SegmentNo, usage: &Usage) {
        let before = self.live_bytes_of(segment);
        // If a checkpoint has filled a segment anew that was emptied meanwhile, the record states
        // what was in it, too. A forged one may state more, and space would lack without end.
        let most = 2 * self.layout().segment_size_bytes();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let usage = &Usage { live_bytes: usage.live_bytes.min(most), ..*usage };
        self.live_bytes = self.live_bytes - u64::from(before) + u64::from(usage.live_bytes);
        let nodes_of =
            |head: Head, bytes: u32| if head == Head::Map { u64::from(bytes) } else { 0 };
        self.node_bytes = self.node_bytes.saturating_sub(nodes_of(self.head(segment), before))
            + nodes_of(usage.head, usage.live_bytes);
        // A usage record does not store when the segment was filled and when it lost blocks. The
        // time of writing is the best estimate.
        let statistics = dendro_policy::Segment {
            live_bytes: usage.live_bytes,
            class: Class::from_number(usage.class),
            written_at: usage.written_at,
            filled_at: usage.written_at,
            last_death: usage.written_at,
            ..self.policy_view(segment)
        };
        let when_clean = self.state_when_clean(segment);
        self.change(segment, |entry| {
            entry.set_head(usage.head);
            entry.set_policy_view(&statistics);
            entry.set_state(match entry.state() {
                _ if usage.live_bytes > 0 => SegmentState::Dirty,
                SegmentState::Dirty => when_clean,
                other => other,
            });
        });
    }

    /// Adds a block that is live from `clock` on and that its client wrote at `written_at`.
    pub(crate) fn block_added(&mut self, block: &PageRef, written_at: u64, clock: u64) {
        self.count_page(block, block.footprint_bytes());
        self.bytes_added(block.addr, block.footprint_bytes(), written_at, clock);
    }

    /// Adds a page of a frame of which another page has been added.
    pub(crate) fn page_joined(&mut self, page: &PageRef) {
        self.count_page(page, 0);
    }

    fn count_page(&mut self, page: &PageRef, block_bytes: u32) {
        self.page_counts.zero += u64::from(page.len_bytes == 0);
        self.page_counts.compressed.add(page, block_bytes);
        if let Some(entry) = self.entry_of_short(page) {
            entry.short_count += 1;
            self.page_counts.short += 1;
        }
    }

    /// Subtracts a block that is no longer live from `clock` on.
    pub(crate) fn block_freed(&mut self, block: &PageRef, clock: u64) {
        self.uncount_page(block, block.footprint_bytes());
        self.bytes_freed(block.addr, block.footprint_bytes(), clock);
    }

    /// Subtracts a page of a frame of which another page is left.
    pub(crate) fn page_left(&mut self, page: &PageRef) {
        self.uncount_page(page, 0);
    }

    fn uncount_page(&mut self, page: &PageRef, block_bytes: u32) {
        let zeros = u64::from(page.len_bytes == 0);
        self.page_counts.zero = self.page_counts.zero.saturating_sub(zeros);
        self.page_counts.compressed.subtract(page, block_bytes);
        if let Some(entry) = self.entry_of_short(page) {
            entry.short_count = entry.short_count.saturating_sub(1);
            self.page_counts.short = self.page_counts.short.saturating_sub(1);
        }
    }

    /// The entry of the segment of a page whose block has a record of its own.
    fn entry_of_short(&mut self, block: &PageRef) -> Option<&mut Entry> {
        let segment = block.is_short().then(|| self.layout.segment_of(block.addr))?;
        let entry = &mut self.table[segment.0 as usize];
        self.undo.note(segment, entry);
        Some(entry)
    }

    pub(crate) fn node_added(&mut self, node: &NodePtr, clock: u64) {
        self.node_bytes += u64::from(node_footprint_bytes(node));
        self.bytes_added(node.addr, node_footprint_bytes(node), clock, clock);
    }

    pub(crate) fn node_freed(&mut self, node: &NodePtr, clock: u64) {
        // The log has no record of what frees a node. A payload stream may have filled the segment
        // of a node if the log was rolled forward from an older checkpoint.
        if self.head(self.layout.segment_of(node.addr)) == Head::Payload {
            self.await_checkpoint(node.addr);
        }
        self.node_bytes = self.node_bytes.saturating_sub(u64::from(node_footprint_bytes(node)));
        self.bytes_freed(node.addr, node_footprint_bytes(node), clock);
    }

    fn bytes_added(&mut self, addr: Addr, len_bytes: u32, written_at: u64, clock: u64) {
        if len_bytes == 0 {
            return;
        }
        let segment = self.layout.segment_of(addr);
        self.change_live(segment, |entry| entry.add(len_bytes, written_at, clock));
        self.live_bytes += u64::from(len_bytes);
        self.mark_unrecorded(segment);
    }

    fn bytes_freed(&mut self, addr: Addr, len_bytes: u32, clock: u64) {
        if len_bytes == 0 {
            return;
        }
        let segment = self.layout.segment_of(addr);
        let freed_bytes = self.change_live(segment, |entry| {
            // Only a forged image can make this negative; the verifier reports it.
            let freed_bytes = len_bytes.min(entry.live_bytes);
            entry.remove(freed_bytes, clock);
            freed_bytes
        });
        if self.live_bytes_of(segment) == 0 {
            self.note_empty(segment);
        }
        self.live_bytes -= u64::from(freed_bytes);
        self.mark_unrecorded(segment);
    }

    /// Sets a segment's stream and class, which only its partial segments state.
    pub(crate) fn set_class(&mut self, segment: SegmentNo, head: Head, class: Class) {
        let entry = &mut self.table[segment.0 as usize];
        entry.set_head(head);
        entry.set_class(class);
    }

    /// Ends recovery: each segment with live bytes is closed, whichever stream filled it, and each
    /// empty segment waits for a checkpoint.
    pub(crate) fn settle(&mut self) {
        self.reclaimable.clear();
        for segment in self.layout.log_segments() {
            let entry = &self.table[segment.0 as usize];
            let is_unfilled = matches!(entry.state(), SegmentState::Clean | SegmentState::Retired);
            if entry.live_bytes > 0 && is_unfilled {
                self.close(segment);
            }
        }
    }

    /// Whether somebody reads the segment, or its mirror, now.
    pub(crate) fn is_pinned(&self, segment: SegmentNo) -> bool {
        let mirror = self.mirrors.of(segment);
        self.pins.is_pinned(segment) || mirror.is_some_and(|mirror| self.pins.is_pinned(mirror))
    }

    /// Notes that the usage records of the first `count` of [`Self::unrecorded`] are up to date.
    pub(crate) fn note_recorded(&mut self, count: usize) {
        for number in self.unrecorded.drain(..count) {
            self.table[number as usize].unmark(UNRECORDED);
        }
    }

    /// The segments whose usage record in the map is out of date.
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
