//! What the disk's one lock guards: the state, the main log's head, and what of the log is still
//! in memory.
//!
//! Invariants:
//! 1. A recovery unit's records follow each other in the log: units are applied one at a time.
//! 2. What lies in the open partial segment is changed only by units that end in it; all of it
//!    takes effect or nothing does.
//! 3. A block is read from memory as long as its partial segment has not been written.

pub(crate) mod reuse_queue;
pub(crate) mod streams;

use dendro_base::sync::Arc;
use dendro_base::{Clock, Timestamp, Uuid};
use dendro_device::AlignedBuf;
use dendro_disk::Error;
use dendro_format::{Addr, Head, PageRef, PartialHeader, SegmentNo};
use dendro_policy::Class;

use crate::engine::reuse_queue::ReuseQueue;
use crate::engine::streams::Streams;
use crate::fault::Outcome;
use crate::log::partial::{Content, MIN_CAPACITY_BYTES, Partial, RecordContext, header_of};
use crate::log::writer::{Closed, Writer};
use crate::state::State;

/// A partial segment is closed when it holds so much.
pub(crate) const PARTIAL_LEN_BYTES: usize = 1 << 20;
/// Room beyond that, so that a unit of that size fits into one.
const PARTIAL_SLACK_BYTES: usize = 64 << 10;
/// Buffers kept for the next partial segments: more than may wait to be written before commits help.
const POOL_LEN: usize = 24;
/// How many of full size are made at a time: together they fill huge pages.
const POOL_STEP: usize = 8;

/// Where the main log ends.
#[derive(Debug)]
pub(crate) struct MainHead {
    pub(crate) segment: SegmentNo,
    /// Where the open partial segment starts, or the next one will.
    pub(crate) offset_bytes: u32,
    /// The number of that partial segment.
    pub(crate) seq: u64,
    pub(crate) prev_crc32c: u32,
    /// Where the log goes on; named in every header, so it is chosen ahead.
    pub(crate) next_segment: Option<SegmentNo>,
    pub(crate) open: Option<Partial>,
}

pub(crate) struct Engine {
    pub(crate) state: State,
    pub(crate) log: MainHead,
    pub(crate) streams: Streams,
    pub(crate) reuse_queue: ReuseQueue,
    /// When the open partial segment of the main log was begun.
    pub(crate) began: Timestamp,
    /// The last commit.
    pub(crate) commit_seq: u64,
    /// Partial segments that have not been written yet (invariant 3).
    pub(crate) in_memory: Vec<Arc<Closed>>,
    /// The main log is durable up to this partial segment.
    pub(crate) durable_seq: u64,
    /// Bytes of log since the last checkpoint.
    pub(crate) log_bytes: u64,
    /// The same as recovery feels it: it does not read most of what payload streams wrote.
    pub(crate) replay_bytes: u64,
    /// Why no more units are taken.
    pub(crate) closed_reason: Option<Error>,
    pub(crate) uuid: Uuid,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) writer: Arc<Writer>,
    pool: Vec<AlignedBuf>,
    /// The version that the unit being applied changes.
    pub(crate) context: RecordContext,
    /// Clean segments that payload streams leave to those who must never wait.
    pub(crate) kept_segments: usize,
    /// What the policy last said, and of which segment (none: of pages written first): pages that
    /// follow each other mostly leave the same one.
    pub(crate) last_class: Option<(Option<SegmentNo>, Class)>,
    /// Whether the unit being applied ends in a later partial segment than it began in.
    spans: bool,
    pub(crate) written_bytes: u64,
    /// Bytes of pages and of records in the units applied.
    pub(crate) user_page_bytes: u64,
    pub(crate) user_record_bytes: u64,
}

impl Engine {
    pub(crate) fn new(
        state: State,
        log: MainHead,
        streams: Streams,
        commit_seq: u64,
        uuid: Uuid,
        clock: Arc<dyn Clock>,
        writer: Arc<Writer>,
    ) -> Self {
        let durable_seq = log.seq.saturating_sub(1);
        Self {
            state,
            log,
            streams,
            reuse_queue: ReuseQueue::default(),
            began: clock.now(),
            commit_seq,
            in_memory: Vec::new(),
            durable_seq,
            log_bytes: 0,
            replay_bytes: 0,
            closed_reason: None,
            uuid,
            clock,
            writer,
            pool: Vec::new(),
            context: RecordContext::start(1),
            kept_segments: 0,
            last_class: None,
            spans: false,
            written_bytes: 0,
            user_page_bytes: 0,
            user_record_bytes: 0,
        }
    }

    /// Bytes of pages and of records in the units applied.
    pub(crate) const fn user_bytes(&self) -> u64 {
        self.user_page_bytes + self.user_record_bytes
    }

