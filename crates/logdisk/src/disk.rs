//! The log-structured disk as its clients see it.
//!
//! Lock order: what [`Rearranger`], [`Resizer`], [`IdleCoalescing`], [`Remover`], [`Collector`],
//! [`Cleaner`], [`Checkpointer`] and group commit lock, each in its turn; then the superblock, the
//! engine and the writer's queue. The engine and the queue are never locked during device I/O
//! (apply 2).
//! Background work, and the threads that wait for it, hold the other locks for as long as the work
//! takes.
//!
//! [`Collector`]: crate::reclaim::collection::Collector

mod cleaning;
pub(crate) mod opening;
mod versions;

use std::ops::Range;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::{Arc, Weak};
use dendro_disk::{
    Aru, Chore, ClientKind, CommitSeq, Completion, Error, ExpectedRelease, Lid, ListHints,
    LogicalDisk, Outlasts, PAGE_SIZE, PageRange, Quota, Record, Reservation, Result, ScanPoint,
    Scanned, Space, View,
};
use dendro_format::superblock::{INCOMPATIBLE_SET, INCOMPATIBLE_SPREAD};
use dendro_format::{CompressedPages, Superblock};

use crate::background::Background;
use crate::checkpoint::{Checkpointer, unless_put_off};
use crate::clean::cleaner::Cleaner;
use crate::clean::coalesce::{IdleCoalescing, Mover};
use crate::clean::external::ExternalAccess;
use crate::commit::committer::Committer;
use crate::commit::unit::most_bytes_of;
use crate::damage::DamageLog;
use crate::flush::Flusher;
use crate::frozen::FrozenVolume;
use crate::log::segments::SegmentCounts;
use crate::read::Reader;
use crate::rearranger::Rearranger;
use crate::reclaim::make_room::RoomMaker;
use crate::reclaim::no_space::Reclaimer;
use crate::reclaim::removal::Remover;
use crate::resize::{Resizer, ShrinkProgress};
use crate::scrub::Scrub;
use crate::snapshots::manage::VersionManager;
use crate::space::reserve::Accounts;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The log-structured logical disk.
///
/// It starts no threads. The program that opens it may call [`Self::write_step`] and
/// [`Self::background_step`] from threads of its own. Without such threads, commits and flushes do
/// this work themselves.
pub struct LogDisk {
    volume: Arc<Volume>,
    reader: Arc<Reader>,
    committer: Committer,
    flusher: Arc<Flusher>,
    accounts: Arc<Accounts>,
    checkpointer: Arc<Checkpointer>,
    cleaner: Arc<Cleaner>,
    mover: Arc<Mover>,
    idle_coalescing: IdleCoalescing,
    external: ExternalAccess,
    room_maker: Arc<RoomMaker>,
    remover: Arc<Remover>,
    reclaimer: Arc<Reclaimer>,
    rearranger: Arc<Rearranger>,
    versions: VersionManager,
    resizer: Arc<Resizer>,
    background: Arc<Background>,
    /// Notes from opening the volume that users should see.
    recovery_notes: Vec<String>,
    /// Whether it was not shut down before it was opened.
    was_unclean: bool,
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
    /// About what pages take that are kept because they are likely to be changed in part again.
    pub recent_page_bytes: u64,
    /// What the buffers of partial segments take, in use and spare.
    pub log_buffer_bytes: u64,
    /// About what the table of segments takes.
    pub segment_table_bytes: u64,
    /// Live bytes of blocks and nodes.
    pub live_bytes: u64,
    /// Live bytes of nodes among them.
    pub node_bytes: u64,
    /// The live pages that are stored compressed, in all versions. `None`: older software has
    /// compressed pages and did not count them.
    pub compressed: Option<CompressedPages>,
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
    /// The longest time for which the engine's lock was held by each of [`LockHolder::ALL`].
    pub longest_holds: [Duration; LockHolder::ALL.len()],
}

impl LogDisk {
    /// The newest superblock.
    pub fn superblock(&self) -> Superblock {
        (*self.volume.newest_superblock()).clone()
    }

