//! What a change has done to the tree, so that it can be undone.
//!
//! A change that needs a node which is not in memory, or cannot be read, leaves no trace: what it
//! did until then is undone in reverse order. Undoing needs no node from the device, because the
//! leaf of every changed entry is dirty, and no leaf is merged before the change is settled (map
//! invariant 4).

use std::mem;

use dendro_format::{Key, NodePtr, PageRef, Value};

use super::nodes::Nodes;
use crate::fault::{Fault, Outcome};
use crate::map::node::SharedNode;

/// The state of one entry before a change.
#[derive(Debug)]
pub(super) enum Change {
    /// The value that was under this key.
    Entry(Key, Option<Value>),
    /// The page at one slot of the chunk under this key, and whether the chunk had a hole there.
    Page { key: Key, slot: u32, old: Option<PageRef>, was_hole: bool },
}

/// The changes since [`Undo::begin`], in their order.
#[derive(Debug, Default)]
pub(super) struct Undo {
    is_recording: bool,
    changes: Vec<Change>,
    /// Keys whose leaves have become small by removals.
    small: Vec<Key>,
}

impl Undo {
    pub(super) fn begin(&mut self) {
        debug_assert!(!self.is_recording, "changes do not nest");
        self.is_recording = true;
    }

    pub(super) const fn is_recording(&self) -> bool {
        self.is_recording
    }

    #[inline]
    pub(super) fn note(&mut self, change: impl FnOnce() -> Change) {
        if self.is_recording {
            self.changes.push(change());
        }
    }

    pub(super) fn note_small(&mut self, key: &Key) {
        self.small.push(*key);
    }

    /// Forgets the changes, which can no longer be undone.
    pub(super) fn end(&mut self) {
        self.is_recording = false;
        self.changes.clear();
    }

    /// Takes the changes, to be undone.
    pub(super) fn take(&mut self) -> Vec<Change> {
        self.is_recording = false;
        self.small.clear();
        mem::take(&mut self.changes)
    }

    pub(super) fn take_small(&mut self) -> Vec<Key> {
        mem::take(&mut self.small)
    }
}

/// A source for trees in which all nodes that are needed are dirty.
pub(super) struct InMemory;

impl Nodes for InMemory {
    fn node(&self, place: &NodePtr) -> Outcome<SharedNode> {
        Err(Fault::Miss(*place))
    }

    fn take(&self, place: &NodePtr) -> Outcome<SharedNode> {
        Err(Fault::Miss(*place))
    }

    fn node_if_cached(&self, _: &NodePtr) -> Option<SharedNode> {
        None
    }
}
