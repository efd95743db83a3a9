//! The log-structured disk as its clients see it.
//!
//! Invariants:
//! 2. (flush 2) A failed flush is never tried again and believed: the disk latches. Every later
//!    change and flush fails with the first reason until the volume is opened again.
//!
//! Lock order: `coalescing`, `removal`, `collection`, `cleaner`, `checkpoints`, `group_commit`,
//! `superblock`, `engine`, then the writer's queue. `engine` and the queue are never held during
//! device I/O (apply 2). Background work, and the threads that wait for it, hold the other locks
//! for as long as the work takes.

use std::ops::Range;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use dendro_base::sync::{Arc, BriefRwLock, Condvar, Mutex};
use dendro_device::Device;
use dendro_disk::{
    Aru, CommitSeq, Error, Ledger, Lid, ListHints, LogicalDisk, PAGE_SIZE, Record, Reservation,
    Result, Space, View,
};
use dendro_format::{Layout, Superblock};

use crate::checkpoint::{Checkpoints, unless_put_off};
use crate::clean::cleaner::{Cleaned, Cleaner};
use crate::clean::coalesce::Coalescing;
use crate::clean::external;
use crate::commit::group_commit::GroupCommit;
use crate::commit::unit::{Contents, WorstCase, check_arguments};
use crate::damage::DamageLog;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::log::segments::SegmentCounts;
use crate::log::writer::{Refusal, Writer};
use crate::map::budget;
use crate::map::store::{NodeStore, PinnedNodes};
use crate::options::OpenOptions;
use crate::removal::{MAX_WAITING, Progress};
use crate::snapshots::collection::Collection;
use crate::space::host::Host;
use crate::space::no_space::Tries;
use crate::space::throttle::Pacing;

/// The log-structured logical disk.
///
/// It starts no threads. The program that opens it may call [`Self::write_step`] and
/// [`Self::background_step`] from threads of its own. Without such threads, commits and flushes do
/// this work themselves.
pub struct LogDisk {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) options: OpenOptions,
    pub(crate) layout: Layout,
    pub(crate) store: NodeStore,
    pub(crate) engine: BriefRwLock<Engine>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) cleaner: Mutex<Cleaner>,
    /// Notified when a cleaning job has been queued or has ended.
    pub(crate) cleaner_progressed: Condvar,
    pub(crate) cleaned: Cleaned,
    /// The number of reads of the device on behalf of clients.
    pub(crate) client_reads: AtomicU64,
    pub(crate) coalescing: Coalescing,
    pub(crate) external: external::Counters,
    pub(crate) checkpoints: Mutex<Checkpoints>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) dirty_limit_bytes: u64,
    /// About what the checkpoint under way has still to write.
    pub(crate) frozen_len_bytes: AtomicU64,
    /// The bytes that are left in the segment that the map stream fills.
    pub(crate) map_room_bytes: AtomicU64,
    /// The last commit known to be durable.
    pub(crate) durable: AtomicU64,
    /// The number and time of the last durable checkpoint, for readers that do not take the lock of
    /// `checkpoints`.
    pub(crate) checkpoint_seq: AtomicU64,
    pub(crate) checkpoint_time_ns: AtomicI64,
    pub(crate) group_commit: GroupCommit,
    next_list: AtomicU64,
    pub(crate) ledger: Arc<Ledger>,
    failure: Mutex<Option<String>>,
    pub(crate) host: Host,
    /// Whether nodes of a checkpoint wait for room on the host.
    pub(crate) map_waits: AtomicBool,
    pub(crate) collection: Mutex<Option<Collection>>,
    pub(crate) removal: Mutex<Progress>,
    /// Whether the next background step first looks for entries that no version sees.
    frees_next: AtomicBool,
    /// The log clock when a collection of what branches have replaced was last begun; 0 before the
    /// first.
    pub(crate) forks_collected_at: AtomicU64,
    pub(crate) pacing: Pacing,
    /// Notes from opening the volume that users should see.
    pub(crate) recovery_notes: Vec<String>,
}

impl std::fmt::Debug for LogDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LogDisk({}, {} segments)",
            self.superblock.lock().uuid,
            self.layout.segment_count()
        )
    }
}

