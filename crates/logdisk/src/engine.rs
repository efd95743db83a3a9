//! The engine: what the disk's one lock guards, namely the state, the main log's head, and the part
//! of the log that is still in memory.
//!
//! Invariants:
//! 1. The records of a unit follow each other in the log: units are applied one at a time.
//! 2. What lies in the open partial segment is changed only by units that end in it. All of it
//!    takes effect or nothing does.
//! 3. A block is read from memory as long as its partial segment has not been written.

mod access;
mod lately_written;
mod leaving;
pub(crate) mod main_head;
pub(crate) mod open_unit;
mod placing;
mod recent;
pub(crate) mod reuse_queue;
mod reusing;
pub(crate) mod streams;
mod transaction;
pub(crate) mod watched;

use dendro_base::sync::Arc;
use dendro_base::{Clock, Timestamp, Uuid};
use dendro_device::AlignedBuf;
use dendro_disk::{Aru, ChangedLists, CommitSeq, Error, Lid, View};
use dendro_format::{Addr, Head, Layout, PageRef, PartialHeader, SegmentNo};
use dendro_policy::Class;

use crate::engine::lately_written::LatelyWritten;
use crate::engine::main_head::MainHead;
use crate::engine::recent::RecentBlocks;
use crate::engine::reuse_queue::ReuseQueue;
use crate::engine::streams::Streams;
use crate::engine::watched::WatchedPages;
use crate::fault::Outcome;
use crate::log::partial::{Content, MIN_CAPACITY_BYTES, Partial, Tables, header_of};
use crate::log::writer::{Closed, Writer};
use crate::map::budget;
use crate::state::State;

/// The length at which a partial segment is closed.
pub(crate) const PARTIAL_LEN_BYTES: usize = 1 << 20;
/// The room beyond that, so that a unit of that size fits into one partial segment.
const PARTIAL_SLACK_BYTES: usize = 64 << 10;
/// The maximum number of spare buffers: more than the partial segments that may be queued before
/// commits assist.
const POOL_LEN: usize = 24;
/// The number of buffers that are allocated at a time: together they fill huge pages.
const POOL_STEP: usize = 8;
/// The shortest buffers of which so many fill a huge page.
const POOLED_LEN_BYTES: usize = 256 << 10;

/// The number of lists of which the last change is remembered, at least: about 2 MiB at most.
const MAX_CHANGED_LISTS: usize = 16_384;

/// The number of bytes in payload streams that cost recovery as much as one byte of the main log,
/// because recovery reads little more of them than the records that name them.
const PAYLOAD_PER_REPLAYED: u64 = 4;

pub(crate) struct Engine {
    state: State,
    log: MainHead,
    streams: Streams,
    reuse_queue: ReuseQueue,
    /// When the open partial segment of the main log was begun.
    began: Timestamp,
    /// The number of the last commit.
    commit_seq: u64,
    /// Partial segments that have not been written yet (engine invariant 3).
    in_memory: Vec<Arc<Closed>>,
    lately_written: LatelyWritten,
    recent: RecentBlocks,
    /// The number of the partial segment up to which the main log is durable.
    durable_seq: u64,
    /// Bytes of log since the last checkpoint.
    log_bytes: u64,
    /// The bytes of log that recovery would read: it reads little of what payload streams wrote.
    replay_bytes: u64,
    /// The reason why no more units are accepted.
    closed_reason: Option<Error>,
    uuid: Uuid,
    clock: Arc<dyn Clock>,
    /// Which lists have changed lately, once a client has asked.
    changed_lists: Option<ChangedLists>,
    /// The last commit that changed the versions since the disk was opened.
    last_versions_change: CommitSeq,
    watched_pages: WatchedPages,
    writer: Arc<Writer>,
    pool: Vec<AlignedBuf>,
    /// At most as many as partial segments were open at the same time.
    spare_tables: Vec<Tables>,
    /// The number of clean segments that payload streams do not take: the reserves.
    kept_segments: usize,
    written_bytes: u64,
    /// The bytes of pages and of records in the units that were applied.
    user_page_bytes: u64,
    user_record_bytes: u64,
}

/// The length of the buffers of partial segments.
fn buffer_len(layout: Layout) -> usize {
    let segment_len = layout.segment_size_bytes() as usize;
    (PARTIAL_LEN_BYTES + PARTIAL_SLACK_BYTES).min(segment_len)
}

