//! Checkpoints: a frozen state of the map is written while writers continue (DESIGN §6).
//!
//! A checkpoint is taken in steps, and the caller determines when each step runs. The steps, in
//! order, with the loss that each prevents:
//! 1. *Freeze*: the open partial segment is closed, usage records are brought up to date, and the
//!    root is retained. From here on the live tree changes copies (map 2).
//! 2. *Write*: dirty nodes go to the map stream, children first.
//! 3. *Commit*: the checkpoint itself is written. The log before it and all nodes are flushed, so
//!    that the superblock never points to something that is not there (recovery 3).
//! 4. The superblock is appended and flushed. Only now may anything that older checkpoints need be
//!    given up (recovery 3).
//! 5. *Settle* ([`settling`]): the nodes that were written become clean, and segments that were
//!    empty at the freeze become clean (segments 2). Segments that became empty since are still
//!    needed by this checkpoint.

mod giving_back;
mod map_head;
mod mirroring;
mod settling;
mod writing_ahead;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dendro_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use dendro_base::sync::{Arc, Mutex};
use dendro_base::{Timestamp, priority};
use dendro_device::AlignedBuf;
use dendro_disk::{Error, Result};
use dendro_format::checkpoint::{CHECKPOINT_FIXED_LEN_BYTES, HeadPosition, MIRROR_LEN_BYTES};
use dendro_format::node::{MAX_NODE_LEN_BYTES, NodeInfo};
use dendro_format::record::MAX_FIXED_LEN_BYTES;
use dendro_format::totals::{COMPRESSED_INDEX, TOTALS_LIST};
use dendro_format::usage::USAGE_LEN_BYTES;
use dendro_format::usage::USAGE_LIST;
use dendro_format::{
    Addr, Checkpoint, ChildPtr, Head, Identity, NodePtr, PartialHeader, Record, SegmentNo, Usage,
    checksum,
};

use dendro_policy::Class;

use crate::engine::Engine;
use crate::fault::Fault;
use crate::flush::Flusher;
use crate::log::mirrors::Mirrors;
use crate::log::partial::{MIN_CAPACITY_BYTES, Partial, header_of};
use crate::log::segments::{FrozenSegments, Generation, node_footprint_bytes};
use crate::log::writer::Refusal;
use crate::map::node::{Child, SharedNode};
use crate::map::settling::collect_dirty;
use crate::map::store::PinnedNodes;
use crate::options::{Discards, OpenOptions};
use crate::space::reserve::Accounts;
use crate::state::item::system_key;
use crate::state::slice::SLICE_LEN;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The number of usage records that are put under one hold of the lock: each takes a microsecond or
/// two.
const USAGE_SLICE_LEN: usize = 512;
/// So many nodes are encoded, or given up, before clients are given way: what takes up to a tenth
/// of a millisecond.
const GIVING_WAY_LEN: usize = 32;

/// The place where the map stream continues.
#[derive(Debug, Default)]
pub(crate) struct MapHead {
    segment: Option<SegmentNo>,
    offset_bytes: u32,
    seq: u64,
    prev_crc32c: u32,
}

impl MapHead {
    /// The stream that continues where a clean shutdown left it.
    pub(crate) fn at(position: HeadPosition) -> Self {
        let HeadPosition { segment, offset_bytes } = position;
        Self { segment: Some(segment), offset_bytes, ..Self::default() }
    }
}

/// The state of checkpoints between their steps.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    head: MapHead,
    /// Where the checkpoint ends from which the volume was recovered, until the first one is taken.
    recovered_end: Option<HeadPosition>,
    /// The number of the last durable checkpoint.
    seq: u64,
    taken: Timestamp,
    job: Option<CheckpointJob>,
    buf: Option<AlignedBuf>,
    waiting: Option<WaitingNodes>,
    /// Whether there was no room on the host for the superblock.
    lacks_superblock: bool,
    /// What belongs to the state that is to be held, from its freeze on.
    frozen: Option<FrozenSegments>,
    gave_back: GaveBack,
}

/// When a surplus of clean segments was last looked for, and when they last aged.
#[derive(Debug, Default)]
struct GaveBack {
    looked: Option<Timestamp>,
    aged: Option<Timestamp>,
}

