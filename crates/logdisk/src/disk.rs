//! The log-structured disk as its clients see it.
//!
//! Lock order: `coalescing`, `removal`, `collection`, `cleaner`, `checkpoints`, `group_commit`,
//! `superblock`, `engine`, then the writer's queue. `engine` and the queue are never held during
//! device I/O (apply 2). Background work, and the threads that wait for it, hold the other locks
//! for as long as the work takes.

use std::ops::Range;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use dendro_base::sync::{Arc, Condvar, Mutex};
use dendro_device::Device;
use dendro_disk::{
    Aru, CommitSeq, Error, Ledger, Lid, ListHints, LogicalDisk, PAGE_SIZE, Record, Reservation,
    Result, Space, View,
};
use dendro_format::Superblock;

use crate::checkpoint::{Checkpoints, unless_put_off};
use crate::clean::cleaner::{Cleaned, Cleaner};
use crate::clean::coalesce::Coalescing;
use crate::clean::external;
use crate::commit::unit::{Contents, WorstCase, check_arguments};
use crate::damage::DamageLog;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::flush::Flusher;
use crate::log::segments::SegmentCounts;
use crate::map::store::{NodeStore, PinnedNodes};
use crate::options::OpenOptions;
use crate::read::Reader;
use crate::removal::{MAX_WAITING, Progress};
use crate::snapshots::collection::Collection;
use crate::space::host::Host;
use crate::space::no_space::Tries;
use crate::space::throttle::Pacing;
use crate::volume::Volume;

