//! A mounted view of the disk: what all operations share.

use dendro_base::Clock;
use dendro_base::sync::{Arc, Mutex, MutexGuard, Weak};
use dendro_disk::{Aru, Chore, LogicalDisk, View};

use super::access_times::AccessTimes;
use super::freeing_queue::FreeingQueue;
use super::node::{Node, ReadGuard, WriteGuard};
use super::node_cache::NodeCache;
use super::orphan_set::OrphanSet;
use super::references::References;
use crate::error::{FsError, Result};
use crate::layout::format::HEAD_INDEX;
use crate::layout::inode::Inode;
use crate::layout::names::{Name, NameHasher};
use crate::layout::record_edits::RecordEdits;
use crate::layout::volume::Volume;
use crate::types::{AtimePolicy, Attr, FileTime, FreeingLimits, Ino, MemoryUse, Options};

/// A mounted view: the disk, and the i-nodes of the view in memory.
pub(crate) struct FsState {
    disk: Arc<dyn LogicalDisk>,
    view: View,
    clock: Arc<dyn Clock>,
    access_times: AccessTimes,
    read_only: bool,
    label: String,
    hasher: NameHasher,
    nodes: NodeCache,
    references: References,
    orphans: OrphanSet,
    freeing: FreeingQueue,
    freeing_limits: FreeingLimits,
    /// This state, for the disk to call.
    this: Weak<Self>,
    /// Locked by renames between directories; the first in the lock order.
    rename_lock: Mutex<()>,
}