impl Engine {
    pub(crate) fn new(
        state: State,
        log: MainHead,
        streams: Streams,
        commit_seq: u64,
        uuid: Uuid,
        clock: Arc<dyn Clock>,
        cache_size_bytes: u64,
    ) -> Self {
        let durable_seq = log.seq.saturating_sub(1);
        let recent_bytes = budget::recent_bytes(cache_size_bytes);
        let buffer_bytes = buffer_len(state.segments().layout());
        Self {
            state,
            log: MainHead { closed_commit_seq: commit_seq, ..log },
            streams,
            reuse_queue: ReuseQueue::default(),
            began: clock.now(),
            commit_seq,
            in_memory: Vec::new(),
            lately_written: LatelyWritten::new(recent_bytes, buffer_bytes),
            recent: RecentBlocks::new(recent_bytes),
            durable_seq,
            log_bytes: 0,
            replay_bytes: 0,
            closed_reason: None,
            uuid,
            clock,
            changed_lists: None,
            last_versions_change: CommitSeq(0),
            watched_pages: WatchedPages::default(),
            writer: Arc::default(),
            pool: Vec::new(),
            spare_tables: Vec::new(),
            kept_segments: 0,
            written_bytes: 0,
            user_page_bytes: 0,
            user_record_bytes: 0,
        }
    }

    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    pub(crate) const fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Which lists have changed lately. From the first call on, the changes of clients are noted.
    pub(crate) fn changed_lists(&mut self) -> &ChangedLists {
        let now = CommitSeq(self.commit_seq);
        self.changed_lists.get_or_insert_with(|| ChangedLists::new(now, MAX_CHANGED_LISTS))
    }

    /// As [`Self::changed_lists`], if changes are being noted.
    pub(crate) const fn noted_lists(&self) -> Option<&ChangedLists> {
        self.changed_lists.as_ref()
    }

    /// The last commit that changed what `view` has of a list, or made the view, if changes are
    /// being noted.
    pub(crate) fn last_change(&self, view: View, list: Lid) -> Option<CommitSeq> {
        let lists = self.noted_lists()?;
        Some(lists.last_change(view, list).max(self.last_versions_change))
    }

    /// Notes that the last commit has changed the versions.
    pub(crate) const fn note_versions_changed(&mut self) {
        self.last_versions_change = CommitSeq(self.commit_seq);
    }

    /// The pages that units under construction have read.
    pub(crate) const fn watched_pages(&mut self) -> &mut WatchedPages {
        &mut self.watched_pages
    }

    /// Notes which lists and pages a unit has changed, if that is wanted.
    pub(crate) fn note_changed(&mut self, aru: &Aru<'_>) {
        self.watched_pages.note(aru.view(), aru.ops());
        if let Some(lists) = &mut self.changed_lists {
            lists.note(aru.view(), aru.ops(), CommitSeq(self.commit_seq));
        }
    }

    /// The bytes of pages and of records in the units that were applied.
    pub(crate) const fn user_bytes(&self) -> u64 {
        self.user_page_bytes + self.user_record_bytes
    }

    /// The bytes that still fit into the main log's segment.
    pub(crate) fn log_room_bytes(&self) -> u64 {
        let size = self.state.segments().layout().segment_size_bytes();
        let used = self.log.open.as_ref().map_or(0, |open| open.used_bytes() as u64);
        size.saturating_sub(u64::from(self.log.offset_bytes) + used)
    }

    /// The bytes that the log can still take before it needs the reserved segments.
    pub(crate) fn room_bytes(&self, reserve_segments: u32) -> u64 {
        let size = self.state.segments().layout().segment_size_bytes();
        let here = self.log_room_bytes();
        let ahead = u64::from(
            self.state.segments().clean_count() + u32::from(self.log.next_segment.is_some()),
        );
        (here + ahead * size).saturating_sub(u64::from(reserve_segments) * size)
    }

    /// Makes everything that has been written so far unchangeable in place.
    pub(crate) fn end_changes(&mut self) {
        if let Some(open) = &mut self.log.open {
            open.forget_changeable();
        }
        self.streams.forget_changeable();
    }

    /// The page reference that [`Self::change_page`] would give the page at `own` with this
    /// content, if the page can be changed in place. An open partial segment of a stream must have
    /// room for all `unit_pages` of the unit, so that it is not closed before the unit ends.
    pub(crate) fn fit_into(
        &mut self,
        own: &PageRef,
        content: &Content<'_>,
        unit_pages: usize,
    ) -> Option<PageRef> {
        let in_main = self.log.open.as_mut().and_then(|open| open.fit_into(own, content));
        in_main.or_else(|| self.streams.fit_into(own, content, unit_pages))
    }

