//! The payload streams: they hold blocks apart from the main log, separated by class.
//!
//! A payload stream fills partial segments of its own, which carry no order. The main log's records
//! name and check every block in them. The records in payload streams serve the cleaner alone.
//!
//! Invariants:
//! 1. What a partial segment of the main log names is queued before it, or lies in it. One flush
//!    covers both.

use dendro_base::sync::Arc;
use dendro_format::{Addr, PageRef, SegmentNo};
use dendro_policy::{Class, Classes, Policy, Present};
use smallvec::SmallVec;

use crate::log::partial::{
    Content, MIN_CAPACITY_BYTES, Mark, Partial, RecordRef, page_record_bytes,
};

/// The state of one payload stream.
#[derive(Debug)]
pub(super) struct PayloadStream {
    pub(super) class: Class,
    pub(super) segment: Option<SegmentNo>,
    pub(super) offset_bytes: u32,
    pub(super) seq: u64,
    pub(super) prev_crc32c: u32,
    pub(super) open: Option<Partial>,
    /// What the open partial segment contained before the change under way, if that change has
    /// added to it.
    pub(super) mark: Option<Mark>,
}

impl PayloadStream {
    /// An estimate of the bytes that still fit into its segment, less the minimum that a partial
    /// segment needs.
    pub(super) fn room_bytes(&self, segment_size: u64) -> u64 {
        let open_bytes = self.open.as_ref().map_or(0, Partial::used_bytes) as u64;
        let filled = u64::from(self.offset_bytes) + open_bytes + MIN_CAPACITY_BYTES as u64;
        if self.segment.is_some() { segment_size.saturating_sub(filled) } else { 0 }
    }
}

/// All payload streams of a disk, and the policy that assigns blocks to them.
#[derive(Debug)]
pub(crate) struct Streams {
    policy: Arc<dyn Policy>,
    pub(super) classes: Classes,
    pub(super) all: Vec<PayloadStream>,
    /// See [`crate::OpenOptions::stream_bytes`].
    pub(super) stream_bytes: u64,
    /// Bytes of blocks since the last flush, and the mean of that number over recent flushes.
    since_flush: u64,
    mean_between_flushes: u64,
}

impl Streams {
    pub(crate) fn new(policy: Arc<dyn Policy>, stream_bytes: u64, present: &Present) -> Self {
        let classes = policy.classes(present);
        // A volume that was just opened is more often filled than flushed.
        Self {
            policy,
            classes,
            all: Vec::new(),
            stream_bytes,
            since_flush: 0,
            mean_between_flushes: 2 * stream_bytes,
        }
    }

    pub(crate) const fn policy(&self) -> &Arc<dyn Policy> {
        &self.policy
    }

    /// The bytes that still fit into the segments of all streams.
    pub(crate) fn room_bytes(&self, segment_size: u64) -> u64 {
        self.all.iter().map(|stream| stream.room_bytes(segment_size)).sum()
    }

    /// The maximum number of streams of users' data that need another segment for `pages`, which
    /// take at most `bytes`, whichever streams the pages are written to.
    pub(crate) fn filled_up_by(&self, pages: usize, bytes: u64, segment_size: u64) -> usize {
        let users = usize::from(self.classes.users);
        // This is called with every unit, so it avoids an allocation.
        let mut left: SmallVec<[u64; 8]> = (self.all.iter())
            .filter(|stream| stream.class.user_index().is_some())
            .map(|stream| stream.room_bytes(segment_size))
            .collect();
        left.resize(users, 0);
        left.sort_unstable();
        let mut filled_bytes = 0;
        let is_filled = |left: &&u64| {
            filled_bytes += **left;
            filled_bytes <= bytes
        };
        left.iter().take_while(is_filled).count().min(pages)
    }

    /// Whether blocks that clients write go to payload streams now.
    pub(crate) fn are_used(&self) -> bool {
        self.classes.users > 0
            && self.mean_between_flushes.max(self.since_flush) >= self.stream_bytes
    }

    /// Whether blocks that survive cleaning go to payload streams.
    pub(crate) const fn are_survivors_apart(&self) -> bool {
        self.classes.survivors > 0
    }

    /// The coldest class of users' data. There must be one: see [`Self::are_used`].
    pub(crate) const fn any_user_class(&self) -> Class {
        Class::user(self.classes.users.saturating_sub(1))
    }

    pub(super) const fn note_block(&mut self, block: &PageRef) {
        self.since_flush += block.footprint_bytes() as u64;
    }

    pub(crate) const fn note_flush(&mut self) {
        self.mean_between_flushes = (self.mean_between_flushes * 7 + self.since_flush) / 8;
        self.since_flush = 0;
    }

    /// The open partial segments.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Partial> {
        self.all.iter().filter_map(|stream| stream.open.as_ref())
    }

    /// The stored bytes of a block in an open partial segment.
    pub(crate) fn block(&self, addr: Addr, len_bytes: usize) -> Option<&[u8]> {
        self.all.iter().find_map(|stream| {
            let open = stream.open.as_ref()?;
            Some(open.block(open.offset_of(addr)?, len_bytes))
        })
    }

    /// See [`Partial::fit_into`].
    pub(crate) fn fit_into(
        &mut self,
        old: &PageRef,
        content: &Content<'_>,
        unit_pages: usize,
    ) -> Option<PageRef> {
        let has_room = |open: &Partial| open.fits(unit_pages, 0, page_record_bytes(unit_pages));
        self.open_mut().filter(|open| has_room(open)).find_map(|open| open.fit_into(old, content))
    }

    /// See [`Partial::change_page`].
    pub(crate) fn change_page(
        &mut self,
        block: &PageRef,
        content: &Content<'_>,
    ) -> Option<Option<RecordRef>> {
        self.open_mut().find_map(|open| open.change_page(block, content))
    }

    /// The main log names `block` at `named`.
    pub(crate) fn set_named(&mut self, block: &PageRef, named: RecordRef) {
        self.open_mut().for_each(|open| open.set_named(block, named));
    }

    /// Makes permanent what was placed since the last call.
    pub(super) fn settle_placed(&mut self) {
        self.all.iter_mut().for_each(|stream| stream.mark = None);
    }

    /// Takes back what was placed since [`Self::settle_placed`], unless it was queued for the
    /// device.
    pub(crate) fn take_back_placed(&mut self) {
        for stream in &mut self.all {
            if let (Some(mark), Some(open)) = (stream.mark.take(), &mut stream.open) {
                open.take_back_to(&mark);
            }
        }
    }

    fn open_mut(&mut self) -> impl Iterator<Item = &mut Partial> {
        self.all.iter_mut().filter_map(|stream| stream.open.as_mut())
    }

    /// See [`Partial::forget_changeable`].
    pub(crate) fn forget_changeable(&mut self) {
        self.open_mut().for_each(Partial::forget_changeable);
    }

    /// The index of the stream of `class`, if that class is in use.
    pub(super) fn find(&mut self, class: Class) -> Option<usize> {
        if let Some(at) = self.all.iter().position(|stream| stream.class == class) {
            return Some(at);
        }
        self.classes.position(class)?;
        self.all.push(PayloadStream {
            class,
            segment: None,
            offset_bytes: 0,
            seq: 0,
            prev_crc32c: 0,
            open: None,
            mark: None,
        });
        Some(self.all.len() - 1)
    }
}