/// A partial segment of the map for which the host had no room. It is written before all others.
#[derive(Debug)]
struct WaitingNodes {
    buf: AlignedBuf,
    len_bytes: usize,
    segment: SegmentNo,
    /// Where it is to be written, in bytes; then in the segment's mirror.
    offset: u64,
    mirror_offset: Option<u64>,
    is_written: bool,
}

impl Checkpoints {
    /// The state behind `last`. If the volume `was_recovered` from that after a crash, nothing that
    /// is needed lies behind it in its segment.
    pub(crate) fn after(last: &Checkpoint, head: MapHead, was_recovered: bool) -> Self {
        let recovered_end = was_recovered.then_some(last.map);
        Self { head, recovered_end, seq: last.seq, taken: last.time, ..Self::default() }
    }
}

/// A checkpoint that is being taken.
#[derive(Debug)]
struct CheckpointJob {
    checkpoint: Checkpoint,
    /// The dirty nodes of the frozen tree, children before parents.
    order: Vec<SharedNode>,
    /// How many of them have been written.
    written: usize,
    /// The usage at the freeze of the segments whose record in the map is out of date, and of the
    /// segment that the map stream is filling.
    usage: BTreeMap<SegmentNo, Usage>,
    /// The bytes that the checkpoint itself has added to each segment.
    added: BTreeMap<SegmentNo, u32>,
    /// Segments that were empty at the freeze.
    pending: Vec<Generation>,
    /// Whether the state at the freeze is held, and segments that were empty then are not needed.
    is_held: bool,
}

/// Takes checkpoints.
pub(crate) struct Checkpointer {
    volume: Arc<Volume>,
    flusher: Arc<Flusher>,
    accounts: Arc<Accounts>,
    mirrors: Mirrors,
    /// The bytes of log after which a checkpoint is due.
    max_log_bytes: u64,
    discards: Discards,
    /// Whether a checkpoint found more to discard than it has discarded.
    has_surplus: AtomicBool,
    checkpoints: Mutex<Checkpoints>,
    /// The number and time of the last durable checkpoint, for readers that do not take the lock of
    /// `checkpoints`.
    seq: AtomicU64,
    time_ns: AtomicI64,
}

impl Checkpointer {
    /// Continues behind `last`.
    pub(crate) fn new(
        volume: Arc<Volume>,
        flusher: Arc<Flusher>,
        accounts: Arc<Accounts>,
        options: &OpenOptions,
        last: Checkpoints,
    ) -> Self {
        let mirrors = volume.read().state().segments().mirrors().clone();
        Self {
            volume,
            flusher,
            accounts,
            mirrors,
            max_log_bytes: options.checkpoint_log_bytes,
            discards: options.discards,
            has_surplus: AtomicBool::new(false),
            seq: AtomicU64::new(last.seq),
            time_ns: AtomicI64::new(last.taken.0),
            checkpoints: Mutex::new(last),
        }
    }

    /// The number of the last durable checkpoint.
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// When that was taken.
    pub(crate) fn time(&self) -> Timestamp {
        Timestamp(self.time_ns.load(Ordering::Acquire))
    }

    /// Whether enough has changed since the last checkpoint to take one.
    pub(crate) fn is_due(&self, engine: &Engine) -> bool {
        engine.replay_bytes() >= self.max_log_bytes
            || self.volume.is_over_dirty_limit(engine)
            || self.accounts.wants_checkpoint(engine)
            || self.accounts.grows_for_want_of_checkpoint(engine, self.max_log_bytes)
    }

