//! What the disk's one lock guards: the state, the main log's head, and what of the log is still
//! in memory.
//!
//! Invariants:
//! 1. A recovery unit's records follow each other in the log: units are applied one at a time.
//! 2. What lies in the open partial segment is changed only by units that end in it; all of it
//!    takes effect or nothing does.
//! 3. A block is read from memory as long as its partial segment has not been written.

use dendro_base::sync::Arc;
use dendro_base::units::PAGE_SIZE;
use dendro_base::{Clock, Timestamp, Uuid};
use dendro_device::AlignedBuf;
use dendro_disk::{Aru, CommitSeq, Error, ListHints, Op};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::{MAX_FIXED_LEN_BYTES, PUT_RECORD_LEN_BYTES, VERSION_LEN_BYTES};
use dendro_format::{Addr, Head, PageRef, PartialHeader, Record, SegmentNo};
use dendro_policy::Class;
use smallvec::SmallVec;

use crate::commit::check::Sole;
use crate::fault::Outcome;
use crate::log::partial::{
    Content, MIN_CAPACITY_BYTES, Partial, RecordContext, header_of, page_record_bytes,
};
use crate::log::streams::Streams;
use crate::log::writer::{Closed, Writer};
use crate::map::Nodes;
use crate::space::reuse::ReuseQueue;
use crate::state::chunk_edit::Before;
use crate::state::visibility::ItemKey;
use crate::state::{State, groups, page_range};

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
    /// Why nothing can be told of the lists any more: a unit stopped half-way.
    pub(crate) torn: Option<Error>,
    pub(crate) uuid: Uuid,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) writer: Arc<Writer>,
    pool: Vec<AlignedBuf>,
    /// The version that the unit being applied changes.
    pub(crate) context: RecordContext,
    /// Clean segments that payload streams leave to those who must never wait.
    pub(crate) kept_segments: usize,
    /// Whether the pages of the unit being applied go to payload streams.
    apart: bool,
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

/// What a unit stores, in its order: of the pages that it writes, and of the records that it puts. It
/// takes longer to find out than all else that a commit does to them, and needs no lock.
pub(crate) struct Contents<'a> {
    pages: SmallVec<[Content<'a>; 1]>,
    records: SmallVec<[Arc<[u8]>; 3]>,
}

impl<'a> Contents<'a> {
    pub(crate) fn of(aru: &'a Aru<'_>) -> Self {
        let (mut pages, mut records) = (SmallVec::new(), SmallVec::new());
        for op in aru.ops() {
            match op {
                Op::WritePages { data, .. } => {
                    pages.extend(data.chunks(PAGE_SIZE).map(Content::of_page));
                }
                Op::PutRecord { value, .. } => records.push(Arc::from(&**value)),
                _ => {}
            }
        }
        Self { pages, records }
    }
}

/// What is left of [`Contents`] for the changes of a unit that follow, and what was found of them.
struct Rest<'c, 'a> {
    pages: &'c [Content<'a>],
    records: smallvec::IntoIter<[Arc<[u8]>; 3]>,
    sole: Sole,
}

/// What a unit takes at worst.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    pages: usize,
    record_bytes: usize,
    map_bytes: u64,
    zero_pages: u64,
}

/// Bytes of map that `count` pages of zeros take at least, though they have no blocks. Who asks
/// for more of them than the volume can map asks in vain.
pub(crate) const fn zeroed_map_bytes(count: u64) -> u64 {
    count / CHUNK_PAGES * 8
}

impl Worst {
    pub(crate) fn of(aru: &Aru<'_>) -> Self {
        let mut worst = Self { record_bytes: VERSION_LEN_BYTES, ..Self::default() };
        for op in aru.ops() {
            match op {
                Op::PutRecord { value, .. } => {
                    worst.record_bytes += PUT_RECORD_LEN_BYTES + value.len();
                }
                Op::WritePages { data, .. } => {
                    let pages = data.len().div_ceil(PAGE_SIZE);
                    worst.pages += pages;
                    worst.record_bytes += page_record_bytes(pages);
                }
                Op::ZeroPages { count, .. } => {
                    worst.record_bytes += MAX_FIXED_LEN_BYTES;
                    worst.map_bytes += zeroed_map_bytes(*count);
                    worst.zero_pages = worst.zero_pages.saturating_add(*count);
                }
                _ => worst.record_bytes += MAX_FIXED_LEN_BYTES,
            }
        }
        worst
    }

    pub(crate) const fn has_pages(self) -> bool {
        self.pages > 0
    }

