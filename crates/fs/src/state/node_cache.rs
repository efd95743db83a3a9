//! The i-nodes in memory: those in use, and a bounded number of others.

use std::collections::VecDeque;

use dendro_base::sync::{Arc, Mutex};
use rustc_hash::FxHashMap;

use super::node::Node;
use super::shards::{SHARD_COUNT, shard_of};
use crate::types::Ino;

/// The memory that an i-node's place in the hash table takes.
const TABLE_PLACE_BYTES: usize = (size_of::<(u64, Arc<Node>)>() + 1) * 8 / 7;

#[derive(Debug, Default)]
struct CacheShard {
    nodes: FxHashMap<u64, Arc<Node>>,
    /// All numbers in `nodes`, once each, in the order in which eviction considers them (the CLOCK
    /// algorithm).
    clock: VecDeque<u64>,
}

/// The nodes of all i-nodes in memory.
#[derive(Debug)]
pub(super) struct NodeCache {
    shards: Vec<Mutex<CacheShard>>,
    /// The number of nodes in a shard above which unused ones are evicted.
    shard_cap: usize,
}

impl NodeCache {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            shard_cap: (cap / SHARD_COUNT).max(4),
        }
    }

    /// The node of `ino`, and perhaps another node, whose access time must be written before it can
    /// be evicted.
    pub(super) fn get(&self, ino: Ino) -> (Arc<Node>, Option<Arc<Node>>) {
        let mut shard = self.shards[shard_of(ino)].lock();
        if let Some(node) = shard.nodes.get(&ino.0) {
            node.set_used();
            return (Arc::clone(node), None);
        }
        let node = Arc::new(Node::new(ino));
        shard.nodes.insert(ino.0, Arc::clone(&node));
        shard.clock.push_back(ino.0);
        (node, self.evict(&mut shard))
    }

    /// Evicts unused nodes until the shard is within its limit. If the next few nodes are all in
    /// use, the shard stays larger for now.
    fn evict(&self, shard: &mut CacheShard) -> Option<Arc<Node>> {
        let mut tries = 8;
        while shard.nodes.len() > self.shard_cap && tries > 0 {
            tries -= 1;
            let ino = shard.clock.pop_front()?;
            let node = shard.nodes.get(&ino)?;
            // No thread can get a reference while the shard is locked.
            let in_use = Arc::strong_count(node) > 1 || node.take_used();
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

    /// All nodes with an access time that is not on the disk.
    pub(super) fn with_pending_atime(&self) -> Vec<Arc<Node>> {
        let mut dirty = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            dirty.extend(shard.nodes.values().filter(|n| n.pending_atime().is_some()).cloned());
        }
        // In the order of numbers, so that simulations are deterministic.
        dirty.sort_by_key(|node| node.ino());
        dirty
    }

    /// How many i-nodes are in memory, and approximately how many bytes they take.
    pub(super) fn size(&self) -> (u64, u64) {
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
    pub(super) fn len(&self) -> usize {
        self.size().0 as usize
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Timestamp;

    use super::*;
    use crate::layout::inode::Inode;
    use crate::types::{FileKind, FileTime};

    #[test]
    fn the_cache_keeps_nodes_in_use_and_evicts_others() {
        let cache = NodeCache::new(4 * SHARD_COUNT);
        let (kept, _) = cache.get(Ino(5));
        kept.fill(Inode::new(FileKind::Regular, 0, FileTime::default()));
        for ino in 100..100_000 {
            let _ = cache.get(Ino(ino));
        }
        assert!(cache.len() < 8 * SHARD_COUNT, "{}", cache.len());
        assert!(Arc::ptr_eq(&kept, &cache.get(Ino(5)).0));
    }

    #[test]
    fn a_node_with_an_unwritten_access_time_is_returned_and_not_evicted() {
        let cache = NodeCache::new(0);
        let inos: Vec<_> = (10..).map(Ino).filter(|&ino| shard_of(ino) == 3).take(40).collect();
        let dirty = cache.get(inos[0]).0;
        dirty.set_pending_atime(Timestamp(1));
        drop(dirty);
        let returned: Vec<_> =
            inos[1..].iter().filter_map(|&ino| cache.get(ino).1).map(|node| node.ino()).collect();
        assert!(!returned.is_empty() && returned.iter().all(|&ino| ino == inos[0]));
        assert!(cache.get(inos[0]).0.pending_atime().is_some());
    }
}
