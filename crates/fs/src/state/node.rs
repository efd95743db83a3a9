//! An i-node in memory, and its lock.

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use dendro_base::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use dendro_disk::{LogicalDisk, View};

use crate::error::{FsError, Result};
use crate::layout::format::{FIRST_FILE_LIST, HEAD_INDEX};
use crate::layout::inode::Inode;
use crate::types::{FileTime, Ino};

/// The memory that the allocator and the reference counts of an [`Arc`](std::sync::Arc) take for
/// each node.
const ALLOCATION_BYTES: usize = 32;

/// No access time has to be written.
const NO_ATIME: i64 = i64::MIN;

/// The cached state of an i-node.
#[derive(Debug)]
enum Slot {
    /// It was not read from the disk yet.
    Unknown,
    /// It is as on the disk, except for the access time.
    Live(Inode),
    /// The file was removed. This is its last state.
    Removed(Inode),
}

/// An i-node in memory: its state behind a lock.
#[derive(Debug)]
pub(crate) struct Node {
    ino: Ino,
    slot: RwLock<Slot>,
    /// An access time that is not on the disk yet, in nanoseconds, or [`NO_ATIME`]. It is set under
    /// the shared lock, and reset under the exclusive one.
    pending_atime: AtomicI64,
    /// Whether the node was used since eviction last considered it.
    used: AtomicBool,
}

/// A shared lock on a live i-node.
pub(crate) type ReadGuard<'a> = MappedRwLockReadGuard<'a, Inode>;

impl Node {
    pub(super) fn new(ino: Ino) -> Self {
        Self {
            ino,
            slot: RwLock::new(Slot::Unknown),
            pending_atime: AtomicI64::new(NO_ATIME),
            used: AtomicBool::new(true),
        }
    }

    pub(crate) const fn ino(&self) -> Ino {
        self.ino
    }

    fn load(&self, disk: &dyn LogicalDisk, view: View, slot: &mut Slot) -> Result<()> {
        if let Slot::Unknown = slot {
            let is_file = self.ino == Ino::ROOT || self.ino.lid() >= FIRST_FILE_LIST;
            let record =
                if is_file { disk.record(view, self.ino.lid(), HEAD_INDEX)? } else { None };
            *slot = Slot::Live(Inode::decode(self.ino, &record.ok_or(FsError::Stale)?)?);
        }
        Ok(())
    }