    /// Bytes of nodes of the map that lie on the device once only, although the volume asks for two
    /// copies: there was no room for the second, or a rebuild has not made one.
    pub fn unmirrored_bytes(&self) -> u64 {
        match self.volume.metadata_copies() {
            1 => 0,
            _ => self.volume.read().state().segments().unmirrored_bytes(),
        }
    }

    /// The damage that was found when the volume was opened, and what it cost.
    pub fn recovery_notes(&self) -> &[String] {
        &self.recovery_notes
    }

    /// Whether the volume was not shut down cleanly before it was opened, for writing, and its log
    /// was rolled forward.
    pub const fn was_unclean(&self) -> bool {
        self.was_unclean
    }

    /// Takes no changes any more, as if it had been opened for reading; `why` is the reason that
    /// changes are answered. What was committed before becomes durable.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails.
    pub fn close_for_writing(&self, why: &str) -> Result<()> {
        self.rearranger.finish_before_closing()?;
        {
            let mut engine = self.volume.write();
            engine.close(Error::ReadOnly(why.to_owned()));
        }
        self.flusher.flush_up_to(CommitSeq::LATEST)
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
        let (cleaned_segments, moved_bytes, cleaned_live_bytes) = self.cleaner.totals();
        let (coalesced_bytes, coalesced_reads) = self.mover.totals();
        let (external_moved_bytes, external_released_segments) = self.external.totals();
        let engine = self.volume.read();
        let counts = engine.state().segments().page_counts();
        Stats {
            commit_seq: engine.commit_seq(),
            durable_seq: self.flusher.durable_seq(),
            checkpoint_seq: self.checkpointer.seq(),
            checkpoint_time: self.checkpointer.time(),
            log_bytes: engine.log_bytes(),
            written_bytes: engine.written_bytes(),
            dirty_node_bytes: engine.state().map().dirty_bytes(),
            superseded_node_bytes: engine.state().map().superseded_bytes(),
            cached_node_bytes: self.volume.store().cached_bytes(),
            recent_page_bytes: engine.recent_bytes(),
            log_buffer_bytes: engine.buffer_bytes(),
            segment_table_bytes: engine.state().segments().memory_bytes(),
            live_bytes: engine.state().segments().live_bytes(),
            node_bytes: engine.state().segments().node_bytes(),
            compressed: counts.compressed_are_exact.then_some(counts.compressed),
            segments: engine.state().segments().counts(),
            cleaned_segments,
            reused_segments: engine.reuse_queue().reused(),
            moved_bytes,
            cleaned_live_bytes,
            coalesced_bytes,
            coalesced_reads,
            external_moved_bytes,
            external_released_segments,
            user_page_bytes: engine.user_page_bytes(),
            user_record_bytes: engine.user_record_bytes(),
            stalled: self.room_maker.stalled(),
            longest_holds: self.volume.holds().longest(),
        }
    }

