//! The segments: what state each is in, how much of it can be reached, who reads it now.

use std::collections::BTreeSet;

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};
use dendro_format::record::WRITE_BLOCK_LEN_BYTES;
use dendro_format::{Addr, Head, Layout, NodePtr, PageRef, SegmentNo, Usage};
use dendro_policy::Class;

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

#[derive(Clone, Copy, Debug)]
struct Segment {
    state: SegmentState,
    head: Head,
    /// How often a head has begun to fill it.
    opened: u32,
    /// Blocks in it died of what no record tells: it waits for the checkpoint of this freeze.
    held_until: u64,
    /// Live bytes when the last checkpoint was begun: as many its map refers to.
    frozen_bytes: u32,
    /// Whether its usage record in the map is out of date.
    is_unrecorded: bool,
    /// Blocks shorter than a page that live in it, as far as is known: each takes a record too, where
    /// it is moved to.
    short_count: u32,
    /// What the cleaner's policies see of it.
    figures: dendro_policy::Segment,
}

/// A segment as it was filled one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filling {
    pub(crate) segment: SegmentNo,
    opened: u32,
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

impl SegmentCounts {
    const fn of(&mut self, segment: &Segment) -> &mut u32 {
        match segment.state {
            SegmentState::Clean => &mut self.clean,
            SegmentState::Open => &mut self.open,
            SegmentState::Dirty if segment.figures.live_bytes == 0 => &mut self.pending,
            SegmentState::Dirty => &mut self.dirty,
        }
    }
}

/// The table of all segments. Usage is kept exact: at each moment a segment's live bytes are the
/// sum of what the live map refers to in it.
#[derive(Debug)]
pub(crate) struct Segments {
    layout: Layout,
    table: Vec<Segment>,
    clean: BTreeSet<u32>,
    /// Those that are marked as unrecorded, in the order in which they became so.
    unrecorded: Vec<u32>,
    /// Segments of payload heads that have become empty, or were when their head had done with
    /// them.
    emptied: Vec<SegmentNo>,
    /// How many checkpoints have been begun, and which of them is the last that is durable.
    freezes: u64,
    settled: u64,
    live_bytes: u64,
    /// Of these, the map's nodes.
    node_bytes: u64,
    /// Blocks shorter than a page that can be reached.
    short_count: u64,
    counts: SegmentCounts,
    pins: Pins,
}

/// Who reads a segment now: it is not filled anew as long as anyone does.
#[derive(Clone, Debug)]
pub(crate) struct Pins(Arc<PinCounts>);

#[derive(Debug)]
struct PinCounts {
    of_each: Vec<AtomicU32>,
    /// No fewer than all together.
    all: AtomicUsize,
}

/// Keeps a segment as it is.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Pins,
    segment: SegmentNo,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.0.of_each[self.segment.0 as usize].fetch_sub(1, Ordering::AcqRel);
        self.pins.0.all.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pins {
    fn new(segment_count: u32) -> Self {
        let of_each = (0..segment_count).map(|_| AtomicU32::new(0)).collect();
        Self(Arc::new(PinCounts { of_each, all: AtomicUsize::new(0) }))
    }

    fn add(&self, segment: SegmentNo) {
        self.0.all.fetch_add(1, Ordering::AcqRel);
        self.0.of_each[segment.0 as usize].fetch_add(1, Ordering::AcqRel);
    }

    fn is_pinned(&self, segment: u32) -> bool {
        self.0.of_each[segment as usize].load(Ordering::Acquire) != 0
    }

    /// As many are pinned at most.
    fn count_at_most(&self) -> usize {
        self.0.all.load(Ordering::Acquire)
    }
}