    /// Bytes that the main log's segment still takes.
    pub(crate) fn log_room_bytes(&self) -> u64 {
        let size = self.state.segments.layout().segment_size_bytes();
        let used = self.log.open.as_ref().map_or(0, |open| open.used_bytes() as u64);
        size.saturating_sub(u64::from(self.log.offset_bytes) + used)
    }

    /// Bytes that the log can still take before the segments in reserve are touched.
    pub(crate) fn room_bytes(&self, reserve_segments: u32) -> u64 {
        let size = self.state.segments.layout().segment_size_bytes();
        let here = self.log_room_bytes();
        let ahead = u64::from(
            self.state.segments.clean_count() + u32::from(self.log.next_segment.is_some()),
        );
        (here + ahead * size).saturating_sub(u64::from(reserve_segments) * size)
    }

    /// Finds a place for a unit that takes no more than so much of the main log; says whether it takes
    /// more than one partial segment.
    pub(crate) fn begin_unit(&mut self, pages: usize, record_bytes: usize) -> Outcome<bool> {
        self.spans = false;
        self.open_partial()?;
        if !self.fits(pages, 0, record_bytes) {
            self.close_partial();
            self.open_partial()?;
            if !self.fits(pages, 0, record_bytes) {
                self.spans = true;
                self.end_changes();
            }
        }
        Ok(self.spans)
    }

    /// What has been put into the open partial segment takes effect with it.
    pub(crate) fn end_unit(&mut self) {
        self.partial().complete();
        self.spans = false;
    }

    /// Nothing that has been written so far is changed any more where it is.
    pub(crate) fn end_changes(&mut self) {
        if let Some(open) = &mut self.log.open {
            open.forget_changeable();
        }
        self.streams.forget_changeable();
    }

    fn fits(&mut self, pages: usize, short_bytes: usize, record_bytes: usize) -> bool {
        self.partial().fits(pages, short_bytes, record_bytes)
    }

    /// Goes on to the next partial segment if so much does not fit into this one.
    pub(crate) fn make_room(
        &mut self,
        pages: usize,
        short_bytes: usize,
        record_bytes: usize,
    ) -> Outcome<()> {
        while !self.fits(pages, short_bytes, record_bytes) {
            assert!(self.spans, "a unit that was found to fit fits (invariant 2)");
            self.close_partial();
            self.open_partial()?;
        }
        let context = self.context;
        self.partial().set_context(context);
        Ok(())
    }

    /// What the page at `own` becomes in its place, if that is still to be written and these contents
    /// fit it: [`Self::change_page`] changes it. A stream's partial segment must have room for all
    /// `unit_pages` of the unit, so that it is not closed before.
    pub(crate) fn fit_into(
        &mut self,
        own: &PageRef,
        content: &Content<'_>,
        unit_pages: usize,
    ) -> Option<PageRef> {
        let in_main = self.log.open.as_mut().and_then(|open| open.fit_into(own, content));
        in_main.or_else(|| self.streams.fit_into(own, content, unit_pages))
    }

    /// Changes a page in its place to `block`, as [`Self::fit_into`] said.
    pub(crate) fn change_page(&mut self, block: &PageRef, content: &Content<'_>) {
        let main = self.log.open.as_mut().expect("a partial segment was opened");
        if main.change_page(block, content).is_none() {
            let changed = self.streams.change_page(block, content);
            let named = changed.flatten().expect("the main log names what may be changed");
            main.update_record(named, block);
        }
    }

    /// What is written from now on changes the head of `branch`.
    pub(crate) const fn set_context(&mut self, branch: u32) {
        self.context =
            RecordContext { branch, epoch: self.state.versions.epoch(), is_moved: false };
    }

    pub(crate) fn partial(&mut self) -> &mut Partial {
        self.log.open.as_mut().expect("a partial segment was opened")
    }

    /// Begins a partial segment if none is open.
    pub(crate) fn open_partial(&mut self) -> Outcome<()> {
        if self.log.open.is_some() {
            return Ok(());
        }
        let layout = self.state.segments.layout();
        let size = layout.segment_size_bytes();
        if size - u64::from(self.log.offset_bytes) < MIN_CAPACITY_BYTES as u64 {
            let Some(next) = self.log.next_segment.take() else {
                return Err(Error::Failed("the log has no segment to go on in".into()).into());
            };
            self.state.segments.close(self.log.segment);
            self.log.segment = next;
            self.log.offset_bytes = 0;
        }
        if self.log.next_segment.is_none() {
            self.log.next_segment = self.state.segments.open(Head::Main, Class::MAIN);
        }
        let capacity = (size - u64::from(self.log.offset_bytes))
            .min((PARTIAL_LEN_BYTES + PARTIAL_SLACK_BYTES) as u64) as usize;
        let buf = self.take_buf();
        self.began = self.clock.now();
        self.log.open = Some(Partial::new(
            buf,
            capacity,
            self.log.segment,
            layout.segment_offset(self.log.segment),
            self.log.offset_bytes,
            self.state.versions.epoch(),
        ));
        Ok(())
    }