/// Statistics of an open disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// The last commit.
    pub commit_seq: u64,
    /// The last commit known to be durable.
    pub durable_seq: u64,
    /// The number of the last checkpoint.
    pub checkpoint_seq: u64,
    /// When it was taken.
    pub checkpoint_time: Timestamp,
    /// Bytes of log written since it.
    pub log_bytes: u64,
    /// Bytes written to the device since it was opened, without superblocks.
    pub written_bytes: u64,
    /// About what dirty map nodes take in memory.
    pub dirty_node_bytes: u64,
    /// About what superseded map nodes take, which the checkpoint under way still writes.
    pub superseded_node_bytes: u64,
    /// About what the cache of clean map nodes takes.
    pub cached_node_bytes: u64,
    /// What the buffers of partial segments take, in use and spare.
    pub log_buffer_bytes: u64,
    /// About what the table of segments takes.
    pub segment_table_bytes: u64,
    /// Live bytes of blocks and nodes.
    pub live_bytes: u64,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// Segments cleaned since the disk was opened.
    pub cleaned_segments: u64,
    /// Segments made clean without a checkpoint since it was opened.
    pub reused_segments: u64,
    /// Bytes of blocks moved by cleaning.
    pub moved_bytes: u64,
    /// Bytes that were live in the cleaned segments when their cleaning began.
    pub cleaned_live_bytes: u64,
    /// Bytes of blocks that coalescing wrote again side by side.
    pub coalesced_bytes: u64,
    /// Reads of the device that this saves, if each page is read once.
    pub coalesced_reads: u64,
    /// Bytes of blocks moved for an external cleaner.
    pub external_moved_bytes: u64,
    /// Segments that an external cleaner released.
    pub external_released_segments: u64,
    /// Bytes of pages that clients have committed since the disk was opened.
    pub user_page_bytes: u64,
    /// Bytes of records that clients have committed since then.
    pub user_record_bytes: u64,
    /// How long commits have waited for room, all together.
    pub stalled: Duration,
}

impl LogDisk {
    pub(crate) fn assemble(
        device: Arc<dyn Device>,
        options: OpenOptions,
        superblock: Superblock,
        store: NodeStore,
        engine: Engine,
        checkpoints: Checkpoints,
    ) -> Self {
        let layout = superblock.layout;
        let dirty_limit_bytes =
            budget::dirty_limit_bytes(options.cache_size_bytes, layout.len_bytes());
        store.leave_room(engine.state.segments.memory_bytes());
        Self {
            writer: Arc::clone(&engine.writer),
            durable: AtomicU64::new(engine.commit_seq),
            checkpoint_seq: AtomicU64::new(checkpoints.seq),
            checkpoint_time_ns: AtomicI64::new(checkpoints.taken.0),
            next_list: AtomicU64::new(engine.state.next_list),
            pacing: Pacing::new(options.cleaning),
            group_commit: GroupCommit::new(Arc::clone(&engine.clock)),
            device,
            options,
            layout,
            store,
            cleaner: Mutex::default(),
            cleaner_progressed: Condvar::new(),
            cleaned: Cleaned::default(),
            coalescing: Coalescing::default(),
            external: external::Counters::default(),
            checkpoints: Mutex::new(checkpoints),
            superblock: Mutex::new(superblock),
            dirty_limit_bytes,
            frozen_len_bytes: AtomicU64::new(0),
            map_room_bytes: AtomicU64::new(0),
            ledger: Arc::new(Ledger::default()),
            failure: Mutex::new(None),
            host: Host::new(Arc::clone(&engine.clock)),
            map_waits: AtomicBool::new(false),
            collection: Mutex::new(None),
            removal: Mutex::new(None),
            frees_next: AtomicBool::new(false),
            client_reads: AtomicU64::new(0),
            forks_collected_at: AtomicU64::new(0),
            recovery_notes: Vec::new(),
            engine: BriefRwLock::new(engine),
        }
    }

    /// The newest superblock.
    pub fn superblock(&self) -> Superblock {
        self.superblock.lock().clone()
    }

    /// The damage that was found when the volume was opened, and what it cost.
    pub fn recovery_notes(&self) -> &[String] {
        &self.recovery_notes
    }

    /// Blocks found since then that the device does not return as they were written.
    pub const fn damage(&self) -> &DamageLog {
        self.store.damage()
    }

    /// The memory limit for nodes of the map.
    pub const fn cache_size_bytes(&self) -> u64 {
        self.options.cache_size_bytes
    }