impl std::fmt::Debug for FsState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FsState")
            .field("label", &self.label)
            .field("view", &self.view)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl FsState {
    /// Opens the view of `disk` that `options` name. Of names' hashes only those bits count that
    /// `hash_mask` has.
    pub(crate) fn open(
        disk: Arc<dyn LogicalDisk>,
        options: &Options,
        clock: Arc<dyn Clock>,
        hash_mask: u64,
    ) -> Result<Arc<Self>> {
        let view = options.view;
        let read_only =
            options.read_only || view.epoch.is_some() || disk.read_only_reason().is_some();
        let volume = Volume::read(&*disk, view, !read_only)?;
        Ok(Arc::new_cyclic(|this| Self {
            view,
            clock,
            access_times: AccessTimes::new(match read_only {
                true => AtimePolicy::Noatime,
                false => options.atime,
            }),
            read_only,
            label: volume.label().to_owned(),
            hasher: volume.hasher().with_mask(hash_mask),
            nodes: NodeCache::new(options.inode_cache_len),
            references: References::new(options.lookups_keep_files),
            orphans: OrphanSet::default(),
            freeing: FreeingQueue::default(),
            freeing_limits: options.freeing,
            this: Weak::clone(this),
            rename_lock: Mutex::default(),
            disk,
        }))
    }

    pub(crate) fn disk(&self) -> &dyn LogicalDisk {
        &*self.disk
    }

    pub(crate) const fn view(&self) -> View {
        self.view
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) const fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    pub(crate) const fn references(&self) -> &References {
        &self.references
    }

    pub(crate) const fn orphans(&self) -> &OrphanSet {
        &self.orphans
    }

    pub(crate) const fn freeing(&self) -> &FreeingQueue {
        &self.freeing
    }

    pub(crate) const fn freeing_limits(&self) -> FreeingLimits {
        self.freeing_limits
    }

    /// What the disk does for this view in the background.
    pub(crate) fn chore(&self) -> Weak<dyn Chore> {
        let this: Weak<Self> = Weak::clone(&self.this);
        this
    }

    /// Locks out other renames between directories: see the lock order.
    pub(crate) fn lock_renames(&self) -> MutexGuard<'_, ()> {
        self.rename_lock.lock()
    }

    /// Whether the mount was read-only from the beginning.
    pub(crate) const fn is_mounted_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether all changes are refused, by the mount or by the disk.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.disk.read_only_reason().is_some()
    }

    /// Refuses changes on a read-only mount.
    pub(crate) const fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Changes when reads update access times. A read-only mount never updates them.
    pub(crate) fn set_atime_policy(&self, policy: AtimePolicy) {
        if !self.read_only {
            self.access_times.set(policy);
        }
    }

    pub(crate) fn memory_use(&self) -> MemoryUse {
        let (inode_count, inode_bytes) = self.nodes.size();
        let (looked_up_count, looked_up_bytes) = self.references.size();
        MemoryUse { inode_count, inode_bytes, looked_up_count, looked_up_bytes }
    }

    /// How many i-nodes are in memory.
    #[cfg(test)]
    pub(crate) fn cached_inode_count(&self) -> usize {
        self.nodes.len()
    }

    /// The current time, for timestamps of files.
    pub(crate) fn now(&self) -> FileTime {
        self.clock.now().into()
    }

    /// `bytes` as the name of a directory entry.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> Name<'a> {
        self.hasher.name(bytes)
    }

    /// The node of `ino`. Whether there is such a file turns out when the node is locked.
    pub(crate) fn node(&self, ino: Ino) -> Arc<Node> {
        let (node, dirty) = self.nodes.get(ino);
        if let Some(mut victim) = dirty.as_deref().and_then(Node::try_write) {
            // The caller's operation must not fail because of an access time. It is written later.
            if let Err(error) = self.write_back_atime(&mut victim) {
                log::debug!("an access time was not written: {error}");
            }
        }
        node
    }

    /// Stores the i-node of a file that was just created in memory.
    pub(crate) fn add_new(&self, ino: Ino, inode: Inode) {
        self.node(ino).fill(inode);
    }

    /// Locks a file for reading.
    pub(crate) fn read<'n>(&self, node: &'n Node) -> Result<ReadGuard<'n>> {
        node.read(self.disk(), self.view)
    }

    /// Locks a file for reading, or the last state of one that was removed. The flag says whether
    /// it was.
    pub(crate) fn read_last_state<'n>(&self, node: &'n Node) -> Result<(ReadGuard<'n>, bool)> {
        node.read_last_state(self.disk(), self.view)
    }

    /// Locks a file for changing.
    pub(crate) fn write<'n>(&self, node: &'n Node) -> Result<WriteGuard<'n>> {
        node.write(self.disk(), self.view)
    }

    /// Locks a directory for reading. [`FsError::NotFound`] if it was removed, as a removed
    /// directory has no entries.
    pub(crate) fn read_directory<'n>(&self, node: &'n Node) -> Result<ReadGuard<'n>> {
        let (guard, is_removed) = self.read_last_state(node)?;
        guard.check_directory()?;
        if is_removed { Err(FsError::NotFound) } else { Ok(guard) }
    }

    /// Locks a directory for changing.
    pub(crate) fn write_directory<'n>(&self, node: &'n Node) -> Result<WriteGuard<'n>> {
        match self.write(node) {
            Ok(guard) => guard.inode().check_directory().map(|()| guard),
            Err(FsError::Stale) => Err(self.read_directory(node).err().unwrap_or(FsError::Stale)),
            Err(error) => Err(error),
        }
    }

    /// Locks a file for reading that an entry of the locked directory `parent` names. So the file
    /// must exist.
    pub(crate) fn read_child<'n>(&self, node: &'n Node, parent: Ino) -> Result<ReadGuard<'n>> {
        check_no_loop(node.ino(), parent)?;
        self.read(node).map_err(|error| dangling(node.ino(), error))
    }

    /// As [`Self::read_child`], for changing.
    pub(crate) fn write_child<'n>(&self, node: &'n Node, parent: Ino) -> Result<WriteGuard<'n>> {
        check_no_loop(node.ino(), parent)?;
        self.write(node).map_err(|error| dangling(node.ino(), error))
    }

    /// The attributes of a locked i-node that callers see.
    pub(crate) fn attr_of(&self, node: &Node, inode: &Inode) -> Attr {
        let mut attr = inode.attr(node.ino());
        if let Some(atime) = node.pending_atime() {
            attr.atime = atime;
        }
        attr
    }

    /// A new atomic recovery unit that changes this view.
    pub(crate) fn aru<'a>(&self) -> Aru<'a> {
        Aru::new(self.view)
    }

    /// An empty set of changed records.
    pub(crate) fn edits(&self) -> RecordEdits<'_> {
        RecordEdits::new(self.disk(), self.view)
    }

    /// Commits `aru` together with `inode`, the new state of the locked file.
    pub(crate) fn commit_inode(
        &self,
        aru: &mut Aru<'_>,
        guard: &mut WriteGuard<'_>,
        inode: Inode,
    ) -> Result<()> {
        self.commit_edits(aru, self.edits(), guard, inode)
    }

    /// As [`Self::commit_inode`], together with `edits`. The i-node comes first in the unit: it
    /// shows that the list exists, so the disk need not look that up for the other changes. The
    /// unit, of half a kilobyte, is not moved.
    #[inline]
    pub(crate) fn commit_edits(
        &self,
        aru: &mut Aru<'_>,
        edits: RecordEdits<'_>,
        guard: &mut WriteGuard<'_>,
        inode: Inode,
    ) -> Result<()> {
        aru.put_record(guard.ino().lid(), HEAD_INDEX, inode.encode());
        edits.apply(aru);
        self.disk.try_commit(aru)?;
        guard.set(inode);
        Ok(())
    }

    /// Records that a file was read. The caller has it locked for reading.
    pub(crate) fn touch_atime(&self, node: &Node, inode: &Inode) {
        if !self.access_times.are_kept(inode) {
            return;
        }
        let now = self.clock.now();
        let atime = node.pending_atime().unwrap_or(inode.atime);
        if self.access_times.is_due(atime, inode, now) {
            node.set_pending_atime(now);
        }
    }

    /// Writes the access time of a file that was read since its i-node was written. On a full disk
    /// the time stays in memory: a read that came before must not make fsync fail.
    pub(crate) fn write_back_atime(&self, guard: &mut WriteGuard<'_>) -> Result<()> {
        let inode = guard.edit();
        if inode.atime == guard.inode().atime {
            return Ok(());
        }
        match self.commit_inode(&mut self.aru(), guard, inode) {
            Err(error) if error.is_no_space() => Ok(()),
            other => other,
        }
    }

    /// Writes all access times that are only in memory.
    pub(crate) fn write_back_all_atimes(&self) -> Result<()> {
        for node in self.nodes.with_pending_atime() {
            match self.write(&node) {
                Ok(mut guard) => self.write_back_atime(&mut guard)?,
                Err(FsError::Stale) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Refuses an entry of `parent` that names a directory above it. To lock that would be a deadlock.
fn check_no_loop(ino: Ino, parent: Ino) -> Result<()> {
    if ino == parent || ino == Ino::ROOT {
        return Err(FsError::Corrupted(format!("directory {parent} has a loop")));
    }
    Ok(())
}

/// While its directory is locked, an entry that names no file is damage, not a race.
fn dangling(ino: Ino, error: FsError) -> FsError {
    match error {
        FsError::Stale => FsError::Corrupted(format!("an entry names i-node {ino}: not there")),
        other => other,
    }
}