    pub(crate) fn take_buf(&mut self) -> AlignedBuf {
        // What has been written meanwhile is the nearest to the processor.
        self.forget_written();
        let size = self.state.segments.layout().segment_size_bytes() as usize;
        let len = (PARTIAL_LEN_BYTES + PARTIAL_SLACK_BYTES).min(size);
        if self.pool.is_empty() && len >= PARTIAL_LEN_BYTES {
            self.pool = AlignedBuf::several(POOL_STEP, len);
        }
        self.pool.pop().unwrap_or_else(|| AlignedBuf::zeroed(len))
    }

    /// Bytes that were put into the log since the disk was opened.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.written_bytes + self.open_bytes()
    }

    /// What of them is not on the device yet.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.open_bytes() + self.in_memory.iter().map(|closed| closed.len_bytes as u64).sum::<u64>()
    }

    fn open_bytes(&self) -> u64 {
        let open = self.log.open.iter().chain(self.streams.open());
        open.map(|partial| partial.used_bytes() as u64).sum()
    }

    /// What the buffers of partial segments take, filled and spare; but for the map's, of which there
    /// is one.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let open = self.log.open.iter().chain(self.streams.open()).map(Partial::buffer_bytes);
        let closed = self.in_memory.iter().map(|closed| closed.buf.len());
        let spare = self.pool.iter().map(|buf| buf.len());
        open.chain(closed).chain(spare).sum::<usize>() as u64
    }

    /// Ends the open partial segment, and hands it to the writer behind the blocks that it names.
    pub(crate) fn close_partial(&mut self) {
        let Some(partial) = self.log.open.take() else { return };
        if partial.is_empty() {
            self.log.open = Some(partial);
            return;
        }
        self.close_streams();
        let (segment, base) = (partial.segment(), partial.base());
        let (buf, len_bytes, crc32c) = partial.close(PartialHeader {
            seq: self.log.seq,
            prev_crc32c: self.log.prev_crc32c,
            next_segment: self.log.next_segment.unwrap_or(SegmentNo(0)),
            commit_seq: self.commit_seq,
            durable_seq: self.durable_seq,
            time: self.began,
            ..header_of(Head::Main, self.uuid)
        });
        let closed = Arc::new(Closed { buf, len_bytes, base, segment, seq: self.log.seq });
        self.log.offset_bytes += len_bytes as u32;
        self.log.seq += 1;
        self.log.prev_crc32c = crc32c;
        self.replay_bytes += len_bytes as u64;
        self.hand_to_writer(closed);
        self.note_reclaimable();
    }

    /// Notes what the closed partial segments of the main log have emptied, if the open one is empty.
    /// What a unit emptied that goes on is told only when its end is.
    pub(crate) fn note_reclaimable(&mut self) {
        if !self.spans && self.log.open.as_ref().is_none_or(Partial::is_empty) {
            let emptied = self.state.segments.take_reclaimable();
            self.reuse_queue.note_closed(self.log.seq - 1, emptied);
        }
    }

    pub(crate) fn hand_to_writer(&mut self, closed: Arc<Closed>) {
        self.log_bytes += closed.len_bytes as u64;
        self.written_bytes += closed.len_bytes as u64;
        self.in_memory.push(Arc::clone(&closed));
        self.writer.push(closed);
    }

    /// What has been written is read from the device from now on.
    pub(crate) fn forget_written(&mut self) {
        for written in self.writer.take_written() {
            self.in_memory.retain(|closed| closed.base != written.base);
            if let Ok(closed) = Arc::try_unwrap(written)
                && self.pool.len() < POOL_LEN
            {
                self.pool.push(closed.buf);
            }
        }
    }

    /// A block's stored bytes, if they are in memory (invariant 3).
    pub(crate) fn block_in_memory(&self, addr: Addr, len_bytes: usize) -> Option<&[u8]> {
        if let Some(open) = &self.log.open
            && let Some(offset) = open.offset_of(addr)
        {
            return Some(open.block(offset, len_bytes));
        }
        if let Some(block) = self.streams.block(addr, len_bytes) {
            return Some(block);
        }
        self.in_memory.iter().find_map(|closed| closed.block(addr, len_bytes))
    }
}
