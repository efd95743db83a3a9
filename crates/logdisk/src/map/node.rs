//! Nodes of the map in memory.

use std::iter::Sum;
use std::ops::{AddAssign, Range, SubAssign};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use dendro_base::units::GRAIN_SIZE;
use dendro_format::chunk::Skip;
use dendro_format::node::{
    self, Entries, MAX_CHILD_COUNT, MAX_NODE_LEN_BYTES, NODE_HEADER_LEN_BYTES, NodeInfo,
};
use dendro_format::record::MAX_FIXED_LEN_BYTES as NODE_RECORD_LEN_BYTES;
use dendro_format::{ChildPtr, Chunk, Key, PageRef, Value};

/// A leaf is split when its entries take about this many bytes on the device.
pub(crate) const LEAF_LEN_BYTES: usize = 8192;
/// A leaf that takes less is merged with a neighbour when both fit in one.
pub(super) const LEAF_MIN_LEN_BYTES: usize = LEAF_LEN_BYTES / 4;
/// A node above the leaves is split when it has more children.
pub(super) const FANOUT: usize = 256;
/// A node above the leaves is merged with a neighbour when it has fewer children.
pub(super) const FANOUT_MIN: usize = FANOUT / 4;

// A node that was read may be as full as the format allows, and takes one more child before a
// split.
const _: () = assert!(FANOUT < MAX_CHILD_COUNT && MAX_CHILD_COUNT / 2 < FANOUT + 1);

/// The mean length of an entry's key on the device.
const KEY_LEN_BYTES: usize = 14;
/// The mean length of a child's key and place on the device.
const CHILD_LEN_BYTES: u64 = 40;
/// The mean memory of an entry's place in a leaf, with its share of the leaf's empty places.
const ENTRY_PLACE_BYTES: usize = size_of::<(Key, Value)>() * 9 / 8;
/// The overhead of the allocator for each allocation; its sizes are multiples of the unit below.
const ALLOCATION_BYTES: usize = 8;
const ALLOCATION_UNIT_BYTES: usize = 16;
/// The reference counts of shared memory lie before it.
const SHARED_BYTES: usize = 16;
/// The memory that the cache's table takes for each node.
const CACHED_BYTES: usize = 64;

// A split leaves no half longer than the format allows, whatever the error of the estimate is.
const _: () = assert!(2 * LEAF_LEN_BYTES + 4 * 1024 < MAX_NODE_LEN_BYTES);

/// A node that is in memory, with what a checkpoint needs to know about it.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(super) node: Node,
    /// The place where the checkpoint under way has written it.
    written: OnceLock<ChildPtr>,
    /// Set when the live tree has continued with a copy while a checkpoint retains this node.
    superseded: AtomicBool,
}

/// A node in memory, which the live tree, checkpoints and the cache share. Unlike the standard
/// library's, this pointer has no weak references, so that it takes no locked instruction to find
/// out whether a reference is the only one. Each change does that for each node on its path.
pub(crate) type SharedNode = triomphe::Arc<Resident>;

impl Resident {
    pub(crate) fn new(node: Node) -> SharedNode {
        SharedNode::new(Self { node, written: OnceLock::new(), superseded: AtomicBool::new(false) })
    }

    pub(crate) const fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn written(&self) -> Option<ChildPtr> {
        self.written.get().copied()
    }

    pub(crate) fn set_written(&self, place: ChildPtr) {
        self.written.set(place).expect("a checkpoint writes each node once");
    }

    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    pub(super) fn supersede(&self) {
        self.superseded.store(true, Ordering::Release);
    }
}

/// A node's contents.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

/// Keys and values, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    entries: Vec<(Key, Value)>,
    /// The approximate size of the entries.
    weight: Weight,
}

/// Children by the first key that may lie under them, in order.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(super) level: u8,
    pub(super) entries: Vec<(Key, Child)>,
}

/// A reference to a node in its parent.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    /// The node is as it lies on the device. If it is in memory, it is in the cache.
    Clean(ChildPtr),
    /// The node has changed since it was written, so it is in memory.
    Dirty(SharedNode),
}

