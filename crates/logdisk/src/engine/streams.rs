//! The payload streams: they hold blocks apart from the main log, separated by class.
//!
//! A payload stream fills partial segments of its own, which carry no order. The main log's records
//! name and check every block in them. The records in payload streams serve the cleaner alone.
//!
//! Invariants:
//! 1. What a partial segment of the main log names is queued before it, or lies in it. One flush
//!    covers both.

use dendro_base::sync::Arc;
use dendro_format::{Addr, Head, PageRef, PartialHeader, SegmentNo};
use dendro_policy::{Class, Classes, Policy, Present};
use smallvec::SmallVec;

use crate::engine::{Engine, PARTIAL_LEN_BYTES};
use crate::log::partial::{
    Content, MIN_CAPACITY_BYTES, Mark, Partial, RecordRef, header_of, page_record_bytes,
};
use crate::log::writer::Closed;

/// The number of bytes in payload streams that cost recovery as much as one byte of the main log,
/// because recovery reads little more of them than the records that name them.
const PAYLOAD_PER_REPLAYED: u64 = 4;

/// The state of one payload stream.
#[derive(Debug)]
struct PayloadStream {
    class: Class,
    segment: Option<SegmentNo>,
    offset_bytes: u32,
    seq: u64,
    prev_crc32c: u32,
    open: Option<Partial>,
    /// What the open partial segment contained before the change under way, if that change has
    /// added to it.
    mark: Option<Mark>,
}

impl PayloadStream {
    /// An estimate of the bytes that still fit into its segment, less the minimum that a partial
    /// segment needs.
    fn room_bytes(&self, segment_size: u64) -> u64 {
        let open_bytes = self.open.as_ref().map_or(0, Partial::used_bytes) as u64;
        let filled = u64::from(self.offset_bytes) + open_bytes + MIN_CAPACITY_BYTES as u64;
        if self.segment.is_some() { segment_size.saturating_sub(filled) } else { 0 }
    }
}

/// All payload streams of a disk, and the policy that assigns blocks to them.
#[derive(Debug)]
pub(crate) struct Streams {
    policy: Arc<dyn Policy>,
    classes: Classes,
    all: Vec<PayloadStream>,
    /// See [`crate::OpenOptions::stream_bytes`].
    stream_bytes: u64,
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

    /// The coldest class of users' data. There must be one: see [`Self::are_used`].
    pub(crate) const fn any_user_class(&self) -> Class {
        Class::user(self.classes.users.saturating_sub(1))
    }