    /// Takes a whole checkpoint of the state at some moment after the call.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails: the disk accepts no more writes.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpointer.take()
    }

    /// States durably that the volume lies on a set of devices, so that software that does not know
    /// of sets writes to none of them; that it `is_spread` over them, for software that knows of
    /// mirrored ones alone.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails: the disk accepts no more writes.
    pub fn lie_on_set(&self, is_spread: bool) -> Result<()> {
        let spread = if is_spread { INCOMPATIBLE_SPREAD } else { 0 };
        self.volume.mark_features(INCOMPATIBLE_SET | spread)
    }

    /// States durably where the members of a set end, if that was stated otherwise. What is stated
    /// is true when it is called before and after one of them takes in more of its device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds an image is full; [`Error::ReadOnly`];
    /// [`Error::Failed`] when the device fails: the disk accepts no more writes.
    pub fn state_member_ends(&self) -> Result<()> {
        self.volume.check_writable(&self.volume.read())?;
        self.volume.mark_member_ends()
    }

    /// The length of the device, which may be longer than the volume.
    pub fn device_len_bytes(&self) -> u64 {
        self.volume.device().len_bytes()
    }

    /// Makes the volume longer: it takes the first `len_bytes` of the device, in whole segments and
    /// without the room for backups of superblocks at the device's end. If the device is shorter
    /// than `device_len_bytes` it is made that long first. A volume that has as many segments
    /// already stays as it is.
    ///
    /// After a crash the volume is as long as before, or has its new length.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full; [`Error::Io`] when the
    /// device cannot be made that long, or the volume cannot have so many segments;
    /// [`Error::ReadOnly`]; [`Error::Failed`] when the device fails. The device may have become
    /// longer by then, but the volume has not.
    pub fn grow(&self, len_bytes: u64, device_len_bytes: u64) -> Result<()> {
        self.resizer.grow(len_bytes, device_len_bytes)?;
        // There may be room now for what waits for it.
        self.background.wake();
        Ok(())
    }

    /// Begins to make the volume shorter: it keeps the first `len_bytes` of the device, in whole
    /// segments and without the room for backups of superblocks at the end of a device of
    /// `device_len_bytes`. [`Self::shrink_step`] does the work, while clients go on. From now on
    /// they are told the free space of the smaller volume. If the device is longer than
    /// `device_len_bytes` it is made that short in the end; a volume that is as short already has
    /// its device cut off at once.
    ///
    /// After a crash the volume is as long as before, or has its new length.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when what clients have would not fit: [`Self::smallest_len_bytes`] would;
    /// [`Error::Io`] when the volume would have too few segments, is smaller already, or is being
    /// made smaller; [`Error::ReadOnly`]; [`Error::Failed`] when the device fails.
    pub fn begin_shrinking(&self, len_bytes: u64, device_len_bytes: u64) -> Result<()> {
        self.resizer.begin_shrinking(len_bytes, device_len_bytes)
    }

    /// Performs one step of making the volume shorter: empties a segment, or takes a checkpoint.
    /// Returns how far it is, or `None` when there is nothing left to be done.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no room to empty the segments; [`Error::Corrupted`] when
    /// something in them cannot be read; [`Error::Io`] when the device cannot be made shorter;
    /// [`Error::ReadOnly`] when the disk was shut down meanwhile; [`Error::Failed`] when the device
    /// fails. The volume has its former size, or the new one if only the device could not be
    /// made shorter.
    pub fn shrink_step(&self) -> Result<Option<ShrinkProgress>> {
        self.resizer.shrink_step()
    }

    /// Gives up making the volume shorter: it keeps its size.
    pub fn stop_shrinking(&self) {
        self.resizer.stop_shrinking();
    }

    /// The bytes of the smallest number of segments into which fits what clients have, and have
    /// reserved; those of all if there is no smaller one. The room for backups comes on top.
    pub fn smallest_len_bytes(&self) -> u64 {
        self.resizer.smallest_layout().len_bytes()
    }

    /// Performs one step of a checkpoint if one is under way or due. Returns whether it did.
    ///
    /// # Errors
    /// As [`Self::checkpoint`].
    pub fn checkpoint_step(&self) -> Result<bool> {
        self.checkpointer.step()
    }

    /// The number of segments that are not filled again because the device could not write them, or
    /// because they have parts of such segments.
    pub fn retired_segment_count(&self) -> u32 {
        let count = self.volume.layout().segment_count();
        self.volume.read().state().segments().retired_count(count)
    }

    /// Whether a write found the host full and waits for room.
    pub fn waits_for_host(&self) -> bool {
        self.accounts.waits_for_host()
    }

    /// Finds the block of a page on the device without reading it: its address in bytes. `None` for
    /// a hole, and for a page of zeros, which takes no block.
    ///
    /// # Errors
    /// [`Error::NoSuchView`], and an error when the map cannot be read.
    pub fn page_addr(&self, view: View, list: Lid, page_index: u64) -> Result<Option<u64>> {
        self.reader.page_addr(view, list, page_index)
    }

    /// Continues a pass of scrubbing: collects a part of what is to be read next, or reads up to
    /// 256 KiB of it. Damage is noted in [`Self::damage`]. Returns whether there is more to do.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a node of the map lies where it may not.
    pub fn scrub_step(&self, scrub: &mut Scrub) -> Result<bool> {
        // A volume that was opened for reading after a loss may begin with something else than its
        // newest superblock. The loss has been reported.
        let reads_roots = self.recovery_notes.is_empty();
        self.volume.scrub_step(scrub, reads_roots)
    }

    /// Freezes the volume: returns its state at this moment as a device, which can be opened and
    /// verified like an image, while writers go on. It takes a checkpoint. Segments that become
    /// empty wait until the device is dropped, or until they are needed; then the state is given
    /// up. `None`: the volume is frozen already.
    ///
    /// # Errors
    /// As [`Self::checkpoint`].
    pub fn freeze(&self) -> Result<Option<FrozenVolume>> {
        FrozenVolume::take(&self.volume, &self.checkpointer)
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
        self.background.step()
    }

    /// Waits up to `timeout` until background work is due. It is for the threads that do this work,
    /// when [`Self::background_step`] or [`Self::clean_step`] had nothing to do. Returns whether it
    /// is due.
    pub fn wait_for_background_work(&self, timeout: Duration) -> bool {
        self.background.wait(timeout)
    }

    /// Waits for at most `timeout` until somebody waits for durability
    /// ([`LogicalDisk::when_durable`]), and makes everything durable then. Returns whether it did.
    /// The thread that makes the log durable at intervals calls it to wait for the next one.
    ///
    /// # Errors
    /// As [`LogicalDisk::flush`].
    pub fn flush_for_others(&self, timeout: Duration) -> Result<bool> {
        self.flusher.flush_for_others(timeout)
    }

    /// Ends all waits in [`Self::write_step`], [`Self::flush_for_others`] and
    /// [`Self::wait_for_background_work`], now and later, so that the threads that call them can
    /// end.
    pub fn end_waiting(&self) {
        self.flusher.end_waiting();
        self.volume.writer().end_waiting();
        self.background.end_waiting();
    }

    /// Takes out a piece of what is left of deleted lists; returns whether there was any.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk does not accept writes.
    pub fn removal_step(&self) -> Result<bool> {
        self.remover.step()
    }

    /// Does one step of what units have put off ([`LogicalDisk::commit`]), if it can be done now;
    /// returns whether it did.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk does not accept writes.
    pub fn rearrangement_step(&self) -> Result<bool> {
        self.rearranger.step()
    }

    /// Does one step of the collection of what only deleted versions saw, if one is due; returns
    /// whether it did.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk does not accept writes.
    pub fn collection_step(&self) -> Result<bool> {
        self.reclaimer.collector().step()
    }
}