    /// Whether commits must wait until a checkpoint frees memory.
    pub(crate) fn is_over_memory_limit(&self, engine: &Engine) -> bool {
        engine.state.map.resident_bytes() > budget::memory_limit_bytes(self.dirty_limit_bytes)
    }

    /// Statistics of the disk.
    pub fn stats(&self) -> Stats {
        let (cleaned_segments, moved_bytes, cleaned_live_bytes) = self.cleaned.totals();
        let (coalesced_bytes, coalesced_reads) = self.coalescing.totals();
        let (external_moved_bytes, external_released_segments) = self.external.totals();
        let engine = self.engine.read();
        Stats {
            commit_seq: engine.commit_seq,
            durable_seq: self.durable.load(Ordering::Acquire),
            checkpoint_seq: self.checkpoint_seq.load(Ordering::Acquire),
            checkpoint_time: Timestamp(self.checkpoint_time_ns.load(Ordering::Acquire)),
            log_bytes: engine.log_bytes,
            written_bytes: engine.written_bytes,
            dirty_node_bytes: engine.state.map.dirty_bytes(),
            superseded_node_bytes: engine.state.map.superseded_bytes(),
            cached_node_bytes: self.store.cached_bytes(),
            log_buffer_bytes: engine.buffer_bytes(),
            segment_table_bytes: engine.state.segments.memory_bytes(),
            live_bytes: engine.state.segments.live_bytes(),
            segments: engine.state.segments.counts(),
            cleaned_segments,
            reused_segments: engine.reuse_queue.reused(),
            moved_bytes,
            cleaned_live_bytes,
            coalesced_bytes,
            coalesced_reads,
            external_moved_bytes,
            external_released_segments,
            user_page_bytes: engine.user_page_bytes,
            user_record_bytes: engine.user_record_bytes,
            stalled: self.pacing.stalled(),
        }
    }

    pub(crate) fn next_list(&self) -> u64 {
        self.next_list.load(Ordering::Acquire)
    }

    /// Latches the disk: it accepts no writes any more (flush 2). Returns the error that states the
    /// first reason.
    pub(crate) fn latch(&self, fault: Fault) -> Error {
        let why = match fault {
            Fault::Error(Error::Failed(why)) => why,
            fault => fault.into_error().to_string(),
        };
        Error::Failed(self.failure.lock().get_or_insert(why).clone())
    }

    pub(crate) fn latch_write(&self, why: String) -> Error {
        self.latch(Fault::Error(Error::Failed(why)))
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().clone().map(Error::Failed)
    }

