//! Opening a volume: the newest checkpoint, then the log rolled forward (DESIGN §6).
//!
//! The log is followed from where the checkpoint says, partial segment by partial segment: behind
//! the last one in its segment or, failing that, at the start of the segment that it names next.
//! It ends at the first that does not continue the chain. Payload is checked for those partial
//! segments that no later one knows to be durable: in the others a wrong checksum is damage, which
//! reading will tell, not an end of the log.
//!
//! A volume that was not shut down cleanly goes on in fresh segments behind a checkpoint of its
//! own: whatever lies behind the end that was found is never looked at again.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use dendro_base::sync::Arc;
use dendro_base::units::PAGE_SIZE;
use dendro_base::{Clock, Uuid};
use dendro_device::{AlignedBuf, Device};
use dendro_disk::{Error, Lid, Result};
use dendro_format::checkpoint::HeadPosition;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::Records;
use dendro_format::usage::USAGE_LIST;
use dendro_format::versions::{COUNTERS_INDEX, VERSIONS_LIST};
use dendro_format::{
    Addr, Checkpoint, Head, Key, Layout, PageRef, PartialHeader, Record, SegmentNo, Space,
    Superblock, Usage, Value, checksum, checksum_append,
};

use dendro_policy::{Class, Present};

use crate::checkpoint::{Checkpoints, MapHead};
use crate::core::{Core, MainHead, zeroed_map_bytes};
use crate::disk::LogDisk;
use crate::fault::Fault;
use crate::heads::Heads;
use crate::line::Thing;
use crate::map::{Map, Nodes};
use crate::options::{FormatOptions, OpenOptions};
use crate::partial::{About, MIN_CAPACITY_BYTES};
use crate::segments::Segments;
use crate::state::{State, page_range};
use crate::store::{Held, NodeStore};
use crate::superblocks;
use crate::versions::Versions;
use crate::writer::Writer;

/// Numbers of partial segments skipped after a crash, so that none written before it but lost can
/// be mistaken for one written after.
const SEQ_SKIP: u64 = 1 << 20;

/// Makes an empty volume on `device`. Whatever was there is lost.
///
/// # Errors
/// [`Error::Io`] when the options do not fit the device; [`Error::Failed`] when it cannot be
/// written.
pub fn format(
    device: &Arc<dyn Device>,
    options: &FormatOptions,
    clock: &Arc<dyn Clock>,
) -> Result<()> {
    let log2 = options.segment_size_bytes.trailing_zeros() as u8;
    if !options.segment_size_bytes.is_power_of_two() {
        return Err(Error::Io(format!(
            "a segment of {} bytes: it must be a power of two",
            options.segment_size_bytes
        )));
    }
    let count = u32::try_from(device.len_bytes() / options.segment_size_bytes)
        .map_err(|_| Error::Io("the device has too many segments; make them larger".into()))?;
    let layout = Layout::new(log2, count).map_err(|malformed| {
        Error::Io(format!(
            "{} bytes of device in segments of {} bytes: {}",
            device.len_bytes(),
            options.segment_size_bytes,
            malformed.problem
        ))
    })?;
    wipe(&**device, layout)?;
    let now = clock.now();
    let superblock = Superblock {
        uuid: options.uuid,
        // The first that is written gets the number 0.
        seq: u64::MAX,
        compatible: 0,
        read_only: 0,
        incompatible: 0,
        layout,
        clean: false,
        compression: 0,
        checkpoint_addr: Addr(0),
        checkpoint_len_bytes: 0,
        checkpoint_crc32c: 0,
        created: now,
        written: now,
        hash_key: options.hash_key,
        label: options.label.clone(),
    };
    let mut segments = Segments::new(layout);
    let log =
        fresh_head(&mut segments, 1, 0).ok_or_else(|| Error::Io("too few segments".into()))?;
    let state = State {
        map: Map::from_root(None),
        segments,
        versions: Versions::new(now),
        next_list: Lid::FIRST.0,
        clock: 0,
    };
    let options = OpenOptions::default();
    let store =
        NodeStore::new(Arc::clone(device), superblock.uuid, layout, options.cache_size_bytes);
    let writer = Arc::new(Writer::default());
    let heads = Heads::new(Arc::clone(&options.policy), options.stream_bytes, &present(&state));
    let core = Core::new(state, log, heads, 0, superblock.uuid, Arc::clone(clock), writer);
    let checkpoints = Checkpoints::default();
    let disk = LogDisk::assemble(Arc::clone(device), options, superblock, store, core, checkpoints);
    dendro_disk::LogicalDisk::shut_down(&disk)
}