    /// What the pages of zeros take when they are written.
    pub(crate) const fn zero_pages_bytes(self) -> u64 {
        self.zero_pages.saturating_mul(PAGE_SIZE as u64)
    }

    /// What the pages take at worst, those of zeros included.
    pub(crate) const fn pages_bytes(self) -> u64 {
        (self.pages as u64).saturating_add(self.zero_pages).saturating_mul(PAGE_SIZE as u64)
    }

    /// Bytes of log, the blocks that partial segments leave unused included.
    pub(crate) const fn len_bytes(self) -> u64 {
        let bytes = self.pages * PAGE_SIZE + self.record_bytes;
        (bytes + bytes / 64 + 4 * PAGE_SIZE) as u64 + self.map_bytes
    }
}

/// The 16 bits that the map and the log keep of a list's hints.
pub(crate) const fn encode_hints(hints: ListHints) -> u16 {
    hints.compression as u16 | (hints.locality as u16) << 4
}

pub(crate) const fn decode_hints(bits: u16) -> ListHints {
    use dendro_disk::{Compression, Locality};
    let compression = match bits & 0xf {
        1 => Compression::None,
        2 => Compression::Lz4,
        3 => Compression::Zstd,
        _ => Compression::Default,
    };
    let locality = if bits >> 4 & 1 == 1 { Locality::Clustered } else { Locality::AsWritten };
    ListHints { compression, locality }
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
            torn: None,
            uuid,
            clock,
            writer,
            pool: Vec::new(),
            context: RecordContext::start(1),
            kept_segments: 0,
            apart: false,
            last_class: None,
            spans: false,
            written_bytes: 0,
            user_page_bytes: 0,
            user_record_bytes: 0,
        }
    }

    /// Whether what is in memory is the state after some commit.
    ///
    /// # Errors
    /// Why the unit was not finished that stopped half-way.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        self.torn.clone().map_or(Ok(()), Err)
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

    /// Applies a unit that was found sound and to fit.
    pub(crate) fn apply(
        &mut self,
        aru: &Aru<'_>,
        contents: Contents<'_>,
        sole: Sole,
        worst: Worst,
        nodes: &dyn Nodes,
    ) -> Outcome<CommitSeq> {
        self.set_context(aru.view().branch);
        self.apart = worst.pages > 0 && self.streams.are_used() && self.has_segments_for(worst);
        let pages = if self.apart { 0 } else { worst.pages };
        self.begin_unit(pages, worst.record_bytes)?;
        let Contents { pages, records } = contents;
        let mut rest = Rest { pages: &pages, records: records.into_iter(), sole };
        for op in aru.ops() {
            self.apply_op(op, &mut rest, nodes)?;
            self.state.account_for_nodes();
        }
        self.commit_seq += 1;
        self.end_unit();
        if self.partial().used_bytes() >= PARTIAL_LEN_BYTES {
            self.close_partial();
        }
        Ok(CommitSeq(self.commit_seq))
    }

    /// Finds a place for a unit that takes no more than so much of the main log.
    pub(crate) fn begin_unit(&mut self, pages: usize, record_bytes: usize) -> Outcome<()> {
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
        let context = self.context;
        self.partial().set_context(context);
        Ok(())
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

    /// Puts records of a list of the disk's own, or deletes them, as a unit of the epoch that
    /// [`Self::set_context`] was last called in.
    pub(crate) fn apply_system_records(
        &mut self,
        list: u64,
        changes: &[(u64, Option<Vec<u8>>)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let len =
            |value: &Option<Vec<u8>>| PUT_RECORD_LEN_BYTES + value.as_ref().map_or(0, Vec::len);
        let record_bytes = changes.iter().map(|(_, value)| len(value)).sum::<usize>();
        self.begin_unit(0, VERSION_LEN_BYTES + record_bytes)?;
        for (index, value) in changes {
            self.make_room(0, 0, len(value))?;
            // Never in the place of an earlier one: what lies between depends on the order.
            let index = *index;
            self.partial().push(&match value {
                Some(value) => Record::PutRecord { list, index, value },
                None => Record::DeleteRecord { list, index },
            });
            self.state.put_system_record(list, index, value.as_deref(), nodes)?;
        }
        self.state.account_for_nodes();
        self.commit_seq += 1;
        self.end_unit();
        Ok(())
    }

    /// Writes what is stored of a page as a page of the head, as a unit of its own.
    pub(crate) fn write_copy(
        &mut self,
        list: u64,
        page_index: u64,
        stored: &[u8],
    ) -> Outcome<PageRef> {
        self.begin_unit(1, page_record_bytes(1) + MAX_FIXED_LEN_BYTES)?;
        let block = match stored.len() {
            0 => {
                self.push(&Record::ZeroPages { list, first_page: page_index, count: 1 })?;
                PageRef::ZERO
            }
            len => self.partial().push_page(list, page_index, &Content::of(stored, len)),
        };
        self.end_unit();
        Ok(block)
    }

    /// Whether the payload streams will find segments for so much, wherever it goes.
    fn has_segments_for(&self, worst: Worst) -> bool {
        let size = self.state.segments.layout().segment_size_bytes();
        // Headers, and what is too little for another partial segment, take a part of each.
        let bytes = worst.len_bytes() + worst.len_bytes() / 4;
        // Mostly there are more than it could take.
        let at_most = bytes.div_ceil(size) as usize + worst.pages;
        if self.state.segments.has_free(at_most.max(self.kept_segments)) {
            return true;
        }
        let filled_up = self.streams.filled_up_by(worst.pages, bytes, size);
        let needed = bytes.div_ceil(size) as usize + filled_up;
        self.state.segments.has_free(needed.max(self.kept_segments))
    }

    /// Applies one change; what it stores is the first of `rest`, and taken from there.
    fn apply_op(&mut self, op: &Op<'_>, rest: &mut Rest<'_, '_>, nodes: &dyn Nodes) -> Outcome<()> {
        let branch = self.context.branch;
        match op {
            Op::CreateList { list, hints } => {
                let hints = encode_hints(*hints);
                self.push(&Record::CreateList { list: list.0, hints })?;
                self.state.create_list(branch, list.0, hints, nodes)
            }
            Op::DeleteList { list } => {
                self.push(&Record::DeleteList { list: list.0 })?;
                self.state.delete_list(branch, list.0, nodes)
            }
            Op::SetHints { list, hints } => {
                let hints = encode_hints(*hints);
                self.push(&Record::SetHints { list: list.0, hints })?;
                self.state.put_list(branch, list.0, hints, nodes)
            }
            Op::PutRecord { list, index, .. } => {
                let value = rest.records.next().expect("each record put is among the contents");
                self.user_record_bytes += value.len() as u64;
                self.make_room(0, 0, PUT_RECORD_LEN_BYTES + value.len())?;
                self.partial().push_put(list.0, *index, &value);
                self.state.put_record(branch, list.0, *index, value, nodes)
            }
            Op::DeleteRecord { list, index } => {
                self.push(&Record::DeleteRecord { list: list.0, index: *index })?;
                self.state.delete_record(branch, list.0, *index, nodes)
            }
            Op::WritePages { list, first_page, data } => {
                self.user_page_bytes += data.len() as u64;
                let pages;
                (pages, rest.pages) = rest.pages.split_at(data.len().div_ceil(PAGE_SIZE));
                self.write_pages(list.0, *first_page, pages, rest.sole, nodes)
            }
            Op::ZeroPages { list, first_page, count } => {
                self.push(&Record::ZeroPages {
                    list: list.0,
                    first_page: *first_page,
                    count: *count,
                })?;
                self.state.zero_pages(branch, list.0, page_range(*first_page, *count), nodes)
            }
            Op::PunchPages { list, first_page, count } => {
                self.push(&Record::PunchPages {
                    list: list.0,
                    first_page: *first_page,
                    count: *count,
                })?;
                self.state.punch_pages(branch, list.0, page_range(*first_page, *count), nodes)
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                self.push(&Record::MovePages {
                    from: from.0,
                    from_page: *from_page,
                    to: to.0,
                    to_page: *to_page,
                    count: *count,
                })?;
                self.state.move_pages(branch, (from.0, *from_page), (to.0, *to_page), *count, nodes)
            }
            Op::SwapPages { a, b } => {
                self.push(&Record::SwapPages { a: a.0, b: b.0 })?;
                self.state.swap_pages(branch, a.0, b.0, nodes)
            }
        }
    }

    fn write_pages(
        &mut self,
        list: u64,
        first_page: u64,
        pages: &[Content<'_>],
        sole: Sole,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let content_of = |page_index: u64| &pages[(page_index - first_page) as usize];
        for (number, slots) in groups(first_page..first_page + pages.len() as u64) {
            let branch = self.context.branch;
            self.last_class = None;
            if slots.len() == 1 {
                let (item, slot) = (ItemKey::chunk(list, number), slots.start);
                let found = match sole {
                    Sole::Looked(found) => found,
                    Sole::Unknown => self.state.sole_page(branch, item, slot, nodes)?,
                };
                if let Some(Before { own, seen }) = found {
                    let page_index = number * CHUNK_PAGES + u64::from(slot);
                    let content = content_of(page_index);
                    let block = self.change_or_write(list, page_index, content, (own, seen))?;
                    self.state.replace_own(branch, item, (slot, own), block, nodes)?;
                    continue;
                }
            }
            let mut group = self.state.open_group(branch, list, number, slots.clone(), nodes)?;
            for slot in slots {
                let page_index = number * CHUNK_PAGES + u64::from(slot);
                let old = (group.own_page(slot), group.page(slot));
                let block = self.change_or_write(list, page_index, content_of(page_index), old)?;
                self.state.replace(&mut group, slot, block);
            }
            self.state.put_group(&group, nodes)?;
        }
        Ok(())
    }

    /// Changes a page where it is, if that is still to be written; or puts it into the log. `old` are
    /// the page that the head wrote in its epoch, and the page that it sees.
    fn change_or_write(
        &mut self,
        list: u64,
        page_index: u64,
        content: &Content<'_>,
        (own, old): (Option<PageRef>, Option<PageRef>),
    ) -> Outcome<PageRef> {
        match own.and_then(|own| self.change_page(&own, content)) {
            Some(changed) => Ok(changed),
            None => self.write_page(list, page_index, content, old),
        }
    }

    /// Puts one page into the log; returns where it lies.
    fn write_page(
        &mut self,
        list: u64,
        page_index: u64,
        content: &Content<'_>,
        old: Option<PageRef>,
    ) -> Outcome<PageRef> {
        if content.is_empty() {
            self.push(&Record::ZeroPages { list, first_page: page_index, count: 1 })?;
            return Ok(PageRef::ZERO);
        }
        let block = self.push_block(list, page_index, content, old)?;
        self.streams.note_block(&block);
        Ok(block)
    }

    /// Changes a page that was written since the open partial segment was begun where it is.
    fn change_page(&mut self, old: &PageRef, content: &Content<'_>) -> Option<PageRef> {
        let partial = self.log.open.as_mut()?;
        if let Some((changed, _)) = partial.change_page(old, content) {
            return Some(changed);
        }
        let (changed, named) = self.streams.change_page(old, content)?;
        partial.update_record(named.expect("the main log names it"), &changed);
        Some(changed)
    }

    fn push_block(
        &mut self,
        list: u64,
        page_index: u64,
        content: &Content<'_>,
        old: Option<PageRef>,
    ) -> Outcome<PageRef> {
        let class = match self.apart.then(|| self.user_class(old)) {
            // The room that the unit was found to have in the main log is for its records.
            Some(Class::MAIN) => self.streams.any_user_class(),
            Some(class) => class,
            None => Class::MAIN,
        };
        if class != Class::MAIN {
            self.make_room(0, 0, page_record_bytes(1))?;
            return self.push_apart(class, list, page_index, content).ok_or_else(|| {
                Error::Failed(format!("class {class} found no segment to go on in")).into()
            });
        }
        let (pages, short_bytes) = content.room();
        self.make_room(pages, short_bytes, page_record_bytes(1))?;
        Ok(self.partial().push_page(list, page_index, content))
    }

    fn push(&mut self, record: &Record<'_>) -> Outcome<()> {
        self.make_room(0, 0, MAX_FIXED_LEN_BYTES)?;
        self.partial().push(record);
        Ok(())
    }

    fn fits(&mut self, pages: usize, short_bytes: usize, record_bytes: usize) -> bool {
        self.partial().fits(pages, short_bytes, record_bytes)
    }

    /// Goes on to the next partial segment if so much does not fit into this one.
    fn make_room(&mut self, pages: usize, short_bytes: usize, record_bytes: usize) -> Outcome<()> {
        while !self.fits(pages, short_bytes, record_bytes) {
            assert!(self.spans, "a unit that was found to fit fits (invariant 2)");
            self.close_partial();
            self.open_partial()?;
            let context = self.context;
            self.partial().set_context(context);
        }
        Ok(())
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
        self.note_emptied();
    }

    /// Notes what the closed partial segments of the main log have emptied, if the open one is empty.
    /// What a unit emptied that goes on is told only when its end is.
    pub(crate) fn note_emptied(&mut self) {
        if !self.spans && self.log.open.as_ref().is_none_or(Partial::is_empty) {
            let emptied = self.state.segments.take_emptied();
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
