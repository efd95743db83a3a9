//! I-nodes in memory: their locks, their cache, and who holds them.
//!
//! # Lock order
//! 1. The rename lock ([`crate::FileSystem`] takes it for renames between directories): while it
//!    is held, no directory changes its parent.
//! 2. I-nodes: a directory before what is in it; directories that are not above one another, and
//!    then other files, by number. Only rename and copies lock more than a directory and a child.
//! 3. The shards of [`NodeCache`] and [`RefTable`], and the set of orphans: leaves, held for a few
//!    instructions.
//!
//! Whoever must write an i-node without knowing what the caller holds (write-back of access times
//! when the cache is full) only tries the lock.

mod refs;

use std::collections::VecDeque;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use dendro_base::sync::{
    Arc, MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use dendro_disk::{LogicalDisk, View};
use rustc_hash::FxHashMap;

use crate::error::{FsError, Result};
use crate::format::{FIRST_FILE_LIST, HEAD_INDEX};
use crate::inode::Inode;
use crate::types::{FileTime, Ino};

pub(crate) use self::refs::RefTable;

/// How many independent parts the tables have.
const SHARD_COUNT: usize = 64;

/// What an i-node's place in the table takes, and what the allocator and the counts of those who use
/// it do.
const TABLE_PLACE_BYTES: usize = (size_of::<(u64, Arc<Node>)>() + 1) * 8 / 7;
const ALLOCATION_BYTES: usize = 32;

/// No access time is waiting.
const NO_ATIME: i64 = i64::MIN;

/// What is known of an i-node.
#[derive(Debug)]
enum Slot {
    /// Nothing yet: the disk knows.
    Unknown,
    /// It is as the disk has it, but for the access time.
    Live(Inode),
    /// It was removed; this is how it was.
    Gone(Inode),
}

/// An i-node's place in memory: its lock.
#[derive(Debug)]
pub(crate) struct Node {
    ino: Ino,
    slot: RwLock<Slot>,
    /// An access time that is not on the disk yet, in nanoseconds, or [`NO_ATIME`]. Set under the
    /// shared lock, taken under the exclusive one.
    pending_atime: AtomicI64,
    /// It was used since the cache last looked.
    used: AtomicBool,
}

/// A shared lock on a live i-node.
pub(crate) type ReadGuard<'a> = MappedRwLockReadGuard<'a, Inode>;

impl Node {
    fn new(ino: Ino) -> Self {
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

    /// The i-node under its shared lock, removed or not.
    fn read_slot(&self, disk: &dyn LogicalDisk, view: View) -> Result<RwLockReadGuard<'_, Slot>> {
        loop {
            let guard = self.slot.read();
            if !matches!(*guard, Slot::Unknown) {
                return Ok(guard);
            }
            drop(guard);
            self.load(disk, view, &mut self.slot.write())?;
        }
    }

    /// Locks the i-node for reading. [`FsError::Stale`] when it was removed.
    pub(crate) fn read(&self, disk: &dyn LogicalDisk, view: View) -> Result<ReadGuard<'_>> {
        let guard = self.read_slot(disk, view)?;
        RwLockReadGuard::try_map(guard, |slot| match slot {
            Slot::Live(inode) => Some(inode),
            Slot::Unknown | Slot::Gone(_) => None,
        })
        .map_err(|_| FsError::Stale)
    }

    /// Locks the i-node for reading, or what is remembered of it if it was removed; and says
    /// whether it was.
    pub(crate) fn read_remembered(
        &self,
        disk: &dyn LogicalDisk,
        view: View,
    ) -> Result<(ReadGuard<'_>, bool)> {
        let guard = self.read_slot(disk, view)?;
        let is_gone = matches!(*guard, Slot::Gone(_));
        RwLockReadGuard::try_map(guard, |slot| match slot {
            Slot::Live(inode) | Slot::Gone(inode) => Some(inode),
            Slot::Unknown => None,
        })
        .map(|inode| (inode, is_gone))
        .map_err(|_| FsError::Stale)
    }

    /// Locks the i-node for changing. [`FsError::Stale`] when it was removed.
    pub(crate) fn write(&self, disk: &dyn LogicalDisk, view: View) -> Result<WriteGuard<'_>> {
        let mut guard = self.slot.write();
        self.load(disk, view, &mut guard)?;
        match *guard {
            Slot::Live(_) => Ok(WriteGuard { node: self, slot: guard }),
            Slot::Gone(_) | Slot::Unknown => Err(FsError::Stale),
        }
    }

    /// As [`Self::write`], when the lock is free and the i-node in memory.
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_>> {
        let guard = self.slot.try_write()?;
        match *guard {
            Slot::Live(_) => Some(WriteGuard { node: self, slot: guard }),
            Slot::Gone(_) | Slot::Unknown => None,
        }
    }

    /// Enters an i-node that was just made, unless somebody has read it, and maybe changed it,
    /// since.
    pub(crate) fn fill(&self, inode: Inode) {
        let mut slot = self.slot.write();
        if let Slot::Unknown = *slot {
            *slot = Slot::Live(inode);
        }
    }

    /// Changes what is remembered of a removed i-node; `None` when it was not removed.
    pub(crate) fn change_remembered<R>(
        &self,
        change: impl FnOnce(&mut Inode) -> Result<R>,
    ) -> Option<Result<R>> {
        match &mut *self.slot.write() {
            Slot::Gone(inode) => Some(change(inode)),
            Slot::Live(_) | Slot::Unknown => None,
        }
    }

    /// Forgets how a removed file was.
    pub(crate) fn forget_gone(&self) {
        let mut slot = self.slot.write();
        if let Slot::Gone(_) = *slot {
            *slot = Slot::Unknown;
        }
    }

    /// About what it takes in memory. Of what is locked now, the data with it are not known.
    fn memory_bytes(&self) -> usize {
        let slot = self.slot.try_read();
        let inline_len = slot.map_or(0, |slot| match &*slot {
            Slot::Live(inode) | Slot::Gone(inode) => inode.inline.capacity(),
            Slot::Unknown => 0,
        });
        size_of::<Self>() + ALLOCATION_BYTES + inline_len
    }

    /// The access time that is not on the disk yet.
    pub(crate) fn pending_atime(&self) -> Option<FileTime> {
        match self.pending_atime.load(Ordering::Relaxed) {
            NO_ATIME => None,
            nanos => Some(Timestamp(nanos).into()),
        }
    }

    /// Notes an access; the caller holds the shared lock.
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

    /// The i-node as the disk has it.
    pub(crate) fn inode(&self) -> &Inode {
        match &*self.slot {
            Slot::Live(inode) | Slot::Gone(inode) => inode,
            Slot::Unknown => unreachable!("a guard is made for known i-nodes alone"),
        }
    }

    /// A copy to change, with the last access in it. Nobody sees it before [`Self::set`].
    pub(crate) fn edit(&self) -> Inode {
        let mut inode = self.inode().clone();
        if let Some(atime) = self.node.pending_atime() {
            inode.atime = atime;
        }
        inode
    }

    /// Enters a changed copy, which is committed.
    pub(crate) fn set(&mut self, inode: Inode) {
        self.node.pending_atime.store(NO_ATIME, Ordering::Relaxed);
        *self.slot = Slot::Live(inode);
    }

    /// Enters that the file was removed; `inode` is the last that is known of it.
    pub(crate) fn set_gone(&mut self, inode: Inode) {
        self.node.pending_atime.store(NO_ATIME, Ordering::Relaxed);
        *self.slot = Slot::Gone(inode);
    }
}