fn present(state: &State) -> Present {
    let layout = state.segments.layout();
    Present {
        clock: state.clock,
        live_bytes: state.segments.live_bytes(),
        segment_bytes: layout.segment_size_bytes(),
        segment_count: layout.segment_count(),
    }
}

/// Overwrites every place where a superblock of an earlier volume could be found.
fn wipe(device: &dyn Device, layout: Layout) -> Result<()> {
    use dendro_format::layout::{MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_SIZE_LOG2};
    let failed = |error: dendro_device::Error| Error::Failed(error.to_string());
    for area in [0, 1] {
        let range = layout.superblock_area(area);
        let zeros = AlignedBuf::zeroed((range.end - range.start) as usize);
        device.write_at(range.start, &zeros).map_err(failed)?;
    }
    let zeros = AlignedBuf::zeroed(PAGE_SIZE);
    for offset in (MIN_SEGMENT_SIZE_LOG2..=MAX_SEGMENT_SIZE_LOG2).map(|log2| 1_u64 << log2) {
        if offset + PAGE_SIZE as u64 <= device.len_bytes() {
            device.write_at(offset, &zeros).map_err(failed)?;
        }
    }
    device.flush().map_err(failed)
}

/// A main head at the start of a clean segment.
fn fresh_head(segments: &mut Segments, seq: u64, prev_crc32c: u32) -> Option<MainHead> {
    let segment = segments.open(Head::Main, Class::MAIN)?;
    let next_segment = segments.open(Head::Main, Class::MAIN);
    Some(MainHead { segment, offset_bytes: 0, seq, prev_crc32c, next_segment, open: None })
}

impl LogDisk {
    /// Opens the volume on `device`, rolling its log forward.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when there is no volume or it is damaged where everything starts;
    /// [`Error::Io`] when the device cannot be read; [`Error::Failed`] when it cannot be written.
    pub fn open(
        device: Arc<dyn Device>,
        mut options: OpenOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let superblock = superblocks::find(&*device)?;
        options.read_only |= device.is_read_only() || !superblocks::is_writable(&superblock);
        let checkpoint = read_checkpoint(&*device, &superblock)?;
        let store = NodeStore::new(
            Arc::clone(&device),
            superblock.uuid,
            superblock.layout,
            options.cache_size_bytes,
        );
        let nodes = Held::loading(&store);
        let mut state = restore(&superblock, &checkpoint, &nodes)?;
        let chain = Scan::new(&*device, superblock.uuid, superblock.layout, &checkpoint)
            .run(options.skip_payload_checks)?;
        for &segment in &chain.payload_segments {
            if let Some(class) = read_class(&*device, &superblock, segment) {
                state.segments.set_class(segment, Head::Payload, class);
            }
        }
        replay(&mut state, &chain, superblock.layout, &nodes)?;
        state.versions.check()?;
        let commit_seq =
            chain.partials.last().map_or(checkpoint.commit_seq, |last| last.header.commit_seq);
        state.segments.settle();

        let continues = superblock.clean && chain.partials.is_empty();
        let mut map_head = MapHead::default();
        state.segments.close(superblock.layout.segment_of(superblock.checkpoint_addr));
        let log = if options.read_only {
            MainHead {
                segment: checkpoint.log.segment,
                offset_bytes: checkpoint.log.offset_bytes,
                seq: checkpoint.log_seq,
                prev_crc32c: checkpoint.log_prev_crc32c,
                next_segment: None,
                open: None,
            }
        } else if continues {
            continue_heads(&mut state.segments, &checkpoint, &mut map_head)
        } else {
            for segment in chain.segments(&checkpoint) {
                state.segments.close(segment);
            }
            fresh_head(&mut state.segments, chain.next_seq + SEQ_SKIP, chain.prev_crc32c)
                .ok_or_else(|| Error::Failed("no clean segment is left to go on in".into()))?
        };
        let checkpoints = Checkpoints::after(checkpoint.seq, checkpoint.time, map_head);
        let read_only = options.read_only;
        let writer = Arc::new(Writer::default());
        let heads = Heads::new(Arc::clone(&options.policy), options.stream_bytes, &present(&state));
        let core = Core::new(state, log, heads, commit_seq, superblock.uuid, clock, writer);
        let disk = Self::assemble(device, options, superblock, store, core, checkpoints);
        if read_only {
            let mut core = disk.core.write();
            core.log_bytes =
                chain.partials.iter().map(|partial| u64::from(partial.header.len_bytes)).sum();
            core.closed_reason =
                Some(Error::ReadOnly("the volume is open for reading only".into()));
            drop(core);
        } else if continues {
            disk.mark_unclean()?;
        } else {
            disk.checkpoint_anew()?;
        }
        Ok(disk)
    }