/// The log-structured logical disk.
///
/// It starts no threads. The program that opens it may call [`Self::write_step`] and
/// [`Self::background_step`] from threads of its own. Without such threads, commits and flushes do
/// this work themselves.
pub struct LogDisk {
    pub(crate) volume: Arc<Volume>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) options: OpenOptions,
    pub(crate) cleaner: Mutex<Cleaner>,
    /// Notified when a cleaning job has been queued or has ended.
    pub(crate) cleaner_progressed: Condvar,
    pub(crate) cleaned: Cleaned,
    pub(crate) coalescing: Coalescing,
    pub(crate) external: external::Counters,
    pub(crate) checkpoints: Mutex<Checkpoints>,
    /// About what the checkpoint under way has still to write.
    pub(crate) frozen_len_bytes: AtomicU64,
    /// The bytes that are left in the segment that the map stream fills.
    pub(crate) map_room_bytes: AtomicU64,
    /// The number and time of the last durable checkpoint, for readers that do not take the lock of
    /// `checkpoints`.
    pub(crate) checkpoint_seq: AtomicU64,
    pub(crate) checkpoint_time_ns: AtomicI64,
    pub(crate) ledger: Arc<Ledger>,
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
            self.volume.uuid(),
            self.volume.layout().segment_count()
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
        let clock = Arc::clone(&engine.clock);
        let volume = Arc::new(Volume::new(device, superblock, store, engine));
        Self {
            flusher: Arc::new(Flusher::new(Arc::clone(&volume))),
            reader: Arc::new(Reader::new(Arc::clone(&volume))),
            checkpoint_seq: AtomicU64::new(checkpoints.seq),
            checkpoint_time_ns: AtomicI64::new(checkpoints.taken.0),
            pacing: Pacing::new(options.cleaning),
            volume,
            options,
            cleaner: Mutex::default(),
            cleaner_progressed: Condvar::new(),
            cleaned: Cleaned::default(),
            coalescing: Coalescing::default(),
            external: external::Counters::default(),
            checkpoints: Mutex::new(checkpoints),
            frozen_len_bytes: AtomicU64::new(0),
            map_room_bytes: AtomicU64::new(0),
            ledger: Arc::new(Ledger::default()),
            host: Host::new(clock),
            map_waits: AtomicBool::new(false),
            collection: Mutex::new(None),
            removal: Mutex::new(None),
            frees_next: AtomicBool::new(false),
            forks_collected_at: AtomicU64::new(0),
            recovery_notes: Vec::new(),
        }
    }

    /// The newest superblock.
    pub fn superblock(&self) -> Superblock {
        self.volume.superblock().clone()
    }

    /// The damage that was found when the volume was opened, and what it cost.
    pub fn recovery_notes(&self) -> &[String] {
        &self.recovery_notes
    }

    /// Blocks found since then that the device does not return as they were written.
    pub fn damage(&self) -> &DamageLog {
        self.volume.damage()
    }

    /// The memory limit for nodes of the map.
    pub fn cache_size_bytes(&self) -> u64 {
        self.volume.store().cache_size_bytes()
    }

    /// Statistics of the disk.
    pub fn stats(&self) -> Stats {
        let (cleaned_segments, moved_bytes, cleaned_live_bytes) = self.cleaned.totals();
        let (coalesced_bytes, coalesced_reads) = self.coalescing.totals();
        let (external_moved_bytes, external_released_segments) = self.external.totals();
        let engine = self.volume.read();
        Stats {
            commit_seq: engine.commit_seq,
            durable_seq: self.flusher.durable_seq(),
            checkpoint_seq: self.checkpoint_seq.load(Ordering::Acquire),
            checkpoint_time: Timestamp(self.checkpoint_time_ns.load(Ordering::Acquire)),
            log_bytes: engine.log_bytes,
            written_bytes: engine.written_bytes,
            dirty_node_bytes: engine.state.map.dirty_bytes(),
            superseded_node_bytes: engine.state.map.superseded_bytes(),
            cached_node_bytes: self.volume.store().cached_bytes(),
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

    /// Finds the block of a page on the device without reading it: its address in bytes. `None` for
    /// a hole, and for a page of zeros, which takes no block.
    ///
    /// # Errors
    /// [`Error::NoSuchView`], and an error when the map cannot be read.
    pub fn page_addr(&self, view: View, list: Lid, page_index: u64) -> Result<Option<u64>> {
        self.reader.page_addr(view, list, page_index)
    }

    /// Writes one full buffer of log if one waits; otherwise waits up to `timeout` for one. A
    /// writer thread calls it in a loop. Returns whether it wrote.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails: the disk accepts no more writes. [`Error::NoSpace`]
    /// when the file system that holds the image is full: the buffer waits, and a later call writes
    /// it.
    pub fn write_step(&self, timeout: Duration) -> Result<bool> {
        if self.volume.write_one()? {
            return Ok(true);
        }
        self.volume.writer().wait(timeout);
        Ok(false)
    }

    /// Performs one step of the background work that is due. Returns whether there was any.
    ///
    /// # Errors
    /// As [`Self::write_step`].
    pub fn background_step(&self) -> Result<bool> {
        if !self.volume.is_writable() {
            return Ok(false);
        }
        if self.waits_for_host() {
            self.volume.write_queued()?;
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
}

impl LogicalDisk for LogDisk {
    fn allocate_list(&self) -> Result<Lid> {
        self.volume.check_writable(&self.volume.read())?;
        Ok(Lid(self.volume.take_list_number()))
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
        let mut nodes = PinnedNodes::keeping(self.volume.store());
        let mut tries = Tries::default();
        let mut removed = None;
        let seq = loop {
            let mut engine = self.volume.write();
            self.volume.check_writable(&engine)?;
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
                    nodes = PinnedNodes::keeping(self.volume.store());
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
                    let is_over_memory_limit =
                        pin.is_none() && self.volume.is_over_memory_limit(&engine);
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
                            nodes = PinnedNodes::keeping(self.volume.store());
                        }
                        Fault::Shared(list, chunk) => {
                            self.unshare(aru.view(), list, chunk)?;
                            nodes = PinnedNodes::keeping(self.volume.store());
                        }
                        fault => self.volume.recover_from(fault, &nodes)?,
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
            self.volume.note_lists_of(&engine);
            let is_over_memory_limit = self.volume.is_over_memory_limit(&engine);
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
        self.volume.relieve_writer()?;
        Ok(seq)
    }

    fn flush(&self, up_to: CommitSeq) -> Result<()> {
        self.flusher.flush_up_to(up_to)
    }

    fn flush_list(&self, view: View, _list: Lid) -> Result<()> {
        self.volume.read().state.versions.table().check(view)?;
        self.flush(CommitSeq::LATEST)
    }

    fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.look_at_host();
        loop {
            let engine = self.volume.read();
            self.volume.check_writable(&engine)?;
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
            let engine = self.volume.read();
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
        let engine = self.volume.read();
        self.volume.check_writable(&engine).err().map(|error| error.to_string())
    }

    fn shut_down(&self) -> Result<()> {
        self.finish_small_removals();
        {
            let mut engine = self.volume.write();
            if let Some(error) = self.volume.failure() {
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
        self.flusher.flush_up_to(CommitSeq::LATEST).inspect_err(|error| {
            if matches!(error, Error::NoSpace { .. }) {
                // The buffers that wait for room can still be written when the caller tries again.
                self.volume.write().closed_reason = None;
            }
        })
    }

    fn hints(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        self.reader.read_hints(view, list)
    }

    fn lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        self.reader.read_lists(view, from, max)
    }

    fn record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        self.reader.read_record(view, list, index)
    }

    fn records(&self, view: View, list: Lid, from: u64, max: usize) -> Result<Vec<(u64, Record)>> {
        self.reader.read_records(view, list, from, max)
    }

    fn read_pages(&self, view: View, list: Lid, first_page: u64, buf: &mut [u8]) -> Result<()> {
        assert!(buf.len().is_multiple_of(PAGE_SIZE), "pages are read whole");
        self.reader.read_range(view, list, first_page, buf)
    }

    fn next_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>> {
        self.reader.find_data(view, list, from)
    }

    fn next_hole(&self, view: View, list: Lid, from: u64) -> Result<u64> {
        self.reader.find_hole(view, list, from)
    }

    fn count_pages(&self, view: View, list: Lid, range: Range<u64>) -> Result<u64> {
        self.reader.count_present(view, list, &range)
    }
}
