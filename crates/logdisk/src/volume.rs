//! An open volume: the device, the store of clean nodes, and the engine behind its lock.
//!
//! Everything above works on the volume. This module says who may change it, and when nobody may.
//!
//! - [`holds`]: how long the engine's lock is held at most.
//! - [`sparing`]: what happens to writes that the device refuses.
//!
//! Invariants:
//! 2. (flush 2) A failed flush is never tried again and believed: the volume latches. Every later
//!    change and flush fails with the first reason until the volume is opened again. A device
//!    reports what it has lost to one flush alone, so flushes wait for each other.

pub(crate) mod holds;
mod sparing;

use std::sync::OnceLock;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::sync::{
    Arc, BriefReadGuard, BriefRwLock, BriefWriteGuard, Mutex, MutexGuard, RwLock, Weak,
};
use dendro_base::{Timestamp, Uuid, priority};
use dendro_device::Device;
use dendro_disk::{Error, Result};
use dendro_format::superblock::INCOMPATIBLE_REMADE_LISTS;
use dendro_format::{Addr, Compression, Layout, SegmentNo, Superblock};

use crate::compression::Compressors;
use crate::damage::DamageLog;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::log::backups::Backups;
use crate::log::redirection::{VolumeDevice, redirect};
use crate::log::segments::{NewTable, Tiers};
use crate::log::superblocks;
use crate::log::writer::{Refusal, Writer};
use crate::map::budget;
use crate::map::store::NodeStore;
use crate::volume::holds::{Holds, LockHolder};

/// An open volume.
pub(crate) struct Volume {
    device: Arc<VolumeDevice>,
    uuid: Uuid,
    metadata_copies: u8,
    store: NodeStore,
    engine: BriefRwLock<Engine>,
    writer: Arc<Writer>,
    /// The newest superblock. The lock is held while the next one is written.
    superblock: Mutex<Superblock>,
    /// The same, for those who only read it. They do not wait for the device.
    published: RwLock<Arc<Superblock>>,
    /// Locked after the superblock.
    backups: Mutex<Backups>,
    /// Held by who flushes the device, until others know whether the flush failed (flush 2). It is
    /// locked after all others.
    flushing: Mutex<()>,
    /// The first reason why the volume latched.
    failure: OnceLock<String>,
    next_list: AtomicU64,
    /// The memory of the dirty and superseded nodes when a commit last weighed the parts of the
    /// cache.
    weighed_bytes: AtomicU64,
    holds: Holds,
    compressors: Compressors,
    /// Who finishes what units have put off.
    settler: OnceLock<Weak<dyn Settle + Send + Sync>>,
}

/// Finishes what units have put off, for those who must not see a part of it.
pub(crate) trait Settle {
    /// Finishes it. No lock is held.
    ///
    /// # Errors
    /// The reason why it cannot be finished now.
    fn settle(&self) -> Result<()>;
}

/// What the memory of nodes that must stay in memory asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Nothing.
    None,
    /// A checkpoint in the background, so that no commit comes to wait for it.
    CheckpointIsDue,
    /// Commits must wait until a checkpoint frees memory.
    CommitsWait,
}

/// A commit weighs the parts of the cache when what must stay in memory has changed by more than
/// this part of the cache.
const WEIGHED_PART: u64 = 1024;