impl Leaf {
    pub(crate) fn position(&self, key: &Key) -> Result<usize, usize> {
        // Entries are put behind all others more often than anywhere else.
        let at = match self.entries.last() {
            Some((last, _)) if last.is_before(key) => self.entries.len(),
            _ => self.entries.partition_point(|(entry, _)| entry.is_before(key)),
        };
        match self.entries.get(at) {
            Some((entry, _)) if entry == key => Ok(at),
            _ => Err(at),
        }
    }

    /// A leaf with these entries, which are in order.
    pub(crate) fn with(entries: Vec<(Key, Value)>) -> Self {
        let weight = entries.iter().map(|(_, value)| Weight::of_entry(value)).sum();
        Self { entries, weight }
    }

    pub(crate) fn entries(&self) -> &[(Key, Value)] {
        &self.entries
    }

    /// The approximate length of the entries on the device.
    pub(crate) const fn len_bytes(&self) -> usize {
        self.weight.len_bytes as usize
    }

    /// Puts an entry at `at`, its place in the order.
    pub(crate) fn insert(&mut self, at: usize, key: &Key, value: Value) {
        // Doubling the capacity would leave a third of the cache empty; a quarter more leaves an
        // eighth empty on average.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact((self.entries.len() / 4).max(8));
        }
        self.weight += Weight::of_entry(&value);
        self.entries.insert(at, (*key, value));
    }

    /// Changes the value at `at`; returns what it took before and what it takes now.
    pub(super) fn change<T>(
        &mut self,
        at: usize,
        change: impl FnOnce(&mut Value) -> T,
    ) -> (T, [Weight; 2]) {
        let value = &mut self.entries[at].1;
        let before = Weight::of_entry(value);
        let result = change(value);
        let after = Weight::of_entry(value);
        self.weight -= before;
        self.weight += after;
        (result, [before, after])
    }

    pub(crate) fn remove(&mut self, at: usize) -> Value {
        let (_, value) = self.entries.remove(at);
        self.weight -= Weight::of_entry(&value);
        self.release_memory();
        value
    }

    /// Takes out the entries at `range`; returns them and what they took.
    pub(super) fn take(&mut self, range: Range<usize>) -> (Vec<(Key, Value)>, Weight) {
        let taken: Vec<_> = self.entries.drain(range).collect();
        let weight = taken.iter().map(|(_, value)| Weight::of_entry(value)).sum();
        self.weight -= weight;
        self.release_memory();
        (taken, weight)
    }

    /// Releases memory if much of it is empty.
    fn release_memory(&mut self) {
        let len = self.entries.len();
        if self.entries.capacity() > 2 * len + 8 {
            self.entries.shrink_to(len + len / 8);
        }
    }

    /// Whether the leaf must be split.
    pub(super) const fn is_too_long(&self) -> bool {
        self.len_bytes() > LEAF_LEN_BYTES && self.entries.len() >= 2
    }

    /// Takes off the upper part. An insertion at the end is taken for the first of many: the new
    /// leaf starts with that entry alone, so leaves that are filled in ascending order stay full.
    pub(super) fn split(&mut self, inserted_at: usize) -> Self {
        let at = if inserted_at + 1 == self.entries.len() {
            inserted_at
        } else {
            let half = self.len_bytes() / 2;
            let mut sum = 0;
            let at = self.entries.iter().position(|(_, value)| {
                sum += entry_len_bytes(value);
                sum > half
            });
            at.unwrap_or(0).clamp(1, self.entries.len() - 1)
        };
        let upper = Self::with(self.entries.split_off(at));
        self.weight -= upper.weight;
        self.entries.shrink_to(at + at / 8);
        upper
    }

    pub(crate) fn append(&mut self, right: &Self) {
        self.entries.reserve_exact(right.entries.len());
        self.entries.extend_from_slice(&right.entries);
        self.weight += right.weight;
    }
}

impl Inner {
    /// The child that `key` belongs under.
    pub(crate) fn position(&self, key: &Key) -> usize {
        match self.entries.split_last() {
            Some(((last, _), rest)) if key.is_before(last) => {
                rest.partition_point(|(first, _)| !key.is_before(first)).saturating_sub(1)
            }
            _ => self.entries.len().saturating_sub(1),
        }
    }