    /// Says on the device that the volume is in use, before the log goes on where a clean
    /// shutdown left it.
    fn mark_unclean(&self) -> Result<()> {
        let mut superblock = self.superblock.lock();
        superblock.seq = superblock.seq.wrapping_add(1);
        superblock.clean = false;
        superblock.written = self.core.read().clock.now();
        superblocks::append(&self.device, &superblock)
            .map_err(|error| self.latch(Fault::Error(error)))
    }
}

/// The heads as a clean shutdown left them.
fn continue_heads(
    segments: &mut Segments,
    checkpoint: &Checkpoint,
    map_head: &mut MapHead,
) -> MainHead {
    let layout = segments.layout();
    segments.take(checkpoint.log.segment, Head::Main);
    let next_segment =
        layout.is_log_segment(checkpoint.next_segment).then_some(checkpoint.next_segment);
    if let Some(next) = next_segment {
        segments.take(next, Head::Main);
    }
    if layout.is_log_segment(checkpoint.map.segment) {
        segments.take(checkpoint.map.segment, Head::Map);
        map_head.segment = Some(checkpoint.map.segment);
        map_head.offset_bytes = checkpoint.map.offset_bytes;
    }
    MainHead {
        segment: checkpoint.log.segment,
        offset_bytes: checkpoint.log.offset_bytes,
        seq: checkpoint.log_seq,
        prev_crc32c: checkpoint.log_prev_crc32c,
        next_segment,
        open: None,
    }
}

fn read_checkpoint(device: &dyn Device, superblock: &Superblock) -> Result<Checkpoint> {
    let damaged = |problem: &str| {
        Error::Corrupted(format!(
            "the checkpoint at {} of the device: {problem}",
            superblock.checkpoint_addr
        ))
    };
    let layout = superblock.layout;
    let len = superblock.checkpoint_len_bytes;
    if !layout.holds(superblock.checkpoint_addr, u64::from(len)) {
        return Err(damaged("it is not on the device"));
    }
    let mut bytes = vec![0; len as usize];
    device
        .read_at(superblock.checkpoint_addr.bytes(), &mut bytes)
        .map_err(|error| Error::Io(format!("reading the checkpoint: {error}")))?;
    if checksum(&bytes) != superblock.checkpoint_crc32c {
        return Err(damaged("its checksum is wrong"));
    }
    let checkpoint = Checkpoint::decode(&bytes, &superblock.uuid)
        .map_err(|malformed| damaged(malformed.problem))?;
    let size = layout.segment_size_bytes();
    let is_sound = |at: &HeadPosition| {
        layout.is_log_segment(at.segment)
            && u64::from(at.offset_bytes) <= size
            && (at.offset_bytes as usize).is_multiple_of(PAGE_SIZE)
    };
    let root_is_sound =
        checkpoint.root.is_none_or(|(root, _)| layout.holds(root.addr, u64::from(root.len_bytes)));
    let overrides_are_sound =
        checkpoint.usage_overrides.iter().all(|(segment, _)| layout.is_log_segment(*segment));
    if !is_sound(&checkpoint.log)
        || !is_sound(&checkpoint.map)
        || !root_is_sound
        || !overrides_are_sound
    {
        return Err(damaged("it refers to places that are not on the device"));
    }
    Ok(checkpoint)
}