impl Volume {
    pub(crate) fn new(
        device: Arc<VolumeDevice>,
        mut superblock: Superblock,
        store: NodeStore,
        engine: Engine,
        compression: (Option<Compression>, Option<Compression>),
    ) -> Self {
        // Applying the log again may have left lists to be removed that nothing was left of when it
        // was first applied.
        if engine.state().removals().are_remade() {
            superblock.incompatible |= INCOMPATIBLE_REMADE_LISTS;
        }
        store.leave_room(engine.beside_clean_nodes());
        Self {
            device,
            uuid: superblock.uuid,
            metadata_copies: superblock.metadata_copies(),
            compressors: Compressors::new(&superblock, compression),
            settler: OnceLock::new(),
            writer: Arc::clone(engine.writer()),
            published: RwLock::new(Arc::new(superblock.clone())),
            superblock: Mutex::new(superblock),
            backups: Mutex::default(),
            flushing: Mutex::default(),
            failure: OnceLock::new(),
            next_list: AtomicU64::new(engine.state().next_list()),
            weighed_bytes: AtomicU64::new(0),
            holds: Holds::default(),
            store,
            engine: BriefRwLock::new(engine),
        }
    }

    /// Says who finishes what units have put off; it is said once.
    pub(crate) fn set_settler(&self, settler: Weak<dyn Settle + Send + Sync>) {
        let _ = self.settler.set(settler);
    }

    /// Finishes what units have put off. No lock is held.
    ///
    /// # Errors
    /// As [`Settle::settle`].
    pub(crate) fn settle(&self) -> Result<()> {
        match self.settler.get().and_then(Weak::upgrade) {
            Some(settler) => settler.settle(),
            None => Err(Fault::Rearranged.into_error()),
        }
    }

    /// Unlocks the engine after a change, and has the cache of clean nodes leave room for the
    /// others.
    pub(crate) fn unlock(&self, engine: BriefWriteGuard<'_, Engine>) {
        let others = engine.beside_clean_nodes();
        drop(engine);
        self.store.leave_room(others);
    }

    /// Unlocks the engine after a commit. Returns what the memory of the map's nodes asks for.
    pub(crate) fn unlock_after_commit(&self, engine: BriefWriteGuard<'_, Engine>) -> Pressure {
        let resident_bytes = engine.state().map().resident_bytes();
        let weighed_bytes = self.weighed_bytes.load(Ordering::Relaxed);
        if resident_bytes.abs_diff(weighed_bytes) <= self.store.cache_size_bytes() / WEIGHED_PART {
            return Pressure::None;
        }
        let pressure = if self.is_over_memory_limit(&engine) {
            Pressure::CommitsWait
        } else {
            self.weighed_bytes.store(resident_bytes, Ordering::Relaxed);
            let is_due = self.is_over_dirty_limit(&engine);
            if is_due { Pressure::CheckpointIsDue } else { Pressure::None }
        };
        self.unlock(engine);
        pressure
    }

