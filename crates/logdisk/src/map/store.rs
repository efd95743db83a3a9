//! The store of clean nodes: it reads them from the device through a bounded cache.

use std::cell::{Cell, RefCell};

use dendro_base::Uuid;
use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_device::{Device, IoSliceMut, ReadOf};
use dendro_disk::Error;
use dendro_format::node::{self, Entries, MAX_NODE_LEN_BYTES};
use dendro_format::{Addr, Layout, NodePtr, Value};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use crate::damage::{DamageLog, Part};
use crate::fault::{Fault, Outcome};
use crate::log::current_layout::CurrentLayout;
use crate::log::mirrors::Mirrors;
use crate::log::segments::{Pin, Segments};
use crate::map::Nodes;
use crate::map::budget::{self, Others};
use crate::map::node::{Inner, Leaf, Node, Resident, SharedNode};

/// The maximum number of leaves that are loaded with one that a walk misses.
const MAX_AHEAD: usize = 31;

/// The maximum level: even a tree of nodes with two children would map more than a volume can hold.
const MAX_LEVEL: u8 = 32;

#[derive(Clone, Debug)]
struct ByMemory;

impl Weighter<NodePtr, SharedNode> for ByMemory {
    fn weight(&self, _: &NodePtr, resident: &SharedNode) -> u64 {
        resident.node.memory_bytes()
    }
}

/// The store of clean nodes.
pub(crate) struct NodeStore {
    device: Arc<dyn Device>,
    uuid: Uuid,
    layout: CurrentLayout,
    mirrors: Mirrors,
    cache_size_bytes: u64,
    /// The capacity that the cache has now.
    capacity_bytes: AtomicU64,
    cache: Cache<NodePtr, SharedNode, ByMemory, FxBuildHasher>,
    damage: DamageLog,
}

impl std::fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeStore({} bytes cached)", self.cache.weight())
    }
}