#[derive(Debug, Default)]
struct CacheShard {
    nodes: FxHashMap<u64, Arc<Node>>,
    /// All numbers in `nodes`, once each: a clock that eviction turns.
    clock: VecDeque<u64>,
}

/// The i-nodes in memory: those in use, and a bounded number of others.
#[derive(Debug)]
pub(crate) struct NodeCache {
    shards: Vec<Mutex<CacheShard>>,
    shard_cap: usize,
}

fn shard_of(ino: Ino) -> usize {
    // Fibonacci hashing: consecutive numbers spread over all shards.
    (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARD_COUNT
}

impl NodeCache {
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            shard_cap: (cap / SHARD_COUNT).max(4),
        }
    }

    /// The node of `ino`, and one whose access time must be written before it can be evicted.
    pub(crate) fn get(&self, ino: Ino) -> (Arc<Node>, Option<Arc<Node>>) {
        let mut shard = self.shards[shard_of(ino)].lock();
        if let Some(node) = shard.nodes.get(&ino.0) {
            node.used.store(true, Ordering::Relaxed);
            return (Arc::clone(node), None);
        }
        let node = Arc::new(Node::new(ino));
        shard.nodes.insert(ino.0, Arc::clone(&node));
        shard.clock.push_back(ino.0);
        (node, self.evict(&mut shard))
    }

    /// Makes room, unless the next few are all in use; then the shard grows until they are not.
    fn evict(&self, shard: &mut CacheShard) -> Option<Arc<Node>> {
        let mut tries = 8;
        while shard.nodes.len() > self.shard_cap && tries > 0 {
            tries -= 1;
            let ino = shard.clock.pop_front()?;
            let node = shard.nodes.get(&ino)?;
            // Nobody can take a reference while the shard is locked.
            let in_use = Arc::strong_count(node) > 1 || node.used.swap(false, Ordering::Relaxed);
            if !in_use && node.pending_atime().is_none() {
                shard.nodes.remove(&ino);
                continue;
            }
            let dirty = (!in_use).then(|| Arc::clone(node));
            shard.clock.push_back(ino);
            if dirty.is_some() {
                return dirty;
            }
        }
        None
    }

    /// All nodes whose access time is not on the disk.
    pub(crate) fn with_pending_atime(&self) -> Vec<Arc<Node>> {
        let mut dirty = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            dirty.extend(shard.nodes.values().filter(|n| n.pending_atime().is_some()).cloned());
        }
        // In the order of numbers, so that a simulation repeats itself.
        dirty.sort_by_key(|node| node.ino);
        dirty
    }

    /// How many i-nodes are in memory, and about what they take.
    pub(crate) fn size(&self) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            count += shard.nodes.len();
            bytes += shard.nodes.capacity() * TABLE_PLACE_BYTES
                + shard.clock.capacity() * size_of::<u64>()
                + shard.nodes.values().map(|node| node.memory_bytes()).sum::<usize>();
        }
        (count as u64, bytes as u64)
    }

    /// How many i-nodes are in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.size().0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileKind;

    #[test]
    fn the_cache_keeps_what_is_used_and_lets_go_of_the_rest() {
        let cache = NodeCache::new(4 * SHARD_COUNT);
        let (held, _) = cache.get(Ino(5));
        held.fill(Inode::new(FileKind::Regular, 0, FileTime::default()));
        for ino in 100..100_000 {
            let _ = cache.get(Ino(ino));
        }
        assert!(cache.len() < 8 * SHARD_COUNT, "{}", cache.len());
        assert!(Arc::ptr_eq(&held, &cache.get(Ino(5)).0));
    }

    #[test]
    fn a_node_with_an_access_time_to_write_is_not_evicted_but_named() {
        let cache = NodeCache::new(0);
        let inos: Vec<_> = (10..).map(Ino).filter(|&ino| shard_of(ino) == 3).take(40).collect();
        let dirty = cache.get(inos[0]).0;
        dirty.set_pending_atime(Timestamp(1));
        drop(dirty);
        let named: Vec<_> =
            inos[1..].iter().filter_map(|&ino| cache.get(ino).1).map(|node| node.ino()).collect();
        assert!(!named.is_empty() && named.iter().all(|&ino| ino == inos[0]));
        assert!(cache.get(inos[0]).0.pending_atime().is_some());
    }
}