impl LogicalDisk for LogDisk {
    fn client_kind(&self, view: View) -> Option<ClientKind> {
        self.volume.read().state().versions().table().kind_of(view.branch)
    }

    fn allocate_list(&self) -> Result<Lid> {
        self.volume.check_writable(&self.volume.read())?;
        Ok(Lid(self.volume.take_list_number()))
    }

    fn try_commit(&self, aru: &mut Aru<'_>) -> Result<CommitSeq> {
        self.committer.commit(aru, &self.reader)
    }

    fn last_commit(&self) -> CommitSeq {
        let is_noted = {
            let engine = self.volume.read();
            engine.noted_lists().map(|_| CommitSeq(engine.commit_seq()))
        };
        is_noted.unwrap_or_else(|| {
            let mut engine = self.volume.write();
            engine.changed_lists();
            CommitSeq(engine.commit_seq())
        })
    }

    fn flush_for(&self, outlasts: Outlasts, up_to: CommitSeq) -> Result<()> {
        if outlasts == Outlasts::Process {
            return self.flusher.write_up_to(up_to);
        }
        self.flusher.flush_up_to(up_to)?;
        let is_alone = self.volume.device().copy_count() < 2;
        if outlasts == Outlasts::Medium && is_alone { Err(Error::OneCopy) } else { Ok(()) }
    }

    fn when_durable(&self, up_to: CommitSeq, then: Completion) {
        self.flusher.call_when_durable(up_to, then);
    }

    fn flush_list(&self, view: View, list: Lid) -> Result<()> {
        let noted = self.volume.read().last_change(view, list);
        let last = noted.unwrap_or_else(|| {
            self.volume.write().changed_lists();
            CommitSeq::LATEST
        });
        self.flusher.flush_up_to(last)
    }