    /// Locks the i-node for reading, removed or not, after reading it from the disk if necessary.
    fn lock_loaded(&self, disk: &dyn LogicalDisk, view: View) -> Result<RwLockReadGuard<'_, Slot>> {
        loop {
            let guard = self.slot.read();
            if !matches!(*guard, Slot::Unknown) {
                return Ok(guard);
            }
            drop(guard);
            self.load(disk, view, &mut self.slot.write())?;
        }
    }

    /// Locks the i-node for reading. [`FsError::Stale`] if it was removed.
    pub(crate) fn read(&self, disk: &dyn LogicalDisk, view: View) -> Result<ReadGuard<'_>> {
        let guard = self.lock_loaded(disk, view)?;
        RwLockReadGuard::try_map(guard, |slot| match slot {
            Slot::Live(inode) => Some(inode),
            Slot::Unknown | Slot::Removed(_) => None,
        })
        .map_err(|_| FsError::Stale)
    }

    /// Locks the i-node for reading. If the file was removed, this is its last state. The flag says
    /// whether it was removed.
    pub(crate) fn read_last_state(
        &self,
        disk: &dyn LogicalDisk,
        view: View,
    ) -> Result<(ReadGuard<'_>, bool)> {
        let guard = self.lock_loaded(disk, view)?;
        let is_removed = matches!(*guard, Slot::Removed(_));
        RwLockReadGuard::try_map(guard, |slot| match slot {
            Slot::Live(inode) | Slot::Removed(inode) => Some(inode),
            Slot::Unknown => None,
        })
        .map(|inode| (inode, is_removed))
        .map_err(|_| FsError::Stale)
    }

    /// Locks the i-node for changing. [`FsError::Stale`] if it was removed.
    pub(crate) fn write(&self, disk: &dyn LogicalDisk, view: View) -> Result<WriteGuard<'_>> {
        let mut guard = self.slot.write();
        self.load(disk, view, &mut guard)?;
        match *guard {
            Slot::Live(_) => Ok(WriteGuard { node: self, slot: guard }),
            Slot::Removed(_) | Slot::Unknown => Err(FsError::Stale),
        }
    }

    /// As [`Self::write`], if the lock is free and the i-node in memory.
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_>> {
        self.try_write_live().ok().flatten()
    }

    /// As [`Self::write`], for an i-node that is in memory. `None` if the lock is not free.
    pub(crate) fn try_write_live(&self) -> Result<Option<WriteGuard<'_>>> {
        let Some(guard) = self.slot.try_write() else { return Ok(None) };
        match *guard {
            Slot::Live(_) => Ok(Some(WriteGuard { node: self, slot: guard })),
            Slot::Removed(_) | Slot::Unknown => Err(FsError::Stale),
        }
    }

    /// Stores an i-node that was just created, unless another thread has read it since, and may
    /// have changed it.
    pub(crate) fn fill(&self, inode: Inode) {
        let mut slot = self.slot.write();
        if let Slot::Unknown = *slot {
            *slot = Slot::Live(inode);
        }
    }

    /// Changes the last state of a removed file; `None` if it was not removed.
    pub(crate) fn change_last_state<R>(
        &self,
        change: impl FnOnce(&mut Inode) -> Result<R>,
    ) -> Option<Result<R>> {
        match &mut *self.slot.write() {
            Slot::Removed(inode) => Some(change(inode)),
            Slot::Live(_) | Slot::Unknown => None,
        }
    }

    /// Drops the last state of a removed file.
    pub(crate) fn drop_last_state(&self) {
        let mut slot = self.slot.write();
        if let Slot::Removed(_) = *slot {
            *slot = Slot::Unknown;
        }
    }

    /// Approximately the memory that the node takes. Inline data of a node that is locked right now
    /// are not counted.
    pub(super) fn memory_bytes(&self) -> usize {
        let slot = self.slot.try_read();
        let inline_len = slot.map_or(0, |slot| match &*slot {
            Slot::Live(inode) | Slot::Removed(inode) => inode.inline.capacity(),
            Slot::Unknown => 0,
        });
        size_of::<Self>() + ALLOCATION_BYTES + inline_len
    }

    /// Whether the node was used since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Records that the node is used.
    pub(super) fn set_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// The access time that is not on the disk yet.
    pub(crate) fn pending_atime(&self) -> Option<FileTime> {
        match self.pending_atime.load(Ordering::Relaxed) {
            NO_ATIME => None,
            nanos => Some(Timestamp(nanos).into()),
        }
    }

    /// Records an access. The caller has the shared lock.
    pub(crate) fn set_pending_atime(&self, time: Timestamp) {
        self.pending_atime.store(time.0, Ordering::Relaxed);
    }
}

/// An exclusive lock on a live i-node.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a> {
    node: &'a Node,
    slot: RwLockWriteGuard<'a, Slot>,
}

impl WriteGuard<'_> {
    pub(crate) const fn ino(&self) -> Ino {
        self.node.ino
    }

    /// The i-node as on the disk.
    pub(crate) fn inode(&self) -> &Inode {
        match &*self.slot {
            Slot::Live(inode) | Slot::Removed(inode) => inode,
            Slot::Unknown => unreachable!("guards exist only for i-nodes that were read"),
        }
    }

    /// A copy for changing, with the latest access time. Others see it after [`Self::set`].
    pub(crate) fn edit(&self) -> Inode {
        match self.node.pending_atime() {
            None => self.inode().clone(),
            Some(atime) => Inode { atime, ..self.inode().clone() },
        }
    }

    /// Stores a changed copy, which is committed.
    pub(crate) fn set(&mut self, inode: Inode) {
        self.node.pending_atime.store(NO_ATIME, Ordering::Relaxed);
        match &mut *self.slot {
            // The i-node is moved once, not into a new slot that is then moved too.
            Slot::Live(old) => *old = inode,
            slot => *slot = Slot::Live(inode),
        }
    }

    /// Records that the file was removed; `inode` is its last state.
    pub(crate) fn set_removed(&mut self, inode: Inode) {
        self.node.pending_atime.store(NO_ATIME, Ordering::Relaxed);
        *self.slot = Slot::Removed(inode);
    }
}
