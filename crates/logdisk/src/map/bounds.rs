//! The level and the keys that a parent states for a child, compared with the child.
//!
//! Invariants:
//! 1. A child's level is its parent's less one, and its keys lie between those that the parent
//!    states.
//!
//! A checksum shows that a node is the one that its parent means, but not that it may lie there: a
//! forged image, or a bug, can make an ancestor of a node its child. With invariant 1 no walk goes
//! in a circle, and no two nodes of one level have keys in common.

use dendro_disk::Error;
use dendro_format::{Key, NodePtr};

use crate::fault::Outcome;
use crate::map::node::{Inner, Node};

/// Where in the tree a child lies, as its parent states it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    pub(super) level: u8,
    /// The first key that may lie under the child.
    first: &'a Key,
    /// The first key behind it that may not lie under it, if that is known.
    end: Option<&'a Key>,
}

impl<'a> Bounds<'a> {
    /// The bounds at `level` for keys from `first` to before `end`.
    pub(super) const fn new(level: u8, first: &'a Key, end: Option<&'a Key>) -> Self {
        Self { level, first, end }
    }

    /// The bounds of the root of a tree with this many levels above the leaves.
    pub(super) const fn of_root(level: u8) -> Self {
        Self { level, first: &Key::MIN, end: None }
    }

    /// The bounds of the child of `inner` at `at`, if `inner` lies at `self`.
    pub(super) fn below(self, inner: &'a Inner, at: usize) -> Self {
        let end = inner.entries.get(at + 1).map(|(first, _)| first).or(self.end);
        Self { end, ..Self::within(inner, at) }
    }

    /// As [`Self::below`], where the bounds of `inner` are not known.
    pub(super) fn within(inner: &'a Inner, at: usize) -> Self {
        let end = inner.entries.get(at + 1).map(|(first, _)| first);
        Self { level: inner.level.saturating_sub(1), first: &inner.entries[at].0, end }
    }

    /// The end, if it is known.
    pub(super) const fn end(self) -> Option<&'a Key> {
        self.end
    }

    /// Whether `node` may lie here (bounds invariant 1).
    pub(super) fn fits(self, node: &Node) -> bool {
        let (first, last) = match node {
            Node::Leaf(leaf) => (leaf.entries().first(), leaf.entries().last()).keys(),
            Node::Inner(inner) => (inner.entries.first(), inner.entries.last()).keys(),
        };
        node.level() == self.level
            && first.is_none_or(|first| !first.is_before(self.first))
            && last.zip(self.end).is_none_or(|(last, end)| last.is_before(end))
    }

    /// Checks that the node that was found at `place` may lie here.
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