/// The state that the checkpoint describes.
fn restore(superblock: &Superblock, checkpoint: &Checkpoint, nodes: &dyn Nodes) -> Result<State> {
    let layout = superblock.layout;
    let map = Map::from_root(checkpoint.root);
    let mut segments = Segments::new(layout);
    let mut problem = None;
    let from = Key::first(USAGE_LIST, Space::Records, 0);
    let to = Key::first(USAGE_LIST, Space::Chunks, 0);
    map.visit(&from, &to, nodes, &mut |key, value| {
        let Value::Record(bytes) = value else { return ControlFlow::Continue(()) };
        let segment = SegmentNo(u32::try_from(key.index).unwrap_or(u32::MAX));
        match Usage::decode(bytes) {
            Ok(usage) if layout.is_log_segment(segment) => {
                segments.restore(segment, &usage);
                ControlFlow::Continue(())
            }
            _ => {
                problem = Some(segment);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(Fault::into_error)?;
    if let Some(segment) = problem {
        return Err(Error::Corrupted(format!("the usage record of segment {segment}")));
    }
    for (segment, usage) in &checkpoint.usage_overrides {
        segments.restore(*segment, usage);
        segments.mark_unrecorded(*segment);
    }
    let versions = restore_versions(superblock, &map, nodes)?;
    let (next_list, clock) = (checkpoint.next_list, checkpoint.log_clock);
    Ok(State { map, segments, versions, next_list, clock })
}

/// The table of versions that the map holds.
fn restore_versions(superblock: &Superblock, map: &Map, nodes: &dyn Nodes) -> Result<Versions> {
    let mut versions = Versions::new(superblock.created);
    let mut problem = None;
    let from = Key::first(VERSIONS_LIST, Space::Records, 0);
    let to = Key::first(VERSIONS_LIST, Space::Chunks, 0);
    map.visit(&from, &to, nodes, &mut |key, value| {
        let Value::Record(bytes) = value else { return ControlFlow::Continue(()) };
        match versions.enter(key.index, Some(bytes)) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                problem = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(Fault::into_error)?;
    versions.refresh();
    problem.map_or(Ok(()), Err)?;
    versions.check()?;
    Ok(versions)
}

/// A partial segment of the chain.
struct Scanned {
    header: PartialHeader,
    records: Vec<u8>,
    payload_is_sound: bool,
}

/// The log behind a checkpoint.
struct Chain {
    partials: Vec<Scanned>,
    /// Segments that other heads filled with what the records name.
    payload_segments: BTreeSet<SegmentNo>,
    next_seq: u64,
    prev_crc32c: u32,
}

impl Chain {
    /// Every segment that the chain touches or names blocks in, and that it starts from: none may
    /// be filled before a new checkpoint is durable, or a crash until then would find a shorter
    /// log.
    fn segments(&self, checkpoint: &Checkpoint) -> BTreeSet<SegmentNo> {
        let mut segments = self.payload_segments.clone();
        segments.insert(checkpoint.log.segment);
        segments.extend(self.partials.iter().map(|partial| partial.header.segment));
        segments
    }
}

/// What a payload segment was filled with, as its first partial segment says.
fn read_class(device: &dyn Device, superblock: &Superblock, segment: SegmentNo) -> Option<Class> {
    let mut block = AlignedBuf::zeroed(PAGE_SIZE);
    device.read_at(superblock.layout.segment_offset(segment), &mut block).ok()?;
    let (header, _) = PartialHeader::decode(&block).ok()?;
    let is_here = header.uuid == superblock.uuid
        && header.segment == segment
        && header.offset_bytes == 0
        && header.head == Head::Payload;
    is_here.then(|| Class::from_number(header.class))
}

/// Follows the chain.
struct Scan<'a> {
    device: &'a dyn Device,
    uuid: Uuid,
    layout: Layout,
    segment: SegmentNo,
    offset_bytes: u64,
    next_segment: SegmentNo,
    seq: u64,
    prev_crc32c: u32,
    buf: AlignedBuf,
    loaded: Option<SegmentNo>,
}

impl<'a> Scan<'a> {
    fn new(device: &'a dyn Device, uuid: Uuid, layout: Layout, checkpoint: &Checkpoint) -> Self {
        Self {
            device,
            uuid,
            layout,
            segment: checkpoint.log.segment,
            offset_bytes: u64::from(checkpoint.log.offset_bytes),
            next_segment: checkpoint.next_segment,
            seq: checkpoint.log_seq,
            prev_crc32c: checkpoint.log_prev_crc32c,
            buf: AlignedBuf::zeroed(layout.segment_size_bytes() as usize),
            loaded: None,
        }
    }

    fn run(mut self, skip_payload_checks: bool) -> Result<Chain> {
        let mut partials: Vec<Scanned> = Vec::new();
        while let Some(partial) = self.next()? {
            partials.push(partial);
        }
        let durable = partials.iter().map(|partial| partial.header.durable_seq).max().unwrap_or(0);
        let mut windows = Windows::new(self.device);
        let mut end = None;
        for (at, partial) in partials.iter().enumerate() {
            if partial.header.seq > durable
                && !skip_payload_checks
                && !(partial.payload_is_sound && self.others_are_sound(partial, &mut windows)?)
            {
                end = Some(at);
                break;
            }
        }
        // The number goes past all that were seen, the dropped ones too.
        let next_seq = self.seq;
        let prev_crc32c = self.prev_crc32c;
        partials.truncate(end.unwrap_or(partials.len()));
        let payload_segments = partials
            .iter()
            .flat_map(|partial| self.others(partial))
            .map(|block| self.layout.segment_of(block.addr))
            .filter(|segment| self.layout.is_log_segment(*segment))
            .collect();
        Ok(Chain { partials, payload_segments, next_seq, prev_crc32c })
    }

    /// The blocks that the records name outside their own partial segment, where other heads put
    /// them.
    fn others<'b>(&self, partial: &'b Scanned) -> impl Iterator<Item = PageRef> + use<'b> {
        let base = self.layout.segment_offset(partial.header.segment)
            + u64::from(partial.header.offset_bytes);
        let own = base..base + u64::from(partial.header.len_bytes);
        named_blocks(&partial.records)
            .flatten()
            .filter(move |block| !own.contains(&block.addr.bytes()))
    }

    /// Whether all those are as the records say. What cannot be read now may be there all the same:
    /// that is an error, and not the end of the log.
    fn others_are_sound(&self, partial: &Scanned, windows: &mut Windows<'_>) -> Result<bool> {
        for block in self.others(partial) {
            let is_sound = self.layout.holds(block.addr, u64::from(block.footprint_bytes()))
                && windows.checksum_of(&block)? == block.crc32c;
            if !is_sound {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Scanned>> {
        let size = self.layout.segment_size_bytes();
        if size - self.offset_bytes >= MIN_CAPACITY_BYTES as u64
            && let Some(found) = self.look(self.segment, self.offset_bytes)?
        {
            return Ok(Some(found));
        }
        if self.layout.is_log_segment(self.next_segment) {
            return self.look(self.next_segment, 0);
        }
        Ok(None)
    }

    /// The continuation of the chain at this place, if it is there.
    fn look(&mut self, segment: SegmentNo, offset_bytes: u64) -> Result<Option<Scanned>> {
        if self.loaded != Some(segment) {
            self.device
                .read_at(self.layout.segment_offset(segment), &mut self.buf)
                .map_err(|error| Error::Io(format!("rolling the log forward: {error}")))?;
            self.loaded = Some(segment);
        }
        let rest = &self.buf[offset_bytes as usize..];
        let Ok((header, crc32c)) = PartialHeader::decode(rest) else { return Ok(None) };
        let continues = header.head == Head::Main
            && header.uuid == self.uuid
            && header.seq == self.seq
            && header.segment == segment
            && u64::from(header.offset_bytes) == offset_bytes
            && header.prev_crc32c == self.prev_crc32c;
        let Some(partial) = rest.get(..header.len_bytes as usize).filter(|_| continues) else {
            return Ok(None);
        };
        let Some(records) = header.records_of(partial) else { return Ok(None) };
        if !PartialHeader::verify(partial, records) {
            return Ok(None);
        }
        let base = self.layout.segment_offset(segment) + offset_bytes;
        let payload_is_sound = payload_is_sound(records, partial, base);
        let scanned = Scanned { header, records: records.to_vec(), payload_is_sound };
        self.segment = segment;
        self.offset_bytes = offset_bytes + u64::from(header.len_bytes);
        self.next_segment = header.next_segment;
        self.seq += 1;
        self.prev_crc32c = crc32c;
        Ok(Some(scanned))
    }
}

/// Parts of the device, kept while blocks in them are checked: each payload head was filled from
/// front to back, and the records go round the heads.
struct Windows<'a> {
    device: &'a dyn Device,
    loaded: VecDeque<(u64, AlignedBuf)>,
}

impl<'a> Windows<'a> {
    const LEN_BYTES: u64 = 256 << 10;
    /// More than there are heads.
    const MAX_COUNT: usize = 32;

    const fn new(device: &'a dyn Device) -> Self {
        Self { device, loaded: VecDeque::new() }
    }

    /// The checksum of a block, which lies on the device, as it is there.
    fn checksum_of(&mut self, block: &PageRef) -> Result<u32> {
        let mut crc32c = checksum(&[]);
        let (mut at, end) = (block.addr.bytes(), block.addr.bytes() + u64::from(block.len_bytes));
        while at < end {
            let base = at - at % Self::LEN_BYTES;
            let upto = end.min(base + Self::LEN_BYTES);
            let window = self.window(base)?;
            crc32c = checksum_append(crc32c, &window[(at - base) as usize..(upto - base) as usize]);
            at = upto;
        }
        Ok(crc32c)
    }

    fn window(&mut self, base: u64) -> Result<&AlignedBuf> {
        if let Some(at) = self.loaded.iter().position(|(known, _)| *known == base) {
            return Ok(&self.loaded[at].1);
        }
        let oldest =
            if self.loaded.len() >= Self::MAX_COUNT { self.loaded.pop_front() } else { None };
        let mut buf =
            oldest.map_or_else(|| AlignedBuf::zeroed(Self::LEN_BYTES as usize), |(_, buf)| buf);
        let len = Self::LEN_BYTES.min(self.device.len_bytes().saturating_sub(base)) as usize;
        self.device
            .read_at(base, &mut buf[..len])
            .map_err(|error| Error::Io(format!("rolling the log forward: {error}")))?;
        self.loaded.push_back((base, buf));
        Ok(&self.loaded[self.loaded.len() - 1].1)
    }
}

/// The blocks that records name, each with its checksum; an error where a record makes no sense.
fn named_blocks(records: &[u8]) -> impl Iterator<Item = Option<PageRef>> {
    Records::new(records).flat_map(|record| {
        let (run, single) = match record {
            Ok(Record::WriteRun { addr, crcs, .. }) => (Some((addr, crcs)), None),
            Ok(Record::WriteBlock { block, .. }) => (None, Some(Some(block))),
            Ok(_) => (None, None),
            Err(_) => (None, Some(None)),
        };
        let of_run = run.into_iter().flat_map(|(addr, crcs)| {
            (0_u64..).zip(crcs).map(move |(index, crc)| {
                Some(PageRef {
                    addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                    crc32c: crc.get(),
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                })
            })
        });
        of_run.chain(single)
    })
}

/// Whether every block that the records name in this partial segment has its checksum; those in
/// other heads' are left to [`Scan::others_are_sound`].
fn payload_is_sound(records: &[u8], partial: &[u8], base: u64) -> bool {
    named_blocks(records).all(|block| {
        let Some(block) = block else { return false };
        let start = block.addr.bytes().checked_sub(base).and_then(|at| usize::try_from(at).ok());
        let Some(start) = start.filter(|&start| start < partial.len()) else { return true };
        let stored = partial.get(start..start + usize::from(block.len_bytes));
        stored.is_some_and(|stored| checksum(stored) == block.crc32c)
    })
}

/// Applies the complete units of the chain; what follows the last complete one is dropped.
fn replay(state: &mut State, chain: &Chain, layout: Layout, nodes: &dyn Nodes) -> Result<()> {
    let mut pending: Vec<(About, &[u8])> = Vec::new();
    for partial in &chain.partials {
        let (complete, begun) =
            partial.records.split_at(partial.header.complete_len_bytes as usize);
        let start = About::start(partial.header.epoch);
        let mut about = start;
        if !complete.is_empty() {
            for (start, records) in pending.drain(..).chain([(start, complete)]) {
                about = start;
                apply_records(state, records, &mut about, layout, nodes).map_err(|error| {
                    Error::Corrupted(format!(
                        "the log at byte {} of segment {}: {error}",
                        partial.header.offset_bytes, partial.header.segment
                    ))
                })?;
            }
        }
        if !begun.is_empty() {
            pending.push((about, begun));
        }
    }
    Ok(())
}

fn apply_records(
    state: &mut State,
    records: &[u8],
    about: &mut About,
    layout: Layout,
    nodes: &dyn Nodes,
) -> Result<()> {
    for record in Records::new(records) {
        let record = record.map_err(|malformed| Error::Corrupted(malformed.to_string()))?;
        apply_record(state, &record, about, layout, nodes).map_err(Fault::into_error)?;
        state.account_for_nodes();
    }
    Ok(())
}

fn apply_record(
    state: &mut State,
    record: &Record<'_>,
    about: &mut About,
    layout: Layout,
    nodes: &dyn Nodes,
) -> crate::fault::Outcome<()> {
    let check_block = |block: &PageRef| {
        let holds = layout.holds(block.addr, u64::from(block.footprint_bytes()));
        holds.then_some(()).ok_or_else(|| Error::Corrupted("a block is not on the device".into()))
    };
    if let Record::PutRecord { list: VERSIONS_LIST, .. }
    | Record::DeleteRecord { list: VERSIONS_LIST, .. } = record
    {
        return apply_version(state, record, nodes);
    }
    let branch = about.branch;
    let write = |state: &mut State, list, page: u64, block: PageRef| {
        check_block(&block)?;
        if about.is_moved {
            let key = Thing::chunk(list, page / CHUNK_PAGES).key(branch, about.epoch);
            let slot = (page % CHUNK_PAGES) as u32;
            state.move_blocks_of(&key, &[(slot, block)], nodes)
        } else {
            state.set_page(branch, list, page, block, nodes)
        }
    };
    match *record {
        Record::CreateList { list, hints } | Record::SetHints { list, hints } => {
            if list >= Lid::CLIENT_END.0 {
                return Err(Error::Corrupted("a list has a number of the disk's own".into()).into());
            }
            if matches!(record, Record::CreateList { .. }) {
                state.create_list(branch, list, hints, nodes)
            } else {
                state.put_list(branch, list, hints, nodes)
            }
        }
        Record::DeleteList { list } => state.delete_list(branch, list, nodes),
        Record::PutRecord { list, index, value } => {
            state.put_record(branch, list, index, value, nodes)
        }
        Record::DeleteRecord { list, index } => state.delete_record(branch, list, index, nodes),
        Record::WriteRun { list, first_page, addr, crcs } => {
            for (index, crc) in (0_u64..).zip(crcs) {
                let block = PageRef {
                    addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                    crc32c: crc.get(),
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                };
                write(state, list, first_page.saturating_add(index), block)?;
            }
            Ok(())
        }
        Record::WriteBlock { list, page, block } => write(state, list, page, block),
        Record::ZeroPages { list, first_page, count } => {
            if zeroed_map_bytes(count) > layout.len_bytes() {
                return Err(Error::Corrupted("more pages than the volume can map".into()).into());
            }
            state.zero_pages(branch, list, page_range(first_page, count), nodes)
        }
        Record::PunchPages { list, first_page, count } => {
            state.punch_pages(branch, list, page_range(first_page, count), nodes)
        }
        Record::MovePages { from, from_page, to, to_page, count } => {
            state.move_pages(branch, (from, from_page), (to, to_page), count, nodes)
        }
        Record::SwapPages { a, b } => state.swap_pages(branch, a, b, nodes),
        Record::Version { branch, epoch, is_moved } => {
            if !is_moved && epoch != state.versions.epoch() {
                let now = state.versions.epoch();
                let what =
                    format!("it goes on in epoch {epoch} of branch {branch}, and not in {now}");
                return Err(Error::Corrupted(what).into());
            }
            *about = About { branch, epoch, is_moved };
            Ok(())
        }
        Record::Node { .. } | Record::Checkpoint { .. } => {
            Err(Error::Corrupted("the main log names a node of the map".into()).into())
        }
    }
}

/// A record of the table of versions was put or deleted.
fn apply_version(
    state: &mut State,
    record: &Record<'_>,
    nodes: &dyn Nodes,
) -> crate::fault::Outcome<()> {
    let (index, value) = match *record {
        Record::PutRecord { index, value, .. } => (index, Some(value)),
        Record::DeleteRecord { index, .. } => (index, None),
        _ => return Ok(()),
    };
    if state.versions.enter(index, value)? {
        state.versions.refresh();
    }
    // Sweeping that a crash undid must be done again, whatever the log says later.
    let counters = (index == COUNTERS_INDEX).then(|| state.versions.counters_record());
    let value = counters.as_deref().or(value);
    state.put_system_record(VERSIONS_LIST, index, value, nodes)
}