    /// The children by their places, which they must have.
    fn places(&self) -> impl ExactSizeIterator<Item = (Key, ChildPtr)> {
        self.entries.iter().map(|(key, child)| (*key, child.place()))
    }

    /// A copy that refers to all children by their places, so that each can be evicted separately.
    pub(crate) fn with_places(&self) -> Self {
        let clean = |(key, place)| (key, Child::Clean(place));
        Self { level: self.level, entries: self.places().map(clean).collect() }
    }

    pub(super) fn split(&mut self) -> Self {
        let at = self.entries.len() / 2;
        Self { level: self.level, entries: self.entries.split_off(at) }
    }
}

impl Node {
    pub(crate) const fn level(&self) -> u8 {
        match self {
            Self::Leaf(_) => 0,
            Self::Inner(inner) => inner.level,
        }
    }

    pub(crate) fn first_key(&self) -> Option<Key> {
        match self {
            Self::Leaf(leaf) => leaf.entries.first().map(|entry| entry.0),
            Self::Inner(inner) => inner.entries.first().map(|entry| entry.0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.entries.is_empty(),
            Self::Inner(inner) => inner.entries.is_empty(),
        }
    }

    /// The approximate memory of the node.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.weight().memory_bytes
    }

    /// The approximate length of the node on the device.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.weight().len_bytes
    }

    /// The approximate size of the node.
    pub(super) fn weight(&self) -> Weight {
        let mut weight = Weight::OF_NODE;
        weight += match self {
            Self::Leaf(leaf) => leaf.weight,
            Self::Inner(inner) => {
                let count = inner.entries.len() as u64;
                Weight {
                    memory_bytes: count * Weight::OF_CHILD.memory_bytes,
                    len_bytes: count * Weight::OF_CHILD.len_bytes,
                }
            }
        };
        weight
    }

    pub(crate) fn from_entries(level: u8, entries: Entries) -> Self {
        match entries {
            Entries::Leaf(entries) => Self::Leaf(Leaf::with(entries)),
            Entries::Inner(entries) => Self::Inner(Inner {
                level,
                entries: entries.into_iter().map(|(key, at)| (key, Child::Clean(at))).collect(),
            }),
        }
    }

    /// Makes `out` the node as it is stored on the device; all its children must have their places.
    /// Returns the checksum.
    pub(crate) fn encode(&self, info: &NodeInfo, out: &mut Vec<u8>) -> u32 {
        match self {
            Self::Leaf(leaf) => node::encode_leaf(info, &leaf.entries, out),
            Self::Inner(inner) => node::encode_inner(info, inner.places(), out),
        }
    }

    /// No entry in or below the node has a later epoch in its key. All its children must have their
    /// places.
    pub(crate) fn newest_epoch(&self) -> u64 {
        let newest = match self {
            Self::Leaf(leaf) => leaf.entries.iter().map(|(key, _)| key.epoch).max(),
            Self::Inner(inner) => inner.places().map(|(_, child)| child.newest_epoch).max(),
        };
        newest.unwrap_or(0)
    }
}

impl Child {
    /// Whether only the live tree refers to the node, so that it can be changed in place.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Dirty(resident) if SharedNode::strong_count(resident) == 1)
    }

    /// The pointer by which the parent names the child on the device.
    ///
    /// # Panics
    /// If the child has not been written. A checkpoint writes children before their parents.
    fn place(&self) -> ChildPtr {
        match self {
            Self::Clean(place) => *place,
            Self::Dirty(resident) => resident.written().expect("children are written first"),
        }
    }
}

/// The approximate length of an entry on the device.
fn entry_len_bytes(value: &Value) -> usize {
    KEY_LEN_BYTES
        + match value {
            Value::List(hints) => hints.len_bytes_bound(),
            Value::Record(bytes) => 2 + bytes.len(),
            Value::Chunk(chunk) => 8 + 8 * chunk.len(),
            Value::Tombstone => 0,
        }
}

/// The approximate size of a node or of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// The size in memory; it is smaller on the device.
    pub(super) memory_bytes: u64,
    /// The length on the device.
    pub(super) len_bytes: u64,
}

