//! The map: its nodes and its entries.

use dendro_format::node::{self, MAX_NODE_LEN_BYTES, NODE_HEADER_LEN_BYTES, NodeInfo};
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{Addr, Checkpoint, ChildPtr, Entries, Key, NodePtr, SegmentNo, Value};

use super::volume::Volume;
use crate::error::{Error, NodeProblem, NodeProblemKind, Result};

/// No map is higher: with only two children a node, one that high would exceed the largest volume.
const MAX_LEVEL: u8 = 40;

/// A node of the map that was read and is sound.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it lies.
    pub place: NodePtr,
    /// What its header says.
    pub info: NodeInfo,
    /// Its entries.
    pub entries: Entries,
    /// If it was read in the mirror of its segment: why it cannot be read in its place.
    pub problem: Option<String>,
}

impl Node {
    /// The segments that it was read from, or may have been.
    pub(crate) fn segments<'n>(
        &'n self,
        volume: &'n Volume<'_>,
    ) -> impl Iterator<Item = SegmentNo> + 'n {
        let addr = self.place.addr;
        let mirrors = self.problem.iter().flat_map(move |_| volume.mirrors_of(addr));
        std::iter::once(addr).chain(mirrors).map(|addr| volume.layout().segment_of(addr))
    }
}

/// A node that is still to be visited, and the range of its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) child: ChildPtr,
    level: u8,
    from: Option<Key>,
    to: Option<Key>,
}

impl Pending {
    /// The root of a map.
    pub(crate) const fn root(place: NodePtr, level: u8) -> Self {
        Self { child: ChildPtr::of_unknown_age(place), level, from: None, to: None }
    }

    /// The children of a node, in the order of their keys.
    pub(crate) fn children<'e>(
        &self,
        entries: &'e [(Key, ChildPtr)],
    ) -> impl DoubleEndedIterator<Item = Self> + use<'e> {
        let (level, last_to) = (self.level.saturating_sub(1), self.to);
        entries.iter().enumerate().map(move |(at, &(key, child))| {
            let to = entries.get(at + 1).map_or(last_to, |(next, _)| Some(*next));
            Self { child, level, from: Some(key), to }
        })
    }

    /// Reads the node, and checks that it is the one that its parent means.
    pub(crate) fn read(&self, volume: &Volume<'_>) -> std::result::Result<Node, NodeProblem> {
        self.read_with(volume, true)
    }

    fn read_with(
        &self,
        volume: &Volume<'_>,
        has_records: bool,
    ) -> std::result::Result<Node, NodeProblem> {
        let problem = |kind, detail: String| NodeProblem {
            offset: self.child.place.addr.bytes(),
            level: self.level,
            kind,
            detail,
        };
        if self.level > MAX_LEVEL {
            return Err(problem(NodeProblemKind::WrongLevel, "no map is that high".into()));
        }
        let node = volume.node_with(self.child.place, has_records).map_err(|error| {
            let kind = match &error {
                Error::Device(_) => NodeProblemKind::Unreadable,
                Error::OutsideLog { .. } => NodeProblemKind::Outside,
                _ => NodeProblemKind::Damaged,
            };
            problem(kind, error.to_string())
        })?;
        if node.info.level != self.level {
            let detail = format!("it says that its level is {}", node.info.level);
            return Err(problem(NodeProblemKind::WrongLevel, detail));
        }
        let (first, last) = first_and_last(&node.entries);
        if self.from.is_some_and(|from| first < from) || self.to.is_some_and(|to| last >= to) {
            let detail = format!("its keys, {first} to {last}, belong elsewhere");
            return Err(problem(NodeProblemKind::WrongKeys, detail));
        }
        let (newest, stated) = (node.entries.newest_epoch(), self.child.newest_epoch);
        if newest > stated {
            let detail = format!("it has entries of epoch {newest}, its parent says {stated}");
            return Err(problem(NodeProblemKind::WrongEpoch, detail));
        }
        Ok(node)
    }
}

/// Visits nodes, each before its children, and children in the order of their keys.
///
/// The visit ends on every input: a node is rejected unless its keys lie in the range that its
/// parent gives it, so no node is descended into twice.
pub struct Nodes<'v> {
    volume: &'v Volume<'v>,
    /// Whether the records of clients' lists are read.
    has_records: bool,
    stack: Vec<Pending>,
    from: Option<Key>,
    to: Option<Key>,
    range: (Option<Key>, Option<Key>),
}

impl<'v> Nodes<'v> {
    fn new(
        volume: &'v Volume<'v>,
        root: Option<(NodePtr, u8)>,
        from: Option<Key>,
        to: Option<Key>,
    ) -> Self {
        let root = root.map(|(place, level)| Pending::root(place, level));
        Self {
            volume,
            has_records: true,
            stack: root.into_iter().collect(),
            from,
            to,
            range: (None, None),
        }
    }

    /// The same nodes, but the records of clients' lists have no bytes.
    pub(crate) fn without_records(self) -> Self {
        Self { has_records: false, ..self }
    }