impl NodeStore {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        uuid: Uuid,
        layout: Layout,
        mirrors: Mirrors,
        cache_size_bytes: u64,
    ) -> Self {
        let capacity_bytes = budget::clean_bytes(cache_size_bytes, 0, 0);
        let items = (capacity_bytes / 16384).max(16) as usize;
        let lifecycle = DefaultLifecycle::default();
        let cache = Cache::with(items, capacity_bytes, ByMemory, FxBuildHasher, lifecycle);
        let damage = DamageLog::default();
        let capacity_bytes = AtomicU64::new(capacity_bytes);
        let layout = CurrentLayout::new(layout);
        Self { device, uuid, layout, mirrors, cache_size_bytes, capacity_bytes, cache, damage }
    }

    /// The layout of the volume whose nodes these are.
    pub(crate) const fn layout(&self) -> &CurrentLayout {
        &self.layout
    }

    /// The damage that was found.
    pub(crate) const fn damage(&self) -> &DamageLog {
        &self.damage
    }

    /// Changes the cache's capacity so that others have room ([`budget`]).
    pub(crate) fn leave_room(&self, others: Others) {
        let Others { table_bytes, resident_bytes } = others;
        let capacity_bytes =
            budget::clean_bytes(self.cache_size_bytes, table_bytes, resident_bytes);
        // Each change of its capacity makes the cache forget a part of its access statistics.
        let before_bytes = self.capacity_bytes.load(Ordering::Relaxed);
        if capacity_bytes.abs_diff(before_bytes) > self.cache_size_bytes / 64 {
            self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
            self.cache.set_capacity(capacity_bytes);
        }
    }

    /// The memory limit that the parts of the cache share.
    pub(crate) const fn cache_size_bytes(&self) -> u64 {
        self.cache_size_bytes
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cache.weight()
    }

    pub(crate) fn keep(&self, place: NodePtr, resident: SharedNode) {
        self.cache.insert(place, resident);
    }

    /// Reads the node at `place` and puts it into the cache.
    pub(crate) fn load(&self, place: &NodePtr) -> Result<SharedNode, Error> {
        let resident = self
            .read(place)
            .inspect_err(|error| self.damage.note(place.addr, Part::Node, error))?;
        self.cache.insert(*place, SharedNode::clone(&resident));
        Ok(resident)
    }

    /// Reads and checks the node at `place`. If it is damaged there, that is noted, and the node is
    /// read in the mirror.
    fn read(&self, place: &NodePtr) -> Result<SharedNode, Error> {
        self.read_at(place, place.addr).or_else(|error| {
            let mirror = self.mirrors.place_of(self.layout.get(), place.addr);
            let read = mirror.and_then(|mirror| self.read_at(place, mirror).ok());
            let resident = read.ok_or_else(|| error.clone())?;
            self.damage.note(place.addr, Part::MirroredNode, &error);
            Ok(resident)
        })
    }

    /// Reads and checks the node of which a copy lies at `addr`.
    fn read_at(&self, place: &NodePtr, addr: Addr) -> Result<SharedNode, Error> {
        if !self.layout.get().holds(place.addr, u64::from(place.len_bytes))
            || place.len_bytes as usize > MAX_NODE_LEN_BYTES
        {
            return Err(damaged(place, "its place is not on the device"));
        }
        let mut bytes = vec![0; place.len_bytes as usize];
        self.device
            .read_at(addr.bytes(), &mut bytes)
            .map_err(|error| Error::Io(format!("reading the map: {error}")))?;
        self.decode(place, &bytes).or_else(|error| {
            let is_right = |bytes: &[u8]| self.decode(place, bytes).is_ok();
            let is_mended = self.device.mend(addr.bytes(), &mut bytes, &is_right);
            if is_mended { self.decode(place, &bytes) } else { Err(error) }
        })
    }

    /// Decodes and checks `bytes`, which were read from `place`.
    pub(crate) fn decode(&self, place: &NodePtr, bytes: &[u8]) -> Result<SharedNode, Error> {
        let (info, entries) = node::decode(bytes, &self.uuid)
            .map_err(|malformed| damaged(place, malformed.problem))?;
        let stored = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if stored != place.crc32c {
            return Err(damaged(place, "it is another node than the one meant"));
        }
        if info.level > MAX_LEVEL || !self.refers_soundly(&entries) {
            return Err(damaged(place, "it refers to places that are not on the device"));
        }
        Ok(Resident::new(Node::from_entries(info.level, entries)))
    }

    /// Reads the nodes at `places` together and puts them into the cache. Returns those that could
    /// be read and are right; none if a read failed.
    fn load_together(&self, places: &[NodePtr]) -> Vec<(NodePtr, SharedNode)> {
        let layout = self.layout.get();
        let is_sound = |place: &&NodePtr| {
            let len_bytes = place.len_bytes as usize;
            len_bytes <= MAX_NODE_LEN_BYTES && layout.holds(place.addr, u64::from(place.len_bytes))
        };
        let places: Vec<_> = places.iter().filter(is_sound).copied().collect();
        let mut bytes: Vec<_> =
            places.iter().map(|place| vec![0; place.len_bytes as usize]).collect();
        let mut parts: Vec<_> = bytes.iter_mut().map(|bytes| [IoSliceMut::new(bytes)]).collect();
        let mut reads: Vec<_> = places
            .iter()
            .zip(&mut parts)
            .map(|(place, parts)| ReadOf { offset: place.addr.bytes(), parts })
            .collect();
        if self.device.read_each(&mut reads).is_err() {
            return Vec::new();
        }
        let decoded = places.iter().zip(&bytes).filter_map(|(place, bytes)| {
            let resident = self.decode(place, bytes).ok()?;
            self.cache.insert(*place, SharedNode::clone(&resident));
            Some((*place, resident))
        });
        decoded.collect()
    }

    fn refers_soundly(&self, entries: &Entries) -> bool {
        let layout = self.layout.get();
        let holds = |addr, len_bytes: u32| layout.holds(addr, u64::from(len_bytes));
        match entries {
            Entries::Inner(children) => {
                children.iter().all(|(_, child)| holds(child.place.addr, child.place.len_bytes))
            }
            Entries::Leaf(entries) => entries.iter().all(|(_, value)| match value {
                Value::Chunk(chunk) => chunk.iter().all(|(_, page)| {
                    page.len_bytes == 0 || holds(page.addr, page.footprint_bytes())
                }),
                _ => true,
            }),
        }
    }
}

fn damaged(place: &NodePtr, problem: &str) -> Error {
    Error::Corrupted(format!("the map's node at {}: {problem}", place.addr))
}

/// The nodes that one call needs. What it has loaded stays in memory until the call ends, so that
/// each new attempt after a [`Fault::Miss`] gets further, however small the cache is.
pub(crate) struct PinnedNodes<'a> {
    store: &'a NodeStore,
    pinned: RefCell<FxHashMap<NodePtr, SharedNode>>,
    /// The leaves that are loaded with the one that was missed last.
    following: RefCell<Vec<NodePtr>>,
    /// How many of them are loaded with the next one that is missed, and the maximum.
    ahead_count: Cell<usize>,
    max_ahead: usize,
    /// Whether nodes that come from the cache are retained too.
    keeps: bool,
    loads: bool,
}