impl Weight {
    /// The size of a node without its entries.
    pub(super) const OF_NODE: Self = Self {
        memory_bytes: (allocated_bytes(SHARED_BYTES + size_of::<Resident>())
            + ALLOCATION_BYTES
            + CACHED_BYTES) as u64,
        len_bytes: (NODE_HEADER_LEN_BYTES + NODE_RECORD_LEN_BYTES + GRAIN_SIZE / 2) as u64,
    };

    /// The size of a child's entry in its parent.
    pub(super) const OF_CHILD: Self =
        Self { memory_bytes: size_of::<(Key, Child)>() as u64, len_bytes: CHILD_LEN_BYTES };

    pub(super) fn of_entry(value: &Value) -> Self {
        let memory_bytes = ENTRY_PLACE_BYTES
            + match value {
                Value::List(_) | Value::Tombstone => 0,
                Value::Record(bytes) => allocated_bytes(SHARED_BYTES + bytes.len()),
                Value::Chunk(chunk) => {
                    allocated_bytes(SHARED_BYTES + size_of::<Chunk>())
                        + chunk.skip().map_or(0, |_| allocated_bytes(size_of::<Skip>()))
                        + match chunk.len() {
                            0 => 0,
                            count => allocated_bytes(count * size_of::<PageRef>()),
                        }
                }
            };
        Self { memory_bytes: memory_bytes as u64, len_bytes: entry_len_bytes(value) as u64 }
    }
}

/// The memory that an allocation of `len_bytes` takes, including the allocator's overhead.
const fn allocated_bytes(len_bytes: usize) -> usize {
    (len_bytes + ALLOCATION_BYTES).next_multiple_of(ALLOCATION_UNIT_BYTES)
}

impl Sum for Weight {
    fn sum<I: Iterator<Item = Self>>(weights: I) -> Self {
        weights.fold(Self::default(), |mut sum, weight| {
            sum += weight;
            sum
        })
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.memory_bytes += other.memory_bytes;
        self.len_bytes += other.len_bytes;
    }
}

/// Differences of estimates do not become negative.
impl SubAssign for Weight {
    fn sub_assign(&mut self, other: Self) {
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
        self.len_bytes = self.len_bytes.saturating_sub(other.len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::Rng;
    use dendro_format::Space;

    fn key(rng: &mut Rng, [lists, indexes, epochs]: [u64; 3]) -> Key {
        let space = [Space::List, Space::Records, Space::Chunks][rng.below(3.min(lists)) as usize];
        let (list, index) = (rng.below(lists), rng.below(indexes));
        Key {
            list,
            space,
            index,
            branch: rng.below(epochs.min(3)) as u32,
            epoch: rng.below(epochs),
        }
    }

    /// The kinds cover one list and many, one version and many.
    #[test]
    fn positions_are_those_of_a_plain_search() {
        let mut rng = Rng::new(3);
        for kinds in [[1, 500, 1], [1, 3, 200], [300, 1, 1], [20, 20, 2], [3, 2, 90], [1, 1, 1]] {
            for len in 0..80 {
                let mut keys: Vec<_> = (0..len).map(|_| key(&mut rng, kinds)).collect();
                keys.sort_unstable();
                keys.dedup();
                let leaf = Leaf::with(keys.iter().map(|key| (*key, Value::Tombstone)).collect());
                let place = ChildPtr::of_unknown_age(dendro_format::NodePtr {
                    addr: dendro_format::Addr(0),
                    len_bytes: 0,
                    crc32c: 0,
                });
                let children = keys.iter().map(|key| (*key, Child::Clean(place)));
                let inner = Inner { level: 1, entries: children.collect() };
                let wider = kinds.map(|kind| kind + 2);
                for sought in keys.iter().copied().chain((0..40).map(|_| key(&mut rng, wider))) {
                    assert_eq!(leaf.position(&sought), keys.binary_search(&sought));
                    let under = keys.partition_point(|key| *key <= sought).saturating_sub(1);
                    assert_eq!(inner.position(&sought), under);
                }
            }
        }
    }
}
