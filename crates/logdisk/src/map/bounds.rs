//! What a parent says of a child, compared with what is there.
//!
//! Checksums tell that a node is the one that its parent means, and not that it may lie there: whoever
//! forges them, or a bug, can make a child of a node's own ancestor. As each child's level is its
//! parent's less one, and its keys lie between those that the parent gives, no walk goes in a circle,
//! and no two nodes of one level have keys in common.

use dendro_disk::Error;
use dendro_format::{Key, NodePtr};

use crate::fault::Outcome;
use crate::map::node::{Inner, Node};

/// Where in the tree a child lies, by its parent's word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    pub(super) level: u8,
    /// The first key that may lie under it.
    first: &'a Key,
    /// The first behind it that may not, as far as that is known.
    end: Option<&'a Key>,
}

impl<'a> Bounds<'a> {
    /// At `level`, of keys from `first` to before `end`.
    pub(super) const fn new(level: u8, first: &'a Key, end: Option<&'a Key>) -> Self {
        Self { level, first, end }
    }

    /// Of the root of a tree with so many levels above the leaves.
    pub(super) const fn of_root(level: u8) -> Self {
        Self { level, first: &Key::MIN, end: None }
    }

    /// Of the child of `inner` at `at`, if `inner` lies at `self`.
    pub(super) fn below(self, inner: &'a Inner, at: usize) -> Self {
        let end = inner.entries.get(at + 1).map(|(first, _)| first).or(self.end);
        Self { end, ..Self::within(inner, at) }
    }

    /// As [`Self::below`], of which nobody knows where `inner` lies.
    pub(super) fn within(inner: &'a Inner, at: usize) -> Self {
        let end = inner.entries.get(at + 1).map(|(first, _)| first);
        Self { level: inner.level.saturating_sub(1), first: &inner.entries[at].0, end }
    }

    /// Its end, if it is known.
    pub(super) const fn end(self) -> Option<&'a Key> {
        self.end
    }

    /// Whether `node` may lie here.
    pub(super) fn fits(self, node: &Node) -> bool {
        let (first, last) = match node {
            Node::Leaf(leaf) => (leaf.entries().first(), leaf.entries().last()).keys(),
            Node::Inner(inner) => (inner.entries.first(), inner.entries.last()).keys(),
        };
        node.level() == self.level
            && first.is_none_or(|first| !first.is_before(self.first))
            && last.zip(self.end).is_none_or(|(last, end)| last.is_before(end))
    }

    /// Says what is wrong if the node that was found at `place` may not lie here.
    pub(super) fn check(self, place: &NodePtr, node: &Node) -> Outcome<()> {
        if self.fits(node) {
            return Ok(());
        }
        let what = match node.level() {
            level if level != self.level => {
                format!("its level is {level}, and its parent says {}", self.level)
            }
            _ => "its keys belong elsewhere".into(),
        };
        Err(Error::Corrupted(format!("the map's node at {}: {what}", place.addr)).into())
    }
}

/// The keys of two entries.
trait Keys<'a> {
    fn keys(self) -> (Option<&'a Key>, Option<&'a Key>);
}

impl<'a, T> Keys<'a> for (Option<&'a (Key, T)>, Option<&'a (Key, T)>) {
    fn keys(self) -> (Option<&'a Key>, Option<&'a Key>) {
        (self.0.map(|(key, _)| key), self.1.map(|(key, _)| key))
    }
}