impl<'a> PinnedNodes<'a> {
    /// Returns [`Fault::Miss`] for a node that is not in memory.
    pub(crate) fn cached(store: &'a NodeStore) -> Self {
        Self {
            store,
            pinned: RefCell::default(),
            following: RefCell::default(),
            ahead_count: Cell::new(0),
            max_ahead: MAX_AHEAD,
            keeps: false,
            loads: false,
        }
    }

    /// As [`Self::cached`], but a node that was found once is found again without I/O. So nodes
    /// that were visited before a change can be changed, and no error can come in between.
    pub(crate) fn keeping(store: &'a NodeStore) -> Self {
        Self { keeps: true, ..Self::cached(store) }
    }

    /// As [`Self::cached`], for a walk that counts what it has loaded: nothing is loaded ahead.
    pub(crate) fn one_by_one(store: &'a NodeStore) -> Self {
        Self { max_ahead: 0, ..Self::cached(store) }
    }

    /// Reads a node that is not in memory from the device, even if locks are held.
    pub(crate) fn loading(store: &'a NodeStore) -> Self {
        Self { loads: true, ..Self::cached(store) }
    }

    /// Releases what was loaded, unless everything is retained.
    pub(crate) fn pass_on(&mut self) {
        if !self.keeps {
            self.pinned.get_mut().clear();
        }
    }

    /// Takes the node at `place`, which cannot be read, for a node without entries.
    pub(crate) fn pass_over(&self, place: NodePtr, level: u8) {
        let empty = match level {
            0 => Node::Leaf(Leaf::default()),
            level => Node::Inner(Inner { level, entries: Vec::new() }),
        };
        self.pinned.borrow_mut().insert(place, Resident::new(empty));
    }

    /// Pins of what [`Self::load`] reads if `missed` was missed just now.
    pub(crate) fn pins(&self, missed: &NodePtr, segments: &Segments) -> SmallVec<[Pin; 1]> {
        let following = self.following.borrow();
        following.iter().chain([missed]).map(|place| segments.pin(place.addr)).collect()
    }

    /// Loads the node at `place`, which was missed, and leaves that are likely to be missed next.
    ///
    /// # Errors
    /// The error of reading the node itself.
    pub(crate) fn load(&self, place: &NodePtr) -> Result<(), Error> {
        let mut together = self.following.take();
        if !together.is_empty() {
            together.push(*place);
            self.pinned.borrow_mut().extend(self.store.load_together(&together));
            if self.pinned.borrow().contains_key(place) {
                return Ok(());
            }
        }
        let resident = self.store.load(place)?;
        self.pinned.borrow_mut().insert(*place, resident);
        Ok(())
    }
}

impl Nodes for PinnedNodes<'_> {
    fn node(&self, place: &NodePtr) -> Outcome<SharedNode> {
        match self.node_if_cached(place) {
            Some(resident) => Ok(resident),
            None if self.loads => Ok(self.store.load(place)?),
            None => Err(Fault::Miss(*place)),
        }
    }

    /// Each leaf that is missed doubles what is loaded with the next one. So a walk that begins
    /// again with each miss takes time in proportion to what it visits, and a short one reads
    /// nothing in vain.
    fn note_following(&self, following: &mut dyn Iterator<Item = NodePtr>) {
        let count = self.ahead_count.get();
        self.ahead_count.set((2 * count + 1).min(self.max_ahead));
        let pinned = self.pinned.borrow();
        let is_missing =
            |place: &NodePtr| !pinned.contains_key(place) && self.store.cache.peek(place).is_none();
        self.following.replace(following.take(count).filter(is_missing).collect());
    }

    fn take(&self, place: &NodePtr) -> Outcome<SharedNode> {
        let cached = self.store.cache.remove(place).map(|(_, resident)| resident);
        // Both references are removed, so that the caller need not copy the node.
        let pinned = self.pinned.borrow_mut().remove(place);
        match cached.or(pinned) {
            Some(resident) => Ok(resident),
            None if self.loads => Ok(self.store.read(place)?),
            None => Err(Fault::Miss(*place)),
        }
    }

    fn node_if_cached(&self, place: &NodePtr) -> Option<SharedNode> {
        if let Some(resident) = self.pinned.borrow().get(place) {
            return Some(SharedNode::clone(resident));
        }
        let resident = self.store.cache.get(place)?;
        if self.keeps {
            self.pinned.borrow_mut().insert(*place, SharedNode::clone(&resident));
        }
        Some(resident)
    }
}