    /// Locks the engine for reading.
    pub(crate) fn read(&self) -> BriefReadGuard<'_, Engine> {
        self.engine.read()
    }

    /// Locks the engine for changes.
    pub(crate) fn write(&self) -> BriefWriteGuard<'_, Engine> {
        self.engine.write()
    }

    /// What compresses and decompresses pages.
    pub(crate) const fn compressors(&self) -> &Compressors {
        &self.compressors
    }

    /// How long the engine's lock is held.
    pub(crate) const fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Does `work` with the lock held, at the priority of threads that clients wait for, and notes
    /// how long it was.
    pub(crate) fn hold<T>(&self, holder: LockHolder, work: impl FnOnce(&mut Engine) -> T) -> T {
        let _raised = priority::raise();
        let mut engine = self.write();
        let began = engine.clock().now();
        let result = work(&mut engine);
        self.holds().note(holder, began, engine.clock().now());
        result
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The device, for those who outlive this borrow.
    pub(crate) fn shared_device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device) as _
    }

    /// The layout as it is now.
    pub(crate) fn layout(&self) -> Layout {
        self.store.layout().get()
    }

    /// The part of the layout that the volume keeps: all of it, unless the volume becomes shorter.
    pub(crate) fn usable_layout(&self) -> Layout {
        self.store.layout().usable()
    }

    /// Has the volume keep only this part of its segments, or all of them again.
    pub(crate) fn set_usable_layout(&self, layout: Layout) {
        self.store.layout().set_usable(layout);
    }

    /// Ends the volume before the segments that were given up, as its superblock states.
    ///
    /// # Errors
    /// [`Error::Failed`] when the superblock's list of retired segments is unsound: the volume
    /// latches.
    pub(crate) fn cut_off_segments(
        &self,
        engine: &mut Engine,
        superblock: &Superblock,
    ) -> Result<()> {
        redirect(&self.device, superblock).map_err(|error| self.latch(Fault::Error(error)))?;
        engine.state_mut().segments_mut().cut_off(superblock.layout);
        self.store.layout().set(superblock.layout);
        Ok(())
    }

    /// Gives the volume more segments, as its superblock states. Streams may fill them from now on.
    pub(crate) fn add_segments(&self, engine: &mut Engine, layout: Layout, table: NewTable) {
        // Whoever sees the layout before the table waits for the lock of the engine.
        self.store.layout().set(layout);
        engine.state_mut().segments_mut().grow(layout, table);
    }

    /// How often nodes of the map and checkpoints are kept.
    pub(crate) const fn metadata_copies(&self) -> u8 {
        self.metadata_copies
    }

    pub(crate) const fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The store of clean nodes.
    pub(crate) const fn store(&self) -> &NodeStore {
        &self.store
    }

    /// The queue of closed partial segments.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The damage that was found since the volume was opened.
    pub(crate) const fn damage(&self) -> &DamageLog {
        self.store.damage()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.read().clock().now()
    }

    /// The lowest number that no list has had.
    pub(crate) fn next_list(&self) -> u64 {
        self.next_list.load(Ordering::Acquire)
    }

    /// Gives out the next number of a list.
    pub(crate) fn take_list_number(&self) -> u64 {
        self.next_list.fetch_add(1, Ordering::AcqRel)
    }

    /// Notes the numbers of lists that the engine has seen.
    pub(crate) fn note_lists_of(&self, engine: &Engine) {
        if engine.state().next_list() > self.next_list() {
            self.next_list.fetch_max(engine.state().next_list(), Ordering::AcqRel);
        }
    }

    /// Latches the volume: it accepts no writes any more (flush 2). Returns the error that states
    /// the first reason.
    pub(crate) fn latch(&self, fault: Fault) -> Error {
        let why = match fault {
            Fault::Error(Error::Failed(why)) => why,
            fault => fault.into_error().to_string(),
        };
        Error::Failed(self.failure.get_or_init(|| why).clone())
    }

    pub(crate) fn latch_write(&self, why: String) -> Error {
        self.latch(Fault::Error(Error::Failed(why)))
    }

    /// The error with which every change fails, if the volume has latched.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned().map(Error::Failed)
    }

    /// Returns an error if the volume takes no changes.
    pub(crate) fn check_writable(&self, engine: &Engine) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        engine.closed_reason().cloned().map_or(Ok(()), Err)
    }

    /// Whether the volume takes changes now.
    pub(crate) fn is_writable(&self) -> bool {
        self.failure().is_none() && self.read().closed_reason().is_none()
    }

    /// The most that the limit of dirty nodes can be with this layout, in bytes.
    pub(crate) fn most_dirty_bytes(&self, layout: Layout) -> u64 {
        budget::dirty_limit_bytes(self.store.cache_size_bytes(), layout.len_bytes(), 0)
    }

    /// The limit of dirty nodes, in bytes, above which a checkpoint is due.
    fn dirty_limit_bytes(&self, table_bytes: u64) -> u64 {
        let len_bytes = self.usable_layout().len_bytes();
        budget::dirty_limit_bytes(self.store.cache_size_bytes(), len_bytes, table_bytes)
    }

    /// Whether dirty nodes take so much memory that a checkpoint is due.
    pub(crate) fn is_over_dirty_limit(&self, engine: &Engine) -> bool {
        let table_bytes = engine.state().segments().memory_bytes();
        engine.state().map().dirty_bytes() > self.dirty_limit_bytes(table_bytes)
    }

    /// Whether commits may have to wait soon until a checkpoint frees memory: half of what they can
    /// take while one is due is taken.
    pub(crate) fn is_near_memory_limit(&self, engine: &Engine) -> bool {
        let dirty_bytes = self.dirty_limit_bytes(engine.state().segments().memory_bytes());
        let limit_bytes = budget::memory_limit_bytes(dirty_bytes);
        engine.state().map().resident_bytes() > dirty_bytes.midpoint(limit_bytes)
    }

    /// Whether commits must wait until a checkpoint frees memory.
    pub(crate) fn is_over_memory_limit(&self, engine: &Engine) -> bool {
        let limit_bytes = self.dirty_limit_bytes(engine.state().segments().memory_bytes());
        engine.state().map().resident_bytes() > budget::memory_limit_bytes(limit_bytes)
    }

    pub(crate) fn read_device(&self, addr: Addr, bytes: &mut [u8]) -> Result<()> {
        self.device.read_at(addr.bytes(), bytes).map_err(|error| Error::Io(error.to_string()))
    }

    /// Flushes the device. If that fails, the volume latches (flush 2).
    ///
    /// # Errors
    /// [`Error::Failed`], also if the volume latched before.
    pub(crate) fn flush_device(&self) -> Result<()> {
        let _flushing = self.flushing.lock();
        self.failure().map_or(Ok(()), Err)?;
        self.device.flush().map_err(|error| self.latch_write(error.to_string()))
    }

    /// Which of several devices holds a segment alone; see [`Device::part_at`].
    pub(crate) fn failure_domain(&self, segment: SegmentNo) -> Option<u32> {
        let part = self.device().part_at(self.layout().segment_offset(segment));
        part.map(|part| part.number)
    }

    /// Takes over which segments are fast, if that has changed.
    pub(crate) fn learn_tiers(&self) {
        let version = self.device().parts_version();
        if !self.read().state().segments().knows_tiers(version) {
            let tiers = Tiers::on(self.device(), self.layout());
            self.write().state_mut().segments_mut().set_tiers(tiers);
        }
    }

    /// Calls `change`, which makes the device longer or shorter, and flushes it for that.
    ///
    /// # Errors
    /// [`Error::Failed`] as for [`Self::flush_device`], if it is the flush that fails.
    pub(crate) fn change_device_len(
        &self,
        change: impl FnOnce(&dyn Device) -> dendro_device::Result<()>,
    ) -> Result<dendro_device::Result<()>> {
        let _flushing = self.flushing.lock();
        self.failure().map_or(Ok(()), Err)?;
        match change(self.device()) {
            Err(error) if error.is_flush() => Err(self.latch_write(error.to_string())),
            changed => Ok(changed),
        }
    }

    /// Writes the partial segment that was queued first; returns whether one was queued.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full: the partial segment
    /// stays queued. [`Error::Failed`] when the device can write it nowhere: the volume latches.
    pub(crate) fn write_one(&self) -> Result<bool> {
        let write_again = |offset, bytes: &[u8]| self.write_somewhere(offset, bytes);
        let wrote = match self.writer.write_one(&*self.device, write_again) {
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
    /// waits of what is queued now. What others queue meanwhile they write themselves.
    pub(crate) fn relieve_writer(&self) -> Result<()> {
        self.writer.wake();
        if !self.writer.is_over_limit() {
            return Ok(());
        }
        let count = self.writer.queued_count();
        // If the host is full, later calls report it; what this call has done is accepted.
        while self.writer.is_over_limit_among(count) {
            match self.write_one() {
                Ok(true) => {}
                Ok(false) | Err(Error::NoSpace { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has everything written that is queued or being written now: all partial segments that have
    /// been closed, of all streams. It is not durable yet. What others queue meanwhile does not
    /// delay this, however fast they write.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full: nothing is lost.
    /// [`Error::Failed`] as for [`Self::write_one`].
    pub(crate) fn write_queued(&self) -> Result<()> {
        let count = self.writer.queued_count();
        loop {
            while self.writer.is_waiting(count) {
                self.write_one()?;
            }
            // A buffer that another thread tried to write may have returned to the queue.
            if self.writer.wait_written(count).map_err(|why| self.latch_write(why))? {
                return Ok(());
            }
        }
    }

    /// Locks the newest superblock, so that nobody writes the next one.
    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock()
    }

    /// The newest superblock, also while the next one is written.
    pub(crate) fn newest_superblock(&self) -> Arc<Superblock> {
        Arc::clone(&self.published.read())
    }

    /// Makes `next`, which is durable, the newest superblock.
    fn publish_superblock(&self, newest: &mut Superblock, next: Superblock) {
        *self.published.write() = Arc::new(next.clone());
        *newest = next;
    }

    /// Makes the device allocate the place of the next superblock.
    ///
    /// # Errors
    /// As [`Self::append_superblock`].
    pub(crate) fn allocate_superblock(&self) -> Result<()> {
        superblocks::allocate_next(self.device.below(), &self.superblock.lock())
            .map_err(|error| self.latch_unless_full(error))
    }

    /// Makes the newest superblock with `change`, and a number of its own. `newest` is the lock
    /// that [`Self::superblock`] returned.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system that holds the image is full: `newest` is
    /// unchanged. [`Error::Failed`] when the device fails: the volume latches.
    pub(crate) fn append_superblock(
        &self,
        newest: &mut Superblock,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let mut next = newest.clone();
        next.seq = newest.seq.wrapping_add(1);
        change(&mut next);
        superblocks::append(self.device.below(), &mut next)
            .map_err(|error| self.latch_unless_full(error))?;
        self.flush_device()?;
        self.publish_superblock(newest, next);
        self.back_up(newest)
    }

    /// Marks on the device that the volume has incompatible features, before it has what older
    /// software does not understand.
    ///
    /// # Errors
    /// As [`Self::append_superblock`].
    pub(crate) fn mark_features(&self, incompatible: u64) -> Result<()> {
        let mut newest = self.superblock();
        if newest.incompatible & incompatible == incompatible {
            return Ok(());
        }
        let now = self.now();
        self.append_superblock(&mut newest, |next| {
            next.incompatible |= incompatible;
            next.written = now;
        })
    }

    /// Has a superblock state where the members of the set end, unless the newest one does.
    ///
    /// # Errors
    /// As [`Self::append_superblock`].
    pub(crate) fn mark_member_ends(&self) -> Result<()> {
        let mut newest = self.superblock();
        if newest.member_ends == self.device.member_ends() {
            return Ok(());
        }
        let now = self.now();
        self.append_superblock(&mut newest, |next| next.written = now)
    }

    /// Writes a backup of the newest superblock, which is durable, if one is due.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device cannot be flushed: the volume latches (flush 2).
    fn back_up(&self, newest: &Superblock) -> Result<()> {
        if self.backups.lock().write_if_due(self.device.below(), newest) {
            self.flush_device()?;
        }
        Ok(())
    }

    /// Writes a superblock that states that the volume is in use, before the log continues where a
    /// clean shutdown left it.
    ///
    /// # Errors
    /// As [`Self::append_superblock`].
    pub(crate) fn mark_unclean(&self) -> Result<()> {
        let mut newest = self.superblock();
        let now = self.now();
        self.append_superblock(&mut newest, |next| {
            next.clean = false;
            next.written = now;
        })
    }

    /// Latches the volume for any error but that of a full host.
    fn latch_unless_full(&self, error: Error) -> Error {
        match error {
            Error::NoSpace { .. } => error,
            error => self.latch(Fault::Error(error)),
        }
    }
}