impl Segments {
    /// All clean.
    pub(crate) fn new(layout: Layout) -> Self {
        let segment = |number| Segment {
            state: SegmentState::Clean,
            head: Head::Main,
            opened: 0,
            held_until: 0,
            frozen_bytes: 0,
            is_unrecorded: false,
            short_count: 0,
            figures: dendro_policy::Segment {
                number,
                capacity_bytes: layout.segment_size_bytes() as u32,
                ..dendro_policy::Segment::default()
            },
        };
        let count = layout.segment_count();
        Self {
            layout,
            table: (0..count).map(segment).collect(),
            clean: layout.log_segments().map(|segment| segment.0).collect(),
            unrecorded: Vec::new(),
            emptied: Vec::new(),
            freezes: 0,
            settled: 0,
            live_bytes: 0,
            node_bytes: 0,
            short_count: 0,
            counts: SegmentCounts {
                clean: layout.log_segments().count() as u32,
                ..SegmentCounts::default()
            },
            pins: Pins::new(count),
        }
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

    /// Blocks shorter than a page that can be reached.
    pub(crate) const fn short_count(&self) -> u64 {
        self.short_count
    }

    /// What the records beside these take in the log. A count that cannot be is not believed.
    pub(crate) fn short_records_bytes(&self) -> u64 {
        let most = self.live_bytes / GRAIN_SIZE as u64;
        self.short_count.min(most) * WRITE_BLOCK_LEN_BYTES as u64
    }

    /// So many can be reached, as a checkpoint tells.
    pub(crate) const fn restore_short_count(&mut self, count: u64) {
        self.short_count = count;
    }

    /// What lives in the segment, with the records that it takes where it is moved to.
    pub(crate) fn packed_bytes_of(&self, segment: SegmentNo) -> u32 {
        let entry = &self.table[segment.0 as usize];
        let records_bytes = entry.short_count.saturating_mul(WRITE_BLOCK_LEN_BYTES as u32);
        entry.figures.live_bytes.saturating_add(records_bytes)
    }

    /// So many blocks shorter than a page live in the segment.
    pub(crate) fn set_short_count(&mut self, segment: SegmentNo, count: usize) {
        self.table[segment.0 as usize].short_count = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// The clean segments, those that are taken first in front.
    pub(crate) fn clean_segments(&self) -> Vec<SegmentNo> {
        self.clean.iter().map(|&number| SegmentNo(number)).collect()
    }

    pub(crate) fn clean_count(&self) -> u32 {
        self.clean.len() as u32
    }

    pub(crate) const fn counts(&self) -> SegmentCounts {
        self.counts
    }

    pub(crate) const fn has_pending(&self) -> bool {
        self.counts.pending > 0
    }

    /// Changes a segment and keeps the counts.
    fn change<T>(&mut self, segment: SegmentNo, change: impl FnOnce(&mut Segment) -> T) -> T {
        let entry = &mut self.table[segment.0 as usize];
        *self.counts.of(entry) -= 1;
        let result = change(entry);
        *self.counts.of(entry) += 1;
        result
    }

    pub(crate) fn state(&self, segment: SegmentNo) -> SegmentState {
        self.table[segment.0 as usize].state
    }

    pub(crate) fn usage(&self, segment: SegmentNo) -> Usage {
        let Segment { head, figures, .. } = &self.table[segment.0 as usize];
        Usage {
            live_bytes: figures.live_bytes,
            head: *head,
            class: figures.class.number(),
            written_at: figures.written_at,
        }
    }

    pub(crate) fn head(&self, segment: SegmentNo) -> Head {
        self.table[segment.0 as usize].head
    }

    /// What the cleaner's policies see of the segment.
    pub(crate) fn figures(&self, segment: SegmentNo) -> &dendro_policy::Segment {
        &self.table[segment.0 as usize].figures
    }

    /// The segment that `addr` lies in, as the cleaner's policies see it.
    pub(crate) fn figures_at(&self, addr: Addr) -> &dendro_policy::Segment {
        self.figures(self.layout.segment_of(addr))
    }

    pub(crate) fn live_bytes_of(&self, segment: SegmentNo) -> u32 {
        self.table[segment.0 as usize].figures.live_bytes
    }

    /// Keeps the segment that `addr` lies in from being filled anew. Called with the map locked,
    /// so that whoever found `addr` in it reads what was meant.
    pub(crate) fn pin(&self, addr: Addr) -> Pin {
        let segment = self.layout.segment_of(addr);
        self.pins.add(segment);
        Pin { pins: self.pins.clone(), segment }
    }

    /// Takes a clean segment that nobody reads, the lowest: what is used stays together at the
    /// front, and an image file stays short.
    pub(crate) fn open(&mut self, head: Head, class: Class) -> Option<SegmentNo> {
        let number = self.clean.iter().copied().find(|&number| !self.pins.is_pinned(number))?;
        self.take(SegmentNo(number), head);
        let figures = &mut self.table[number as usize].figures;
        let dendro_policy::Segment { number, capacity_bytes, .. } = *figures;
        *figures = dendro_policy::Segment { number, capacity_bytes, class, ..Default::default() };
        self.table[number as usize].short_count = 0;
        Some(SegmentNo(number))
    }

    /// Whether more than `count` clean segments can be opened.
    pub(crate) fn has_free(&self, count: usize) -> bool {
        if self.clean.len().saturating_sub(self.pins.count_at_most()) > count {
            return true;
        }
        let is_free = |number: &&u32| !self.pins.is_pinned(**number);
        self.clean.iter().filter(is_free).nth(count).is_some()
    }

    /// Takes a segment, whatever state it is in, for a head to fill: recovery continues there.
    pub(crate) fn take(&mut self, segment: SegmentNo, head: Head) {
        self.clean.remove(&segment.0);
        self.change(segment, |entry| {
            entry.state = SegmentState::Open;
            entry.head = head;
            entry.opened = entry.opened.wrapping_add(1);
        });
    }

    /// A head has done with the segment.
    pub(crate) fn close(&mut self, segment: SegmentNo) {
        self.clean.remove(&segment.0);
        let is_empty = self.change(segment, |entry| {
            entry.state = SegmentState::Dirty;
            entry.figures.live_bytes == 0
        });
        if is_empty {
            self.note_empty(segment);
        }
    }

    /// Nothing in the segment can be reached any more.
    fn note_empty(&mut self, segment: SegmentNo) {
        let entry = &self.table[segment.0 as usize];
        let is_told = entry.head == Head::Payload && entry.held_until <= self.settled;
        if is_told && entry.state == SegmentState::Dirty {
            self.emptied.push(segment);
        }
    }

    /// A checkpoint begins. The segments that nothing in the live map refers to and no head fills.
    pub(crate) fn freeze(&mut self) -> Vec<Filling> {
        self.freezes += 1;
        for entry in &mut self.table {
            entry.frozen_bytes = entry.figures.live_bytes;
        }
        let pending = self.layout.log_segments().filter(|&segment| self.is_pending(segment));
        pending.map(|segment| self.filling(segment)).collect()
    }

    /// What the map of the checkpoint begun last refers to in the segment, whatever fills it now.
    pub(crate) fn frozen_bytes_of(&self, segment: SegmentNo) -> u32 {
        self.table[segment.0 as usize].frozen_bytes
    }

    /// The checkpoint begun last is durable.
    pub(crate) const fn note_settled(&mut self) {
        self.settled = self.freezes;
    }

    fn is_pending(&self, segment: SegmentNo) -> bool {
        let entry = &self.table[segment.0 as usize];
        entry.state == SegmentState::Dirty && entry.figures.live_bytes == 0
    }

    fn filling(&self, segment: SegmentNo) -> Filling {
        Filling { segment, opened: self.table[segment.0 as usize].opened }
    }

    /// Whether nobody has begun to fill the segment since, which was empty.
    pub(crate) fn is_still_pending(&self, filling: Filling) -> bool {
        self.is_pending(filling.segment) && self.filling(filling.segment) == filling
    }

    /// Segments of payload heads that have become empty since the last call, by what records tell.
    pub(crate) fn take_emptied(&mut self) -> Vec<Filling> {
        let emptied = std::mem::take(&mut self.emptied);
        let emptied = emptied.into_iter().filter(|&segment| self.is_pending(segment));
        emptied.map(|segment| self.filling(segment)).collect()
    }

    /// Something else makes these clean, given in their order.
    pub(crate) fn forget_emptied(&mut self, segments: &[SegmentNo]) {
        self.emptied.retain(|segment| segments.binary_search(segment).is_err());
    }

    /// How many these are, about.
    pub(crate) const fn emptied_count(&self) -> usize {
        self.emptied.len()
    }

    /// A block of the segment at `addr` dies of what no record tells: after a crash it lives again,
    /// unless a checkpoint that begins later is durable.
    pub(crate) fn hold(&mut self, addr: Addr) {
        let segment = self.layout.segment_of(addr);
        self.table[segment.0 as usize].held_until = self.freezes + 1;
    }

    /// Neither a checkpoint nor the log behind it needs the segment any more.
    ///
    /// # Panics
    /// When something in it can be reached, or a head fills it: filling it anew would lose data.
    pub(crate) fn set_clean(&mut self, segment: SegmentNo) {
        self.change(segment, |entry| {
            assert!(
                entry.state == SegmentState::Dirty && entry.figures.live_bytes == 0,
                "segment {segment} is still needed"
            );
            entry.state = SegmentState::Clean;
        });
        self.clean.insert(segment.0);
    }

    /// Sets a segment's usage, as a checkpoint tells it.
    pub(crate) fn restore(&mut self, segment: SegmentNo, usage: &Usage) {
        let before = self.live_bytes_of(segment);
        self.live_bytes = self.live_bytes - u64::from(before) + u64::from(usage.live_bytes);
        let nodes_of =
            |head: Head, bytes: u32| if head == Head::Map { u64::from(bytes) } else { 0 };
        self.node_bytes = self.node_bytes.saturating_sub(nodes_of(self.head(segment), before))
            + nodes_of(usage.head, usage.live_bytes);
        self.change(segment, |entry| {
            entry.head = usage.head;
            entry.figures.live_bytes = usage.live_bytes;
            entry.figures.class = Class::from_number(usage.class);
            // When it was filled and lost blocks is not kept; this is the best guess.
            entry.figures.written_at = usage.written_at;
            entry.figures.filled_at = usage.written_at;
            entry.figures.last_death = usage.written_at;
            entry.state = match entry.state {
                _ if usage.live_bytes > 0 => SegmentState::Dirty,
                SegmentState::Dirty => SegmentState::Clean,
                other => other,
            };
        });
        if self.state(segment) == SegmentState::Clean {
            self.clean.insert(segment.0);
        } else {
            self.clean.remove(&segment.0);
        }
    }

    /// A block can be reached now, at `clock`, that its client wrote at `written_at`.
    pub(crate) fn block_born(&mut self, block: &PageRef, written_at: u64, clock: u64) {
        if let Some(entry) = self.holder_of_short(block) {
            entry.short_count += 1;
            self.short_count += 1;
        }
        self.born(block.addr, block.footprint_bytes(), written_at, clock);
    }

    /// A block cannot be reached any more, at `clock`.
    pub(crate) fn block_died(&mut self, block: &PageRef, clock: u64) {
        if let Some(entry) = self.holder_of_short(block) {
            entry.short_count = entry.short_count.saturating_sub(1);
            self.short_count = self.short_count.saturating_sub(1);
        }
        self.died(block.addr, block.footprint_bytes(), clock);
    }

    /// The segment of a block, if that is shorter than a page.
    fn holder_of_short(&mut self, block: &PageRef) -> Option<&mut Segment> {
        let is_short = (1..PAGE_SIZE).contains(&usize::from(block.len_bytes));
        let segment = is_short.then(|| self.layout.segment_of(block.addr))?;
        Some(&mut self.table[segment.0 as usize])
    }

    pub(crate) fn node_born(&mut self, node: &NodePtr, clock: u64) {
        self.node_bytes += u64::from(node_footprint_bytes(node));
        self.born(node.addr, node_footprint_bytes(node), clock, clock);
    }

    pub(crate) fn node_died(&mut self, node: &NodePtr, clock: u64) {
        self.node_bytes = self.node_bytes.saturating_sub(u64::from(node_footprint_bytes(node)));
        self.died(node.addr, node_footprint_bytes(node), clock);
    }

    fn born(&mut self, addr: Addr, len_bytes: u32, written_at: u64, clock: u64) {
        if len_bytes == 0 {
            return;
        }
        let segment = self.layout.segment_of(addr);
        self.change(segment, |entry| entry.figures.add(len_bytes, written_at, clock));
        self.live_bytes += u64::from(len_bytes);
        self.mark_unrecorded(segment);
    }

    fn died(&mut self, addr: Addr, len_bytes: u32, clock: u64) {
        if len_bytes == 0 {
            return;
        }
        let segment = self.layout.segment_of(addr);
        let died = self.change(segment, |entry| {
            // Only an image that was made to deceive can get below zero; the checker tells.
            let died = len_bytes.min(entry.figures.live_bytes);
            entry.figures.remove(died, clock);
            died
        });
        if self.live_bytes_of(segment) == 0 {
            self.note_empty(segment);
        }
        self.live_bytes -= u64::from(died);
        self.mark_unrecorded(segment);
    }

    /// Says what a segment was filled with, when its partial segments tell and nothing else does.
    pub(crate) fn set_class(&mut self, segment: SegmentNo, head: Head, class: Class) {
        let entry = &mut self.table[segment.0 as usize];
        (entry.head, entry.figures.class) = (head, class);
    }

    /// After recovery: whatever holds something is not clean, whichever head filled it, and what is
    /// empty waits for a checkpoint.
    pub(crate) fn settle(&mut self) {
        self.emptied.clear();
        for segment in self.layout.log_segments() {
            let entry = &self.table[segment.0 as usize];
            if entry.figures.live_bytes > 0 && entry.state == SegmentState::Clean {
                self.close(segment);
            }
        }
    }

    /// Whether someone reads the segment now.
    pub(crate) fn is_pinned(&self, segment: SegmentNo) -> bool {
        self.pins.is_pinned(segment.0)
    }

    /// Takes the list of segments whose usage record is out of date.
    pub(crate) fn take_unrecorded(&mut self) -> BTreeSet<u32> {
        for number in &self.unrecorded {
            self.table[*number as usize].is_unrecorded = false;
        }
        self.unrecorded.drain(..).collect()
    }

    pub(crate) fn unrecorded(&self) -> &[u32] {
        &self.unrecorded
    }

    pub(crate) fn mark_unrecorded(&mut self, segment: SegmentNo) {
        let entry = &mut self.table[segment.0 as usize];
        if !entry.is_unrecorded {
            entry.is_unrecorded = true;
            self.unrecorded.push(segment.0);
        }
    }
}

pub(crate) fn node_footprint_bytes(node: &NodePtr) -> u32 {
    align_up(u64::from(node.len_bytes), GRAIN_SIZE as u64) as u32
}