    /// Changes a page in place to `block`, which [`Self::fit_into`] returned.
    pub(crate) fn change_page(&mut self, block: &PageRef, content: &Content<'_>) {
        let main = self.log.open.as_mut().expect("a partial segment was opened");
        if main.change_page(block, content).is_none() {
            let changed = self.streams.change_page(block, content);
            let named = changed.flatten().expect("the main log names what may be changed");
            main.update_record(named, block);
        }
    }

    pub(crate) fn partial(&mut self) -> &mut Partial {
        self.log.open.as_mut().expect("a partial segment was opened")
    }

    /// Opens a partial segment if none is open.
    pub(crate) fn open_partial(&mut self) -> Outcome<()> {
        if self.log.open.is_some() {
            return Ok(());
        }
        let layout = self.state.segments().layout();
        let size = layout.segment_size_bytes();
        // A segment that the device could not write is left early, if the log states already where
        // it continues.
        let is_bad = self.state.segments().is_retired(self.log.segment)
            && self.log.offset_bytes > 0
            && self.log.next_segment.is_some();
        if is_bad || size - u64::from(self.log.offset_bytes) < MIN_CAPACITY_BYTES as u64 {
            let Some(next) = self.log.next_segment.take() else {
                return Err(Error::Failed(
                    "the log has no segment in which it can continue".into(),
                )
                .into());
            };
            self.state.segments_mut().close(self.log.segment);
            self.log.segment = next;
            self.log.offset_bytes = 0;
        }
        if self.log.next_segment.is_none() {
            self.log.next_segment = self.state.segments_mut().open(Head::Main, Class::MAIN);
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
            self.state.versions().epoch(),
            self.spare_tables.pop().unwrap_or_default(),
        ));
        Ok(())
    }

    fn take_buf(&mut self) -> AlignedBuf {
        // A buffer that was written just now is most likely still in the processor's cache.
        self.forget_written();
        let len = buffer_len(self.state.segments().layout());
        if self.pool.is_empty() && len >= POOLED_LEN_BYTES {
            self.pool = AlignedBuf::several(POOL_STEP, len);
        }
        self.pool.pop().unwrap_or_else(|| AlignedBuf::zeroed(len))
    }

    /// The bytes that were put into the log since the disk was opened.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.written_bytes + self.open_bytes()
    }

    /// The part of these bytes that is not on the device yet.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.open_bytes()
            + self.in_memory.iter().map(|closed| closed.len_bytes() as u64).sum::<u64>()
    }

    fn open_bytes(&self) -> u64 {
        let open = self.log.open.iter().chain(self.streams.open());
        open.map(|partial| partial.used_bytes() as u64).sum()
    }

    /// The size of the buffers of partial segments: in use, kept, spare. The one buffer of the map
    /// stream is not counted.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let open = self.log.open.iter().chain(self.streams.open()).map(Partial::buffer_bytes);
        let closed = self.in_memory.iter().map(|closed| closed.buffer_bytes());
        let spare = self.pool.iter().map(|buf| buf.len());
        let kept = self.lately_written.buffer_bytes();
        (open.chain(closed).chain(spare).sum::<usize>() + kept) as u64
    }

    /// Closes the open partial segment, and notes the segments that are empty with that. No unit
    /// may be open.
    pub(crate) fn close_partial(&mut self) {
        self.seal_partial();
        self.note_reclaimable();
    }

    /// Queues the open partial segment behind the blocks that it names (streams invariant 1).
    fn seal_partial(&mut self) {
        self.log.closed_commit_seq = self.commit_seq;
        let Some(partial) = self.log.open.take() else { return };
        if partial.is_empty() {
            self.log.open = Some(partial);
            return;
        }
        self.close_streams();
        let base = partial.base();
        let has_short_blocks = partial.has_short_blocks();
        let (buf, len_bytes, crc32c, tables) = partial.close(PartialHeader {
            seq: self.log.seq,
            prev_crc32c: self.log.prev_crc32c,
            next_segment: self.log.next_segment.unwrap_or(SegmentNo(0)),
            commit_seq: self.commit_seq,
            durable_seq: self.durable_seq,
            time: self.began,
            ..header_of(Head::Main, self.uuid)
        });
        self.spare_tables.push(tables);
        let generation = self.state.segments().generation_at(base);
        let closed = Closed::new(buf, len_bytes, base, generation, has_short_blocks);
        self.log.offset_bytes += len_bytes as u32;
        self.log.seq += 1;
        self.log.prev_crc32c = crc32c;
        self.replay_bytes += len_bytes as u64;
        self.hand_to_writer(closed);
    }

    /// Queues the open partial segments of all payload streams, before the partial segment of the
    /// main log that names their blocks (streams invariant 1).
    fn close_streams(&mut self) {
        for number in 0..self.streams.all.len() {
            self.close_stream(number);
        }
    }

    /// Queues the open partial segment of payload stream `number`.
    fn close_stream(&mut self, number: usize) {
        let stream = &mut self.streams.all[number];
        let Some(mut partial) = stream.open.take() else { return };
        if partial.is_empty() {
            stream.open = Some(partial);
            return;
        }
        partial.complete();
        let base = partial.base();
        let has_short_blocks = partial.has_short_blocks();
        let (buf, len_bytes, crc32c, tables) = partial.close(PartialHeader {
            class: stream.class.number(),
            seq: stream.seq,
            prev_crc32c: stream.prev_crc32c,
            commit_seq: self.commit_seq,
            time: self.began,
            ..header_of(Head::Payload, self.uuid)
        });
        self.spare_tables.push(tables);
        stream.offset_bytes += len_bytes as u32;
        stream.seq += 1;
        stream.prev_crc32c = crc32c;
        self.replay_bytes += len_bytes as u64 / PAYLOAD_PER_REPLAYED;
        let generation = self.state.segments().generation_at(base);
        self.hand_to_writer(Closed::new(buf, len_bytes, base, generation, has_short_blocks));
    }

    /// Notes the segments that the closed partial segments of the main log have emptied, if the
    /// open one is empty.
    fn note_reclaimable(&mut self) {
        if self.log.open.as_ref().is_none_or(Partial::is_empty) {
            let reclaimable = self.state.segments_mut().take_reclaimable();
            self.reuse_queue.note_closed(self.log.seq.saturating_sub(1), reclaimable);
        }
    }

    /// About how many segments can become clean without a checkpoint.
    pub(crate) fn reusable_count(&self) -> u32 {
        (self.state.segments().reclaimable_count() + self.reuse_queue.len()) as u32
    }

    /// Removes segments from the reuse queue that a checkpoint makes clean.
    pub(crate) fn withdraw_from_reuse(&mut self, segments: &[SegmentNo]) {
        self.state.segments_mut().forget_reclaimable(segments);
        self.reuse_queue.withdraw(segments);
    }

    fn hand_to_writer(&mut self, closed: Closed) {
        let closed = Arc::new(closed);
        self.log_bytes += closed.len_bytes() as u64;
        self.written_bytes += closed.len_bytes() as u64;
        self.in_memory.push(Arc::clone(&closed));
        self.writer.push(closed);
    }

    /// Forgets the partial segments that were written: from now on their blocks are read from the
    /// device, or from those that are kept (lately 1).
    pub(crate) fn forget_written(&mut self) {
        for written in self.writer.take_written() {
            self.in_memory.retain(|closed| !closed.is_at_place_of(&written));
            let Ok(closed) = Arc::try_unwrap(written) else { continue };
            let unused = self.lately_written.keep(closed);
            if self.pool.len() < POOL_LEN {
                self.pool.extend(unused);
            }
        }
    }

    /// The stored bytes of a block, if they are in memory (engine invariant 3).
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

    /// The stored bytes of a block that was written lately, if they are still in memory.
    pub(crate) fn block_lately_written(&self, block: &PageRef) -> Option<&[u8]> {
        self.lately_written.block(block, self.state.segments().generation_at(block.addr))
    }

    /// Keeps the stored bytes of a block that was just placed, because they are likely to be read
    /// soon.
    pub(crate) fn keep_recent(&self, block: &PageRef, bytes: Arc<[u8]>) {
        self.recent.keep(block, self.state.segments().generation_at(block.addr), bytes);
    }

    /// Keeps a block no longer, because another one replaces it.
    pub(crate) fn forget_recent(&self, block: &PageRef) {
        self.recent.forget(block.addr);
    }

    /// The bytes of a block that were kept; zeros at their end may be missing.
    pub(crate) fn recent_block(&self, block: &PageRef) -> Option<Arc<[u8]>> {
        self.recent.get(block, self.state.segments().generation_at(block.addr))
    }

    /// What the kept blocks take in memory.
    pub(crate) fn recent_bytes(&self) -> u64 {
        self.recent.memory_bytes()
    }
}