    pub(crate) const fn note_block(&mut self, block: &PageRef) {
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
    pub(crate) fn settle_placed(&mut self) {
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
    fn find(&mut self, class: Class) -> Option<usize> {
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

impl Engine {
    /// Replaces the policy.
    pub(crate) fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.retire_streams();
        self.streams = Streams::new(policy, self.streams.stream_bytes, &self.state.present());
    }

    /// Closes the segments of all payload streams, so that they can be cleaned as any others.
    pub(crate) fn retire_streams(&mut self) {
        self.close_streams();
        for stream in std::mem::take(&mut self.streams.all) {
            if let Some(segment) = stream.segment {
                self.state.segments.close(segment);
            }
        }
    }

    /// The class that the policy chooses for a page that a client writes over `old`.
    pub(crate) fn user_class(&mut self, old: Option<PageRef>) -> Class {
        let segments = &self.state.segments;
        let left = old.filter(|old| old.len_bytes > 0);
        let left = left.map(|old| segments.layout().segment_of(old.addr));
        if let Some((_, class)) = self.last_class.filter(|&(last, _)| last == left) {
            return class;
        }
        let segment = left.map(|left| segments.policy_view(left));
        let class = self.streams.policy.user_class(segment.as_ref(), &self.state.present());
        self.last_class = Some((left, class));
        class
    }

    /// The class that the policy chooses for survivors of the segment of `addr`.
    pub(crate) fn survivor_class(&self, addr: Addr) -> Class {
        self.streams
            .policy
            .survivor_class(&self.state.segments.policy_view_at(addr), &self.state.present())
    }

    /// The class that a block is written to if the policy chose `class`. For a class of survivors,
    /// when clean segments are few and its stream would need one, it is the next colder class, or
    /// else the next hotter one, whose stream has room in its segment. If there is none, it is the
    /// main log's class.
    pub(crate) fn class_with_room(&self, class: Class) -> Class {
        let Some(index) = class.survivor_index() else { return class };
        let size = self.state.segments.layout().segment_size_bytes();
        let has_room = |class: &Class| {
            let mut streams = self.streams.all.iter();
            streams.any(|stream| stream.class == *class && stream.room_bytes(size) > 0)
        };
        if has_room(&class) || self.state.segments.has_free(self.kept_segments) {
            return class;
        }
        let colder = index + 1..self.streams.classes.survivors;
        let mut others = colder.chain((0..index).rev()).map(Class::survivor);
        others.find(has_room).unwrap_or(Class::MAIN)
    }

    /// Places what is stored of a page in the stream of `class`; [`Self::record_page`] then names
    /// it in the main log. `None` means that there is no such stream or no segment for it, so the
    /// block must go to the main log.
    pub(crate) fn place_apart(
        &mut self,
        class: Class,
        list: u64,
        page_index: u64,
        content: &Content<'_>,
    ) -> Option<PageRef> {
        let number = self.streams.find(class)?;
        let (pages, short) = content.room();
        let fits = |partial: &Partial| partial.fits(pages, short, page_record_bytes(1));
        if !self.streams.all[number].open.as_ref().is_some_and(fits) {
            self.close_stream(number);
            self.open_stream(number)?;
        }
        let stream = &mut self.streams.all[number];
        let open = stream.open.as_mut()?;
        stream.mark.get_or_insert_with(|| open.mark());
        open.set_context(self.context);
        Some(open.push_page(list, page_index, content))
    }

    /// Records in the main log that a page was written as `block`, which was placed there or in a
    /// stream.
    pub(crate) fn record_page(&mut self, list: u64, page_index: u64, block: &PageRef) {
        let main = self.log.open.as_mut().expect("a partial segment was opened");
        main.set_context(self.context);
        let record_ref = main.record_page(list, page_index, block);
        if main.offset_of(block.addr).is_none() {
            self.streams.set_named(block, record_ref);
        }
    }

    fn open_stream(&mut self, number: usize) -> Option<()> {
        let layout = self.state.segments.layout();
        let size = layout.segment_size_bytes();
        let stream = &mut self.streams.all[number];
        let is_full = size - u64::from(stream.offset_bytes) < MIN_CAPACITY_BYTES as u64;
        if let Some(full) = stream.segment.filter(|_| is_full) {
            self.state.segments.close(full);
            stream.segment = None;
        }
        if stream.segment.is_none() {
            stream.segment = Some(self.state.segments.open(Head::Payload, stream.class)?);
            stream.offset_bytes = 0;
        }
        let (segment, offset_bytes) = (stream.segment?, stream.offset_bytes);
        let room = (size - u64::from(offset_bytes)) as usize;
        let buf = self.take_buf();
        // The last partial segment of a segment takes the room that would be too little for another
        // one.
        let capacity = if room <= buf.len() { room } else { PARTIAL_LEN_BYTES };
        let segment_offset = layout.segment_offset(segment);
        let epoch = self.state.versions.epoch();
        self.streams.all[number].open =
            Some(Partial::new(buf, capacity, segment, segment_offset, offset_bytes, epoch));
        Some(())
    }

    /// Queues the open partial segments of all payload streams, before the partial segment of the
    /// main log that names their blocks (streams invariant 1).
    pub(crate) fn close_streams(&mut self) {
        for number in 0..self.streams.all.len() {
            self.close_stream(number);
        }
    }

    fn close_stream(&mut self, number: usize) {
        let stream = &mut self.streams.all[number];
        let Some(mut partial) = stream.open.take() else { return };
        if partial.is_empty() {
            stream.open = Some(partial);
            return;
        }
        partial.complete();
        let (segment, base) = (partial.segment(), partial.base());
        let (buf, len_bytes, crc32c) = partial.close(PartialHeader {
            class: stream.class.number(),
            seq: stream.seq,
            prev_crc32c: stream.prev_crc32c,
            commit_seq: self.commit_seq,
            time: self.began,
            ..header_of(Head::Payload, self.uuid)
        });
        stream.offset_bytes += len_bytes as u32;
        stream.seq += 1;
        stream.prev_crc32c = crc32c;
        // It counts as written together with the main log's partial segment that will name its
        // blocks.
        let seq = self.log.seq;
        self.replay_bytes += len_bytes as u64 / PAYLOAD_PER_REPLAYED;
        self.hand_to_writer(Arc::new(Closed { buf, len_bytes, base, segment, seq }));
    }
}