    fn flush(&self, up_to: CommitSeq) -> Result<()> {
        self.flusher.flush_up_to(up_to)
    }

    fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.resizer.reserve_exactly(most_bytes_of(len_bytes))
    }

    fn reserve_in(&self, view: View, len_bytes: u64) -> Result<Reservation> {
        self.resizer.reserve_of_quota(self.reserve(len_bytes)?, view, len_bytes)
    }

    fn quota(&self, view: View) -> Option<Quota> {
        let engine = self.volume.read();
        engine.state().quota_of(view.branch).map(|(quota, _)| quota)
    }

    fn check_free(&self, len_bytes: u64) -> Result<()> {
        self.resizer.reserve_exactly(len_bytes).map(drop)
    }

    fn do_later(&self, chore: Weak<dyn Chore>) {
        self.reclaimer.chores().add(chore);
        self.background.wake();
    }

    fn expect_release(&self) -> ExpectedRelease {
        self.reclaimer.expect_release()
    }

    fn space(&self) -> Space {
        self.accounts.host().look();
        self.remover.remove_for_a_while();
        let (live_bytes, charged_bytes, capacity_bytes, present_capacity_bytes) = {
            let engine = self.volume.read();
            let charged_bytes = self.accounts.charged_bytes(&engine);
            (
                self.accounts.used_bytes(&engine),
                charged_bytes,
                self.accounts.capacity_bytes(&engine),
                self.accounts.present_capacity_bytes(&engine),
            )
        };
        let reserved_bytes = self.accounts.reserved_bytes();
        Space {
            capacity_bytes,
            live_bytes,
            available_bytes: present_capacity_bytes
                .saturating_sub(charged_bytes.saturating_add(reserved_bytes)),
            reserved_bytes,
        }
    }

    fn trim(&self, range: Range<u64>) -> Result<u64> {
        self.volume.check_writable(&self.volume.read())?;
        self.remover.remove_for_a_while();
        self.checkpointer.trim(range)
    }

    fn read_only_reason(&self) -> Option<String> {
        let engine = self.volume.read();
        self.volume.check_writable(&engine).err().map(|error| error.to_string())
    }

    fn shut_down(&self) -> Result<()> {
        self.remover.finish_small();
        self.rearranger.finish_before_closing()?;
        {
            let mut engine = self.volume.write();
            if let Some(error) = self.volume.failure() {
                return Err(error);
            }
            if engine.closed_reason().is_some() {
                return Ok(());
            }
            // Others may have the device soon.
            engine.state().segments().end_hold();
            engine.close(Error::ReadOnly("the disk was shut down".into()));
        }
        if unless_put_off(self.checkpointer.take_last())? {
            self.checkpointer.give_back_all();
            return Ok(());
        }
        // Everything lies in the log, and the next mount continues from there.
        self.flusher.flush_up_to(CommitSeq::LATEST).inspect_err(|error| {
            if matches!(error, Error::NoSpace { .. }) {
                // The buffers that wait for room can still be written when the caller tries again.
                self.volume.write().reopen();
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
        let count = (buf.len() / PAGE_SIZE) as u64;
        self.reader.read_range(view, PageRange { list, first_page, count }, buf)
    }

    fn read_scattered(&self, view: View, ranges: &[PageRange], buf: &mut [u8]) -> Result<()> {
        PageRange::check_buf(ranges, buf);
        self.reader.read_ranges(view, ranges, buf)
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

    fn scan(
        &self,
        view: View,
        from: ScanPoint,
        max: usize,
    ) -> Result<(Vec<Scanned>, Option<ScanPoint>)> {
        self.reader.scan(view, from, max)
    }
}

/// What tests of the rooms below look at.
#[cfg(test)]
impl LogDisk {
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(crate) fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    pub(crate) fn reclaimer(&self) -> &Reclaimer {
        &self.reclaimer
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn reuse(&self) -> crate::space::reuse::Reuse {
        let parts =
            (Arc::clone(&self.volume), Arc::clone(&self.flusher), Arc::clone(&self.accounts));
        crate::space::reuse::Reuse::new(parts.0, parts.1, parts.2)
    }
}