    /// The keys that may lie under the last node that was visited, or could not be: from the first
    /// one on and below the second one, as far as they are limited.
    pub(crate) const fn range(&self) -> (Option<Key>, Option<Key>) {
        self.range
    }

    fn push_children(&mut self, parent: &Pending, node: &Node) {
        let Entries::Inner(children) = &node.entries else { return };
        let (start, end) = (self.from, self.to);
        let is_wanted = |of: &Pending| {
            end.is_none_or(|end| of.from.is_none_or(|from| from < end))
                && start.is_none_or(|start| of.to.is_none_or(|to| start < to))
        };
        self.stack.extend(parent.children(children).rev().filter(is_wanted));
    }
}

pub(crate) fn first_and_last(entries: &Entries) -> (Key, Key) {
    match entries {
        Entries::Leaf(entries) => ends(entries),
        Entries::Inner(entries) => ends(entries),
    }
}

fn ends<T>(entries: &[(Key, T)]) -> (Key, Key) {
    let (first, last) = (entries.first(), entries.last());
    first.zip(last).map(|(first, last)| (first.0, last.0)).expect("a node has entries")
}

impl Iterator for Nodes<'_> {
    type Item = std::result::Result<Node, NodeProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        let pending = self.stack.pop()?;
        self.range = (pending.from, pending.to);
        let read = pending.read_with(self.volume, self.has_records);
        if let Ok(node) = &read {
            self.push_children(&pending, node);
        }
        Some(read)
    }
}

impl Volume<'_> {
    /// Reads the node at a place or, if it is damaged there, in the mirror.
    pub(crate) fn node(&self, place: NodePtr) -> Result<Node> {
        self.node_with(place, true)
    }

    fn node_with(&self, place: NodePtr, has_records: bool) -> Result<Node> {
        self.copy_at(place, place.addr, has_records).or_else(|error| {
            let mut mirrors = self.mirrors_of(place.addr);
            let node = mirrors.find_map(|mirror| self.copy_at(place, mirror, has_records).ok());
            let problem = Some(error.to_string());
            node.map(|node| Node { problem, ..node }).ok_or(error)
        })
    }

    /// Reads the copy at `addr` of the node that belongs to a place.
    pub(crate) fn node_at(&self, place: NodePtr, addr: Addr) -> Result<Node> {
        self.copy_at(place, addr, true)
    }

    fn copy_at(&self, place: NodePtr, addr: Addr, has_records: bool) -> Result<Node> {
        let len = place.len_bytes as usize;
        if !(NODE_HEADER_LEN_BYTES..=MAX_NODE_LEN_BYTES).contains(&len) {
            let len_bytes = place.len_bytes.into();
            return Err(Error::OutsideLog { what: "map node", addr, len_bytes });
        }
        let bytes = self.read("map node", addr, len as u64)?;
        let left_out = |key: &Key| !has_records && key.list < FIRST_SYSTEM_LIST;
        let (info, entries) =
            node::decode_without(&bytes[..len], &self.superblock().uuid, left_out)
                .map_err(|problem| Error::Damaged { addr, problem })?;
        let expected = place.crc32c;
        let found = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if found != expected {
            return Err(Error::Misdirected { what: "map node", addr, found, expected });
        }
        Ok(Node { place, info, entries, problem: None })
    }

    /// The nodes of the map, each before its children.
    #[must_use]
    pub fn nodes(&self, checkpoint: &Checkpoint) -> Nodes<'_> {
        Nodes::new(self, checkpoint.root, None, None)
    }

    /// The nodes that may lead to entries with keys at or above `from` and below `to`, each before
    /// its children.
    #[must_use]
    pub fn nodes_between(&self, checkpoint: &Checkpoint, from: Key, to: Key) -> Nodes<'_> {
        Nodes::new(self, checkpoint.root, Some(from), Some(to))
    }

    /// The map's entries with keys at or above `from` and below `to`, in the order of their keys.
    #[must_use]
    pub fn entries(
        &self,
        checkpoint: &Checkpoint,
        from: Option<Key>,
        to: Option<Key>,
    ) -> MapEntries<'_> {
        MapEntries::new(Nodes::new(self, checkpoint.root, from, to))
    }
}

/// The map's entries, in the order of their keys.
pub struct MapEntries<'v> {
    nodes: Nodes<'v>,
    leaf: std::vec::IntoIter<(Key, Value)>,
}

impl<'v> MapEntries<'v> {
    fn new(nodes: Nodes<'v>) -> Self {
        Self { nodes, leaf: Vec::new().into_iter() }
    }
}

impl Iterator for MapEntries<'_> {
    type Item = std::result::Result<(Key, Value), NodeProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (from, to) = (self.nodes.from, self.nodes.to);
            let wanted =
                |key: Key| from.is_none_or(|from| from <= key) && to.is_none_or(|to| key < to);
            if let Some(entry) = self.leaf.find(|(key, _)| wanted(*key)) {
                return Some(Ok(entry));
            }
            match self.nodes.next()? {
                Ok(Node { entries: Entries::Leaf(leaf), .. }) => self.leaf = leaf.into_iter(),
                Ok(_) => (),
                Err(problem) => return Some(Err(problem)),
            }
        }
    }
}