    /// See [`LogDisk::checkpoint`](crate::LogDisk::checkpoint).
    pub(crate) fn take(&self) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        self.finish_job(&mut checkpoints, false)?;
        self.freeze(&mut checkpoints, false)?;
        self.finish_job(&mut checkpoints, false)
    }

    /// Takes a whole checkpoint, unless finishing the one that is under way makes `is_enough` true.
    fn take_unless(&self, is_enough: &dyn Fn(&Engine) -> bool) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        self.finish_job(&mut checkpoints, false)?;
        if is_enough(&self.volume.read()) {
            return Ok(());
        }
        self.freeze(&mut checkpoints, false)?;
        self.finish_job(&mut checkpoints, false)
    }

    /// As [`Self::take_unless`]. If the checkpoint finds no segment to continue in, that is no
    /// error, because cleaning may help it later.
    pub(crate) fn take_if_it_fits(&self, is_enough: &dyn Fn(&Engine) -> bool) -> Result<()> {
        match self.take_unless(is_enough) {
            Err(Error::NoSpace { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes dirty nodes if they take too much memory.
    pub(crate) fn relieve_memory(&self) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        self.finish_job(&mut checkpoints, false)?;
        if self.volume.is_over_dirty_limit(&self.volume.read()) {
            self.freeze(&mut checkpoints, false)?;
            self.finish_job(&mut checkpoints, false)?;
        }
        Ok(())
    }

    /// Takes a checkpoint even if nothing has changed. The log then continues in another place that
    /// nothing on the device names yet.
    pub(crate) fn take_always(&self) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        self.finish_job(&mut checkpoints, false)?;
        self.freeze(&mut checkpoints, true)?;
        self.finish_job(&mut checkpoints, false)
    }

    /// Takes a checkpoint of the state that the caller has begun to hold. Returns what belongs to
    /// it on the device, and the result of `look`, which is called before a further checkpoint
    /// begins.
    pub(crate) fn take_held<T>(&self, look: impl FnOnce() -> T) -> Result<(FrozenSegments, T)> {
        let mut checkpoints = self.checkpoints.lock();
        self.finish_job(&mut checkpoints, false)?;
        checkpoints.frozen = Some(FrozenSegments::default());
        let taken = self
            .freeze(&mut checkpoints, true)
            .and_then(|()| self.finish_job(&mut checkpoints, false));
        let frozen = checkpoints.frozen.take().unwrap_or_default();
        taken.map(|()| (frozen, look()))
    }

    /// Takes the last checkpoint before the disk is closed.
    pub(crate) fn take_last(&self) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        self.finish_job(&mut checkpoints, false)?;
        self.freeze(&mut checkpoints, true)?;
        self.finish_job(&mut checkpoints, true)
    }

    /// See [`LogDisk::checkpoint_step`](crate::LogDisk::checkpoint_step).
    pub(crate) fn step(&self) -> Result<bool> {
        // Another thread is taking the checkpoint.
        let Some(mut checkpoints) = self.checkpoints.try_lock() else { return Ok(false) };
        let stepped = if checkpoints.job.is_some() {
            self.step_job(&mut checkpoints, false)
        } else if self.is_due(&self.volume.read()) {
            self.freeze(&mut checkpoints, false)
        } else {
            return Ok(false);
        };
        // The step is tried again in the background or by a thread that needs the checkpoint, and
        // that thread gets the error.
        unless_put_off(stepped)
    }

    fn finish_job(&self, checkpoints: &mut Checkpoints, clean: bool) -> Result<()> {
        while checkpoints.job.is_some() {
            self.step_job(checkpoints, clean)?;
        }
        Ok(())
    }

    fn freeze(&self, checkpoints: &mut Checkpoints, always: bool) -> Result<()> {
        // Commits may wait until the checkpoint frees memory.
        let _raised = priority::raise();
        self.volume.learn_tiers();
        let mut nodes = self.nodes_of_system_records()?;
        self.record_usage_ahead(&mut nodes)?;
        let holder = LockHolder::Checkpoint;
        let (is_due, mut held) = self.volume.change_with(&mut nodes, holder, |engine, nodes| {
            let is_unchanged = engine.log_bytes() == 0
                && engine.log().open().is_none_or(Partial::is_empty)
                && engine.state().segments().unrecorded().is_empty()
                && engine.state().map().dirty_bytes() == 0
                && !engine.state().segments().has_pending();
            if is_unchanged && !always {
                return Ok(false);
            }
            engine.close_partial();
            engine.transact(nodes, |engine| {
                engine.state_mut().record_quotas(nodes)?;
                engine.state_mut().record_usage(usize::MAX, nodes)?;
                engine.state_mut().record_totals(nodes)
            })?;
            Ok(true)
        })?;
        if !is_due {
            return Ok(());
        }
        let engine = held.engine();
        // Recovery must find the place where the log continues, although no header names it.
        let room = engine.state().segments().layout().segment_size_bytes()
            - u64::from(engine.log().position().offset_bytes);
        let must_go_on = room < MIN_CAPACITY_BYTES as u64;
        if must_go_on
            && engine.log().next_segment().is_none()
            && !engine.state().segments().has_free(0)
        {
            let needed_bytes = MIN_CAPACITY_BYTES as u64;
            return Err(Error::NoSpace { needed_bytes, available_bytes: room });
        }
        if must_go_on || engine.log().next_segment().is_none() {
            engine.open_partial().map_err(|fault| self.volume.latch(fault))?;
        }
        let frozen_len_bytes = engine.state().map().dirty_len_bytes();
        let (root, root_level) = engine.state_mut().freeze_map().unzip();
        let segments = engine.state().segments();
        let mut usage: BTreeMap<_, _> = (segments.unrecorded().iter())
            .map(|&number| (SegmentNo(number), segments.usage(SegmentNo(number))))
            .collect();
        if let Some(segment) = checkpoints.head.segment {
            usage.insert(segment, segments.usage(segment));
        }
        let placed = match &root {
            Some(Child::Clean(root)) => Some(root.place),
            _ => None,
        };
        let root_place = placed.zip(root_level);
        let next_list = self.volume.next_list().max(engine.state().next_list());
        let checkpoint = Checkpoint {
            next_list,
            root: root_place,
            ..frozen_checkpoint(engine, checkpoints.seq + 1)
        };
        let pending = engine.state_mut().segments_mut().freeze();
        if let Some(frozen) = &mut checkpoints.frozen {
            *frozen = engine.state().segments().frozen();
            frozen.end_at(checkpoint.log);
            engine.log().next_segment().into_iter().for_each(|next| frozen.leave_out(next));
        }
        engine.note_frozen();
        self.accounts.map_stream().set_left(frozen_len_bytes);
        self.volume.end_hold(held);
        // The live tree continues with copies, so this needs no lock.
        let mut order = Vec::new();
        if let Some(root) = &root {
            collect_dirty(root, &mut order);
        }
        checkpoints.job = Some(CheckpointJob {
            checkpoint,
            order,
            written: 0,
            usage,
            added: BTreeMap::new(),
            pending,
            is_held: checkpoints.frozen.is_some(),
        });
        self.volume.writer().wake();
        Ok(())
    }

    /// Returns the nodes with the usage records and totals that are known to be out of date. Each
    /// node is read once, and the lock is held for a slice of the records at a time.
    fn nodes_of_system_records(&self) -> Result<PinnedNodes<'_>> {
        let mut nodes = PinnedNodes::keeping(self.volume.store());
        let numbers = self.volume.read().state().segments().unrecorded().to_vec();
        self.volume.walk_with(&mut nodes, &mut 0, |engine, next, nodes| {
            let slice = &numbers[*next..numbers.len().min(*next + SLICE_LEN)];
            for number in slice {
                let key = system_key(USAGE_LIST, u64::from(*number));
                engine.state().map().look(&key, nodes, |_| ())?;
                *next += 1;
            }
            let is_done = *next == numbers.len();
            if is_done && engine.state().has_new_totals() {
                let key = system_key(TOTALS_LIST, COMPRESSED_INDEX);
                engine.state().map().look(&key, nodes, |_| ())?;
            }
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(nodes)
    }

    /// Brings usage records up to date, a slice for each hold of the lock. What changes meanwhile
    /// is left to the freeze, so that this is little.
    fn record_usage_ahead(&self, nodes: &mut PinnedNodes<'_>) -> Result<()> {
        let count = self.volume.read().state().segments().unrecorded().len();
        for _ in 0..count / USAGE_SLICE_LEN {
            let holder = LockHolder::Checkpoint;
            let ((), held) = self.volume.change_with(nodes, holder, |engine, nodes| {
                engine.transact(nodes, |engine| {
                    engine.state_mut().record_usage(USAGE_SLICE_LEN, nodes)
                })
            })?;
            self.volume.end_hold(held);
        }
        Ok(())
    }

    /// Writes one partial segment of nodes or, when all nodes are written, commits the checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no segment to continue in: the job is kept, and a later
    /// step continues it.
    fn step_job(&self, checkpoints: &mut Checkpoints, clean: bool) -> Result<()> {
        // Clients need the CPU too. They wait for this thread only when memory is short.
        let is_urgent = self.volume.is_near_memory_limit(&self.volume.read());
        let _raised = is_urgent.then(priority::raise);
        // What found no room on the host is written first. Otherwise each attempt would write
        // another copy of what comes last.
        if self.accounts.waits_for_host() {
            self.volume.write_queued()?;
            self.try_waiting_nodes(checkpoints)?;
        }
        if checkpoints.lacks_superblock {
            self.volume.allocate_superblock()?;
            checkpoints.lacks_superblock = false;
        }
        let Some(mut job) = checkpoints.job.take() else { return Ok(()) };
        if let Some(error) = self.volume.failure() {
            return Err(error);
        }
        let stepped = self.write_nodes(checkpoints, &mut job).and_then(|partial| match partial {
            Some(partial) => self.commit_job(checkpoints, &mut job, partial, clean),
            None => Ok(false),
        });
        match stepped {
            Ok(true) => {
                checkpoints.recovered_end = None;
                self.settle(job);
            }
            Ok(false) | Err(Error::NoSpace { .. }) => checkpoints.job = Some(job),
            Err(_) => {}
        }
        stepped.map(drop)
    }

    /// Writes nodes until a partial segment is full. Returns the open partial segment when all
    /// nodes are written.
    fn write_nodes(
        &self,
        checkpoints: &mut Checkpoints,
        job: &mut CheckpointJob,
    ) -> Result<Option<Partial>> {
        let mut partial = self.open_map_partial(checkpoints)?;
        let info = NodeInfo {
            level: 0,
            uuid: job.checkpoint.uuid,
            checkpoint_seq: job.checkpoint.seq,
            log_seq: job.checkpoint.log_seq,
        };
        // Clients allocate memory meanwhile. So this takes memory once, and not for each node.
        let mut bytes = Vec::with_capacity(MAX_NODE_LEN_BYTES);
        while let Some(resident) = job.order.get(job.written) {
            let info = NodeInfo { level: resident.node().level(), ..info };
            let crc32c = resident.node().encode(&info, &mut bytes);
            if !partial.fits(0, bytes.len(), MAX_FIXED_LEN_BYTES) {
                let was_empty = partial.is_empty();
                self.close_map_partial(checkpoints, partial, job)?;
                if !was_empty {
                    return Ok(None);
                }
                partial = self.open_next_map_segment(checkpoints)?;
                continue;
            }
            let offset = partial.place_block(&bytes);
            let place =
                NodePtr { addr: partial.addr_at(offset), len_bytes: bytes.len() as u32, crc32c };
            let first_key = resident.node().first_key().expect("nodes have entries");
            partial.push(&Record::Node { place, level: info.level, first_key });
            let newest_epoch = resident.node().newest_epoch();
            resident.set_written(ChildPtr { place, newest_epoch });
            self.accounts.map_stream().note_written(resident.node().len_bytes());
            *job.added.entry(partial.segment()).or_default() += node_footprint_bytes(&place);
            if job.written + 1 == job.order.len() {
                job.checkpoint.root = Some((place, info.level));
            }
            job.written += 1;
            if job.written.is_multiple_of(GIVING_WAY_LEN) {
                priority::give_way();
            }
        }
        Ok(Some(partial))
    }

    /// Commits the checkpoint of a job whose nodes are all written. Returns false if it names a
    /// mirror that has just been given up: the next step writes another checkpoint.
    fn commit_job(
        &self,
        checkpoints: &mut Checkpoints,
        job: &mut CheckpointJob,
        mut partial: Partial,
        clean: bool,
    ) -> Result<bool> {
        let mut checkpoint = self.finished_checkpoint(job, partial.segment());
        if !partial.fits(0, len_bytes_of(&checkpoint), MAX_FIXED_LEN_BYTES) {
            self.close_map_partial(checkpoints, partial, job)?;
            partial = self.open_next_map_segment(checkpoints)?;
            checkpoint.mirrors = self.mirrors_of(job, partial.segment());
        }
        // A mirror that is not listed is clean after the next mount, and nothing is lost.
        while !partial.fits(0, len_bytes_of(&checkpoint), MAX_FIXED_LEN_BYTES)
            && !checkpoint.mirrors.is_empty()
        {
            checkpoint.mirrors.truncate(checkpoint.mirrors.len() / 2);
        }
        let len = len_bytes_of(&checkpoint);
        if !partial.fits(0, len, MAX_FIXED_LEN_BYTES) {
            let why = format!("a checkpoint of {len} bytes does not fit into a segment");
            return Err(self.volume.latch(Fault::Error(Error::Failed(why))));
        }
        // The checkpoint states where the map stream continues behind the partial segment that
        // holds it. So its place is taken before its bytes are known.
        let offset = partial.place_block(&vec![0; len]);
        let end = partial.offset_bytes() as usize + partial.final_len(CHECKPOINT_PLACE_LEN_BYTES);
        checkpoint.map = HeadPosition { segment: partial.segment(), offset_bytes: end as u32 };
        checkpoint.identity = Some(Identity::of(&self.volume.superblock()));
        let bytes = checkpoint.encode();
        let addr = partial.addr_at(offset);
        let mirror = self.mirrors.place_of(self.volume.layout(), addr);
        let crc32c = checksum(&bytes);
        partial.fill_block(offset, &bytes);
        partial.push(&Record::Checkpoint { addr, len_bytes: len as u32, crc32c });
        self.close_map_partial(checkpoints, partial, job)?;
        if self.mirrors.place_of(self.volume.layout(), addr) != mirror {
            return Ok(false);
        }

        // Others may wait for these locks.
        let _raised = priority::raise();
        // Nothing of a segment that becomes clean with this may be written later.
        self.volume.write_queued()?;
        self.volume.flush_device()?;
        {
            let mut superblock = self.volume.superblock();
            let appended = self.volume.append_superblock(&mut superblock, |next| {
                next.clean = clean;
                next.checkpoint_addr = addr;
                next.checkpoint_len_bytes = len as u32;
                next.checkpoint_crc32c = crc32c;
                next.checkpoint_mirror = mirror;
                next.written = checkpoint.time;
            });
            checkpoints.lacks_superblock = appended.is_err();
            appended?;
        }
        if let Some(frozen) = &mut checkpoints.frozen {
            let filled = job.added.keys().copied().chain([checkpoint.map.segment]);
            for segment in filled.flat_map(|of| [Some(of), self.mirrors.of(of)]).flatten() {
                frozen.add(segment);
            }
            frozen.end_at(checkpoint.map);
            if let Some(segment) = self.mirrors.of(checkpoint.map.segment) {
                frozen.end_at(HeadPosition { segment, ..checkpoint.map });
            }
        }
        self.flusher.note_durable(checkpoint.commit_seq, checkpoint.log_seq.saturating_sub(1));
        checkpoints.seq = checkpoint.seq;
        self.time_ns.store(checkpoint.time.0, Ordering::Release);
        self.seq.store(checkpoints.seq, Ordering::Release);
        checkpoints.taken = checkpoint.time;
        Ok(true)
    }

    /// Returns the checkpoint of a job whose nodes are written, to be written to segment `last`.
    /// The place where the map stream continues is still missing.
    fn finished_checkpoint(&self, job: &CheckpointJob, last: SegmentNo) -> Checkpoint {
        let mirrors = self.mirrors_of(job, last);
        let mut usage = job.usage.clone();
        let engine = self.volume.read();
        for (&segment, added) in &job.added {
            // The segment may have become empty since the freeze, and be filled again with nodes.
            // The log records how the blocks that the frozen map has there became dead.
            let frozen_bytes = engine.state().segments().frozen_bytes_of(segment);
            let before = usage.get(&segment).filter(|_| frozen_bytes > 0);
            let written_at = before.map_or(job.checkpoint.log_clock, |usage| usage.written_at);
            // Only a forged image can state more than fits into a segment.
            let live_bytes = frozen_bytes.saturating_add(*added);
            let class = Class::MAIN.number();
            usage.insert(segment, Usage { live_bytes, head: Head::Map, class, written_at });
        }
        let added_bytes: u64 = job.added.values().map(|&added| u64::from(added)).sum();
        Checkpoint {
            live_bytes: job.checkpoint.live_bytes + added_bytes,
            usage_overrides: usage.into_iter().collect(),
            mirrors,
            ..job.checkpoint.clone()
        }
    }

    /// Writes a partial segment of the map stream, unless it is empty.
    fn close_map_partial(
        &self,
        checkpoints: &mut Checkpoints,
        mut partial: Partial,
        job: &CheckpointJob,
    ) -> Result<()> {
        if partial.is_empty() {
            checkpoints.buf = Some(partial.into_buf());
            return Ok(());
        }
        partial.complete();
        let (base, segment) = (partial.base(), partial.segment());
        let head = &mut checkpoints.head;
        let (buf, len_bytes, crc32c, _) = partial.close(PartialHeader {
            seq: head.seq,
            prev_crc32c: head.prev_crc32c,
            commit_seq: job.checkpoint.commit_seq,
            time: job.checkpoint.time,
            ..header_of(Head::Map, job.checkpoint.uuid)
        });
        let mirror = self.mirrors.place_of(self.volume.layout(), base);
        let nodes = WaitingNodes {
            buf,
            len_bytes,
            segment,
            offset: base.bytes(),
            mirror_offset: mirror.map(Addr::bytes),
            is_written: false,
        };
        let head = &mut checkpoints.head;
        head.offset_bytes += len_bytes as u32;
        head.seq += 1;
        head.prev_crc32c = crc32c;
        self.note_map_room(checkpoints);
        self.volume.write().note_map_written(len_bytes as u64);
        checkpoints.waiting = Some(nodes);
        self.try_waiting_nodes(checkpoints)
    }

    /// Writes the partial segment of the map stream that waits to be written, if there is one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full. It keeps waiting.
    /// Until the checkpoint is done, its nodes are read from memory.
    fn try_waiting_nodes(&self, checkpoints: &mut Checkpoints) -> Result<()> {
        let Some(mut nodes) = checkpoints.waiting.take() else { return Ok(()) };
        let written = self.write_twice(&mut nodes);
        let is_out_of_room = matches!(written, Err(Refusal::NoSpace(_)));
        self.accounts.map_stream().set_out_of_room(is_out_of_room);
        match written {
            Err(Refusal::NoSpace(error)) => {
                checkpoints.waiting = Some(nodes);
                Err(error)
            }
            Err(Refusal::Failed(why)) => {
                checkpoints.buf = Some(nodes.buf);
                Err(self.volume.latch_write(format!("writing the map: {why}")))
            }
            Ok(()) => {
                checkpoints.buf = Some(nodes.buf);
                Ok(())
            }
        }
    }

    /// As [`Self::try_waiting_nodes`], for threads that take no checkpoint.
    pub(crate) fn write_waiting_nodes(&self) -> Result<()> {
        match self.checkpoints.try_lock() {
            Some(mut checkpoints) => self.try_waiting_nodes(&mut checkpoints),
            // The thread that takes the checkpoint writes it.
            None => Ok(()),
        }
    }
}

/// Returns false if something failed that can be done later, and an error if the disk latched.
pub(crate) fn unless_put_off(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Err(Error::NoSpace { .. } | Error::Io(_) | Error::Corrupted(_)) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// The checkpoint with number `seq` of the engine's state. What belongs to the map's nodes is
/// missing.
fn frozen_checkpoint(engine: &Engine, seq: u64) -> Checkpoint {
    let segments = engine.state().segments();
    Checkpoint {
        uuid: engine.uuid(),
        seq,
        root: None,
        log: engine.log().position(),
        log_seq: engine.log().seq(),
        log_prev_crc32c: engine.log().prev_crc32c(),
        next_segment: engine.log().next_segment().unwrap_or(SegmentNo(0)),
        map: HeadPosition { segment: SegmentNo(0), offset_bytes: 0 },
        next_list: engine.state().next_list(),
        commit_seq: engine.commit_seq(),
        epoch: engine.state().versions().epoch(),
        live_bytes: segments.live_bytes(),
        time: engine.clock().now(),
        log_clock: engine.state().clock(),
        short_count: segments.page_counts().short,
        zero_count: segments.page_counts().zero,
        counts_are_exact: segments.page_counts().are_exact,
        totals_are_exact: segments.page_counts().compressed_are_exact,
        identity: None,
        usage_overrides: Vec::new(),
        mirrors: Vec::new(),
    }
}

/// The bytes of a checkpoint.
const fn len_bytes_of(checkpoint: &Checkpoint) -> usize {
    CHECKPOINT_FIXED_LEN_BYTES
        + checkpoint.usage_overrides.len() * (4 + USAGE_LEN_BYTES)
        + checkpoint.mirrors.len() * MIRROR_LEN_BYTES
}

/// Bytes of the record that states a checkpoint's place.
const CHECKPOINT_PLACE_LEN_BYTES: usize = 20;