    pub(crate) fn check_writable(&self, engine: &Engine) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        engine.closed_reason.clone().map_or(Ok(()), Err)
    }

    /// Writes one full buffer of log if one waits; otherwise waits up to `timeout` for one. A
    /// writer thread calls it in a loop. Returns whether it wrote.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails: the disk accepts no more writes. [`Error::NoSpace`]
    /// when the file system that holds the image is full: the buffer waits, and a later call writes
    /// it.
    pub fn write_step(&self, timeout: Duration) -> Result<bool> {
        if self.write_one()? {
            return Ok(true);
        }
        self.writer.wait(timeout);
        Ok(false)
    }

    /// Performs one step of the background work that is due. Returns whether there was any.
    ///
    /// # Errors
    /// As [`Self::write_step`].
    pub fn background_step(&self) -> Result<bool> {
        if self.failure().is_some() || self.engine.read().closed_reason.is_some() {
            return Ok(false);
        }
        if self.waits_for_host() {
            while self.write_one()? {}
            self.write_waiting_nodes()?;
        }
        if self.reuse_step()? || self.checkpoint_step()? {
            return Ok(true);
        }
        // Freeing and cleaning alternate. Where many entries are to be removed from the map,
        // cleaning gains the less the longer freeing waits.
        let frees_first = self.frees_next.fetch_xor(true, Ordering::Relaxed);
        if frees_first && self.free_step()? {
            return Ok(true);
        }
        Ok(self.clean_step()? || (!frees_first && self.free_step()?))
    }

    pub(crate) fn write_one(&self) -> Result<bool> {
        let wrote = match self.writer.write_one(&*self.device) {
            Ok(wrote) => wrote,
            Err(Refusal::Failed(why)) => return Err(self.latch_write(why)),
            Err(Refusal::NoSpace(error)) => return Err(error),
        };
        // A thread that holds the engine must not delay the next write. That thread drops the
        // written buffers itself later.
        if let Some(mut engine) = self.engine.try_write() {
            engine.forget_written();
        }
        Ok(wrote)
    }

    /// Wakes the writer thread for what waits to be written, and writes here as long as too much
    /// waits.
    pub(crate) fn relieve_writer(&self) -> Result<()> {
        self.writer.wake();
        // If the host is full, later calls report it; what this call has done is accepted.
        while self.writer.is_over_limit() {
            match self.write_one() {
                Ok(true) => {}
                Ok(false) | Err(Error::NoSpace { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of the main log up to partial segment `seq` to the device. It is not durable yet.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full: nothing is lost.
    pub(crate) fn write_log_through(&self, seq: u64) -> Result<()> {
        loop {
            while self.write_one()? {}
            // A buffer that another thread tried to write may have returned to the queue.
            if self.writer.wait_written(seq).map_err(|why| self.latch_write(why))? {
                return Ok(());
            }
        }
    }
}

impl LogicalDisk for LogDisk {
    fn allocate_list(&self) -> Result<Lid> {
        self.check_writable(&self.engine.read())?;
        Ok(Lid(self.next_list.fetch_add(1, Ordering::AcqRel)))
    }

    fn commit(&self, mut aru: Aru<'_>) -> Result<CommitSeq> {
        if aru.view().epoch.is_some() {
            return Err(Error::NoSuchView(aru.view()));
        }
        let worst = WorstCase::of(&aru);
        // The unit now uses what was reserved for it.
        drop(aru.take_reservation());
        let contents = Contents::of(&aru);
        self.look_at_host();
        let mut nodes = PinnedNodes::keeping(&self.store);
        let mut tries = Tries::default();
        let mut removed = None;
        let seq = loop {
            let mut engine = self.engine.write();
            self.check_writable(&engine)?;
            engine.state.versions.head_ancestry(aru.view().branch)?;
            aru.ops().iter().try_for_each(check_arguments)?;
            if aru.ops().is_empty() {
                return Ok(CommitSeq(engine.commit_seq));
            }
            let needed_bytes = worst.len_bytes();
            let partial_seq = engine.log.seq;
            let applied = match self.shortage_of(&engine, &aru, worst, &nodes) {
                Ok((_, None)) => {
                    engine.kept_segments = self.reserve_segments(&engine) as usize;
                    engine.apply(&aru, &contents, worst, &nodes)
                }
                Ok((need, Some(shortage))) => {
                    drop(engine);
                    self.mend_shortage(shortage, need, &mut tries)?;
                    // The nodes that were looked at have moved.
                    nodes = PinnedNodes::keeping(&self.store);
                    continue;
                }
                Err(fault) => Err(fault),
            };
            let seq = match applied {
                Ok(seq) => seq,
                Err(fault) => {
                    let pin = match &fault {
                        Fault::Miss(place) => Some(engine.state.segments.pin(place.addr)),
                        _ => None,
                    };
                    // A failed attempt leaves the nodes dirty that it would have changed. After a missed
                    // node the unit is tried again at once: a checkpoint would make it miss them all.
                    let is_over_memory_limit = pin.is_none() && self.is_over_memory_limit(&engine);
                    drop(engine);
                    if is_over_memory_limit {
                        unless_put_off(self.relieve_memory())?;
                    }
                    match fault {
                        Fault::NotYetRemoved(list) => {
                            if removed.replace(list) == Some(list) {
                                return Err(Error::ListExists(Lid(list)));
                            }
                            self.finish_removal(list)?;
                            nodes = PinnedNodes::keeping(&self.store);
                        }
                        Fault::Shared(list, chunk) => {
                            self.unshare(aru.view(), list, chunk)?;
                            nodes = PinnedNodes::keeping(&self.store);
                        }
                        fault => self.recover_from(fault, &nodes)?,
                    }
                    drop(pin);
                    continue;
                }
            };
            // The unit leaves the map so that checkpoints find their segments (space 1).
            debug_assert!(self.checkpoints_fit(&engine), "{}", self.describe_reserve(&engine));
            if engine.log.seq != partial_seq {
                self.wake_background(&engine);
            }
            if engine.state.next_list > self.next_list() {
                self.next_list.fetch_max(engine.state.next_list, Ordering::AcqRel);
            }
            let is_over_memory_limit = self.is_over_memory_limit(&engine);
            let owed_bytes = self.share_of_cleaning(&engine, needed_bytes);
            let waits_for_removal = engine.state.removals.len() > MAX_WAITING;
            drop(engine);
            // The unit is committed, even if the work that follows fails.
            if waits_for_removal {
                unless_put_off(self.removal_step().map(drop))?;
            }
            if is_over_memory_limit {
                unless_put_off(self.relieve_memory())?;
            }
            if owed_bytes > 0 {
                unless_put_off(self.assist_cleaning(owed_bytes))?;
            }
            break seq;
        };
        self.relieve_writer()?;
        Ok(seq)
    }

    fn flush(&self, up_to: CommitSeq) -> Result<()> {
        self.flush_up_to(up_to)
    }

    fn flush_list(&self, view: View, _list: Lid) -> Result<()> {
        self.engine.read().state.versions.table().check(view)?;
        self.flush(CommitSeq::LATEST)
    }

    fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.look_at_host();
        loop {
            let engine = self.engine.read();
            self.check_writable(&engine)?;
            let limit =
                self.present_capacity_bytes(&engine).saturating_sub(self.charged_bytes(&engine));
            if let Some(reservation) = self.ledger.reserve(len_bytes, limit) {
                return Ok(reservation);
            }
            drop(engine);
            if !self.free_step()? {
                let available_bytes = limit.saturating_sub(self.ledger.reserved_bytes());
                return Err(Error::NoSpace { needed_bytes: len_bytes, available_bytes });
            }
        }
    }

    fn space(&self) -> Space {
        self.look_at_host();
        self.remove_for_a_while();
        let (live_bytes, charged_bytes, present_capacity_bytes) = {
            let engine = self.engine.read();
            let charged_bytes = self.charged_bytes(&engine);
            (self.used_bytes(&engine), charged_bytes, self.present_capacity_bytes(&engine))
        };
        let reserved_bytes = self.ledger.reserved_bytes();
        Space {
            capacity_bytes: self.capacity_bytes(),
            live_bytes,
            available_bytes: present_capacity_bytes
                .saturating_sub(charged_bytes.saturating_add(reserved_bytes)),
            reserved_bytes,
        }
    }

    fn read_only_reason(&self) -> Option<String> {
        let engine = self.engine.read();
        self.check_writable(&engine).err().map(|error| error.to_string())
    }

    fn shut_down(&self) -> Result<()> {
        self.finish_small_removals();
        {
            let mut engine = self.engine.write();
            if let Some(error) = self.failure() {
                return Err(error);
            }
            if engine.closed_reason.is_some() {
                return Ok(());
            }
            engine.closed_reason = Some(Error::ReadOnly("the disk was shut down".into()));
        }
        if unless_put_off(self.checkpoint_clean())? {
            return Ok(());
        }
        // Everything lies in the log, and the next mount continues from there.
        self.flush_up_to(CommitSeq::LATEST).inspect_err(|error| {
            if matches!(error, Error::NoSpace { .. }) {
                // The buffers that wait for room can still be written when the caller tries again.
                self.engine.write().closed_reason = None;
            }
        })
    }

    fn hints(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        self.read_hints(view, list)
    }

    fn lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        self.read_lists(view, from, max)
    }

    fn record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        self.read_record(view, list, index)
    }

    fn records(&self, view: View, list: Lid, from: u64, max: usize) -> Result<Vec<(u64, Record)>> {
        self.read_records(view, list, from, max)
    }

    fn read_pages(&self, view: View, list: Lid, first_page: u64, buf: &mut [u8]) -> Result<()> {
        assert!(buf.len().is_multiple_of(PAGE_SIZE), "pages are read whole");
        self.read_range(view, list, first_page, buf)
    }

    fn next_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>> {
        self.find_data(view, list, from)
    }

    fn next_hole(&self, view: View, list: Lid, from: u64) -> Result<u64> {
        self.find_hole(view, list, from)
    }

    fn count_pages(&self, view: View, list: Lid, range: Range<u64>) -> Result<u64> {
        self.count_present(view, list, &range)
    }
}
