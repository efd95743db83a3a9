//! The map: a B+tree that is persistent in the functional sense (DESIGN §5).
//!
//! Invariants:
//! 1. A dirty node's parent is dirty: a change of a node changes the path to it.
//! 2. A node that a checkpoint retains is never changed. The live tree continues with a copy, and
//!    the old node is marked superseded.
//! 3. Every clean node that the live tree releases is reported once, by [`Map::take_released`], so
//!    that the usage of its segment stays exact.
//! 4. Between [`Map::begin`] and [`Map::settle_changes`] no node is merged or dropped. So undoing
//!    finds the leaf of every changed entry dirty, and needs no I/O.

mod accounting;
mod bounds;
pub(crate) mod budget;
pub(crate) mod charges;
mod descent;
pub(crate) mod node;
mod nodes;
mod path_cache;
mod remove;
pub(crate) mod settling;
mod split;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod undo;

use std::mem;
use std::ops::ControlFlow;

use dendro_base::sync::Arc;
use dendro_format::{ChildPtr, Chunk, Key, NodePtr, PageRef, Value};

use self::accounting::Ledger;
use self::bounds::Bounds;
use self::charges::Charges;
use self::descent::{
    child_mut, look_under, node_at, visit_child, visit_child_back, visit_places_under,
};
pub(crate) use self::nodes::Nodes;
use self::path_cache::PathCache;
use self::remove::{remove_under, shrink_under, take_under};
use self::split::split_under;
use self::undo::{Change, InMemory, Undo};
use crate::fault::Outcome;
use crate::map::node::{Child, Inner, Leaf, Node, Resident, SharedNode, Weight};

/// The live tree.
#[derive(Debug, Default)]
pub(crate) struct Map {
    root: Option<Child>,
    level: u8,
    ledger: Ledger,
    paths: PathCache,
    undo: Undo,
}

/// What was under a key before an entry was put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced<T = ()> {
    Nothing(T),
    Tombstone,
    Entry,
}

/// An entry of the tree.
pub(crate) type Entry = (Key, Value);

impl Map {
    /// The tree whose root lies on the device.
    pub(crate) fn from_root(root: Option<(NodePtr, u8)>) -> Self {
        let level = root.map_or(0, |(_, level)| level);
        let root = root.map(|(place, _)| Child::Clean(ChildPtr::of_unknown_age(place)));
        Self { root, level, ..Self::default() }
    }

    /// The bounds of the root.
    const fn bounds(&self) -> Bounds<'static> {
        Bounds::of_root(self.level)
    }

    /// The approximate memory of the dirty nodes.
    pub(crate) const fn dirty_bytes(&self) -> u64 {
        self.ledger.dirty.memory_bytes
    }

    /// The approximate memory of superseded nodes.
    pub(crate) const fn superseded_bytes(&self) -> u64 {
        self.ledger.superseded_bytes
    }

    /// The approximate memory of all nodes that are in memory independently of the cache.
    pub(crate) const fn resident_bytes(&self) -> u64 {
        self.dirty_bytes() + self.superseded_bytes()
    }

    /// The approximate bytes that the dirty nodes will take on the device.
    pub(crate) const fn dirty_len_bytes(&self) -> u64 {
        self.ledger.dirty.len_bytes
    }

    /// The approximate bytes that the checkpoint after the one under way will write, or the next
    /// one if none is under way.
    pub(crate) const fn due_len_bytes(&self) -> u64 {
        self.ledger.due.len_bytes
    }

    /// The clean nodes that were released since the last call (map invariant 3).
    pub(crate) fn take_released(&mut self) -> Vec<NodePtr> {
        mem::take(&mut self.ledger.released)
    }

    pub(crate) const fn has_released(&self) -> bool {
        !self.ledger.released.is_empty()
    }

    pub(crate) fn get(&self, key: &Key, nodes: &dyn Nodes) -> Outcome<Option<Value>> {
        self.look(key, nodes, |value| value.cloned())
    }

    /// The result of `look` for the value under `key`.
    pub(crate) fn look<T>(
        &self,
        key: &Key,
        nodes: &dyn Nodes,
        look: impl FnOnce(Option<&Value>) -> T,
    ) -> Outcome<T> {
        let Some(root) = &self.root else { return Ok(look(None)) };
        if let Some(value) =
            self.paths.to(key, self.level).and_then(|path| path.value_of(key, root))
        {
            return Ok(look(Some(value)));
        }
        look_under(root, self.bounds(), key, nodes, |path| self.paths.store(key, path), look)
    }

    /// Calls `visit` with the entries from `to` back to `from`, both included, until it breaks.
    pub(crate) fn visit_back(
        &self,
        from: &Key,
        to: &Key,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
    ) -> Outcome<()> {
        if let Some(root) = &self.root {
            let _ = visit_child_back(root, self.bounds(), from, to, nodes, visit)?;
        }
        Ok(())
    }

    /// The last entry from `from` to `to`, both included.
    pub(crate) fn last_between(
        &self,
        from: &Key,
        to: &Key,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<Key>> {
        let mut last = None;
        self.visit_back(from, to, nodes, &mut |key, _| {
            last = Some(*key);
            ControlFlow::Break(())
        })?;
        Ok(last)
    }

    /// Calls `visit` with the entries from `from` to before `to`, in order, until it breaks.
    pub(crate) fn visit(
        &self,
        from: &Key,
        to: &Key,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
    ) -> Outcome<()> {
        self.visit_newer(from, to, 0, nodes, visit)
    }

    /// As [`Self::visit`], but passes over subtrees in which nothing was written after `epoch`.
    /// Every entry that was written after it is visited, and some others are too.
    pub(crate) fn visit_newer(
        &self,
        from: &Key,
        to: &Key,
        epoch: u64,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
    ) -> Outcome<()> {
        if let Some(root) = &self.root {
            let _ = visit_child(root, self.bounds(), (from, to, epoch), nodes, visit)?;
        }
        Ok(())
    }

    /// Calls `visit` with the place, the level and a key of every clean node that keys from `from`
    /// on may belong under, until it breaks. Nodes of the same level come in the order of their
    /// keys.
    pub(crate) fn visit_places(
        &self,
        from: &Key,
        nodes: &dyn Nodes,
        visit: &mut dyn FnMut(&NodePtr, u8, &Key) -> ControlFlow<()>,
    ) -> Outcome<()> {
        if let Some(root) = &self.root {
            let _ = visit_places_under(root, self.bounds(), &Key::MIN, from, nodes, visit)?;
        }
        Ok(())
    }

    /// What clients use of their quotas.
    pub(crate) const fn charges(&self) -> &Charges {
        &self.ledger.charges
    }

    pub(crate) const fn charges_mut(&mut self) -> &mut Charges {
        &mut self.ledger.charges
    }

    /// Puts `value` under `key`; returns what was there.
    pub(crate) fn put(&mut self, key: &Key, value: Value, nodes: &dyn Nodes) -> Outcome<Replaced> {
        self.put_behind(key, value, nodes, |_| ())
    }

    /// As [`Self::put`]. If nothing was under `key`, `look` is called with the key before it, if
    /// that is in the same leaf.
    pub(crate) fn put_behind<T>(
        &mut self,
        key: &Key,
        value: Value,
        nodes: &dyn Nodes,
        look: impl FnOnce(Option<&Key>) -> T,
    ) -> Outcome<Replaced<T>> {
        if self.root.is_none() {
            self.ledger.charges.exchange(key, None, Some(&value));
            let node = Node::Leaf(Leaf::with(vec![(*key, value)]));
            self.ledger.grow(node.weight());
            self.root = Some(Child::Dirty(Resident::new(node)));
            self.level = 0;
            self.undo.note(|| Change::Entry(*key, None));
            return Ok(Replaced::Nothing(look(None)));
        }
        // What was there is noted here, and `look` called here, so that neither value nor key is
        // returned through several calls: each move of what was just written in parts would wait
        // until the processor has stored the parts.
        self.update_leaf(key, nodes, |leaf, position, ledger, undo| match position {
            Ok(at) => {
                let (old, weights) = leaf.change(at, |old| mem::replace(old, value));
                ledger.exchange(weights);
                ledger.charges.exchange(key, Some(&old), Some(&leaf.entries()[at].1));
                let is_tombstone = matches!(old, Value::Tombstone);
                undo.note(|| Change::Entry(*key, Some(old)));
                (if is_tombstone { Replaced::Tombstone } else { Replaced::Entry }, at)
            }
            Err(at) => {
                ledger.grow(Weight::of_entry(&value));
                ledger.charges.exchange(key, None, Some(&value));
                leaf.insert(at, key, value);
                undo.note(|| Change::Entry(*key, None));
                let before = at.checked_sub(1).map(|before| &leaf.entries()[before].0);
                (Replaced::Nothing(look(before)), at)
            }
        })
    }

    /// Puts `block` at `slot` of the chunk under `key`, in place.
    ///
    /// # Panics
    /// When there is no chunk under `key`.
    pub(crate) fn set_page(
        &mut self,
        key: &Key,
        slot: u32,
        block: PageRef,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let (old, was_hole) = self.change_chunk(key, nodes, |chunk| {
            let old = (chunk.get(slot), chunk.holes() >> slot & 1 == 1);
            chunk.set(slot, block);
            old
        })?;
        self.ledger.charges.exchange_page(key, old, Some(block));
        self.undo.note(|| Change::Page { key: *key, slot, old, was_hole });
        Ok(())
    }

    fn change_chunk<T>(
        &mut self,
        key: &Key,
        nodes: &dyn Nodes,
        change: impl FnOnce(&mut Chunk) -> T,
    ) -> Outcome<T> {
        self.update_leaf(key, nodes, |leaf, position, ledger, _| {
            let at = position.expect("the key was just found");
            let (result, weights) = leaf.change(at, |value| match value {
                Value::Chunk(chunk) => change(Arc::make_mut(chunk)),
                _ => unreachable!("a chunk was just found"),
            });
            ledger.exchange(weights);
            (result, at)
        })
    }

    /// Calls `update` with the leaf that `key` belongs in, and the position where it is or would
    /// be. `update` returns the position of the entry that it has changed. The tree must not be
    /// empty.
    fn update_leaf<T>(
        &mut self,
        key: &Key,
        nodes: &dyn Nodes,
        update: impl FnOnce(&mut Leaf, Result<usize, usize>, &mut Ledger, &mut Undo) -> (T, usize),
    ) -> Outcome<T> {
        let mut child = self.root.as_mut().expect("the tree has a root");
        let known =
            self.paths.to(key, self.level).filter(|path| path.value_of(key, child).is_some());
        let mut path = known.unwrap_or_default();
        let mut next = || {
            let (step, rest) = path.next()?;
            path = rest;
            Some(step)
        };
        let mut bounds = Bounds::of_root(self.level);
        let (leaf, position) = loop {
            match self.ledger.make_mut(child, bounds, nodes)? {
                Node::Leaf(leaf) => {
                    let position = next().map_or_else(|| leaf.position(key), Ok);
                    break (leaf, position);
                }
                Node::Inner(inner) => {
                    let at = next().unwrap_or_else(|| inner.position(key));
                    (child, bounds) = child_mut(inner, at, bounds);
                }
            }
        };
        let (result, changed_at) = update(leaf, position, &mut self.ledger, &mut self.undo);
        if !leaf.is_too_long() {
            return Ok(result);
        }
        let at = self.bounds();
        let root = self.root.as_mut().expect("the tree has a root");
        if let Some(right) = split_under(root, at, key, changed_at, nodes, &mut self.ledger)? {
            let left = self.root.take().expect("the root was just split");
            self.level += 1;
            let entries = vec![(Key::MIN, left), right];
            let node = Node::Inner(Inner { level: self.level, entries });
            self.ledger.grow(node.weight());
            self.root = Some(Child::Dirty(Resident::new(node)));
        }
        Ok(result)
    }

    /// Removes the entry under `key`; returns it.
    pub(crate) fn remove(&mut self, key: &Key, nodes: &dyn Nodes) -> Outcome<Option<Value>> {
        let bounds = self.bounds();
        let Some(root) = self.root.as_mut() else { return Ok(None) };
        let removed = remove_under(root, bounds, key, nodes, &mut self.ledger, false)?;
        let Some((old, is_leaf_small)) = removed else { return Ok(None) };
        self.ledger.charges.exchange(key, Some(&old), None);
        self.undo.note(|| Change::Entry(*key, Some(old.clone())));
        if is_leaf_small {
            self.undo.note_small(key);
        }
        if !self.undo.is_recording() {
            self.shrink(nodes);
        }
        Ok(Some(old))
    }

    /// Takes out the entries from `from` to before `to`, in order, if they all lie in one leaf.
    /// This is much faster than removing them one by one. `None` means that they may lie in several
    /// leaves and that nothing was changed.
    pub(crate) fn take_from_leaf(
        &mut self,
        from: &Key,
        to: &Key,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<Vec<(Key, Value)>>> {
        let bounds = self.bounds();
        let Some(root) = self.root.as_mut() else { return Ok(None) };
        let taken = take_under(root, bounds, from, to, nodes, &mut self.ledger)?;
        if let Some(taken) = &taken {
            for (key, value) in taken {
                self.ledger.charges.exchange(key, Some(value), None);
                self.undo.note(|| Change::Entry(*key, Some(value.clone())));
            }
            self.undo.note_small(from);
        }
        if !self.undo.is_recording() {
            self.shrink(nodes);
        }
        Ok(taken)
    }

    /// Begins a change: what is changed from here on can be undone (map invariant 4).
    pub(crate) fn begin(&mut self) {
        self.undo.begin();
    }

    /// Makes permanent what was changed since [`Self::begin`].
    pub(crate) fn settle_changes(&mut self, nodes: &dyn Nodes) {
        self.undo.end();
        self.shrink(nodes);
    }

    /// Undoes what was changed since [`Self::begin`]: the entries are as they were. Nodes that were
    /// made dirty stay dirty.
    pub(crate) fn roll_back(&mut self) {
        let changes = self.undo.take();
        for change in changes.into_iter().rev() {
            self.undo_change(change).expect("what was changed is in memory (map invariant 4)");
        }
        self.shrink(&InMemory);
    }

    fn undo_change(&mut self, change: Change) -> Outcome<()> {
        match change {
            Change::Entry(key, Some(old)) => self.put(&key, old, &InMemory).map(drop),
            Change::Entry(key, None) => {
                let bounds = self.bounds();
                let Some(root) = self.root.as_mut() else { return Ok(()) };
                let removed = remove_under(root, bounds, &key, &InMemory, &mut self.ledger, true)?;
                let Some((put, is_leaf_small)) = removed else { return Ok(()) };
                self.ledger.charges.exchange(&key, Some(&put), None);
                if is_leaf_small {
                    self.undo.note_small(&key);
                }
                Ok(())
            }
            Change::Page { key, slot, old, was_hole } => {
                let put = self.change_chunk(&key, &InMemory, |chunk| {
                    let put = chunk.get(slot);
                    match old {
                        Some(old) => chunk.set(slot, old),
                        None => {
                            let mut slots = chunk.slots();
                            slots[slot as usize] = None;
                            let holes = chunk.holes() & !(1 << slot) | u32::from(was_hole) << slot;
                            *chunk = chunk.with_slots(&slots, holes);
                        }
                    }
                    put
                })?;
                self.ledger.charges.exchange_page(&key, put, old);
                Ok(())
            }
        }
    }

    /// Merges the nodes that have become small.
    fn shrink(&mut self, nodes: &dyn Nodes) {
        for key in self.undo.take_small() {
            if let Some(root) = self.root.as_mut() {
                shrink_under(root, &key, nodes, &mut self.ledger);
            }
            self.shrink_root();
        }
    }

    /// Drops roots that have no entry, or a single child.
    fn shrink_root(&mut self) {
        while let Some(Child::Dirty(resident)) = &self.root {
            let next = match &resident.node {
                node if node.is_empty() => None,
                Node::Inner(inner) if inner.entries.len() == 1 => Some(inner.entries[0].1.clone()),
                _ => return,
            };
            self.ledger.drop_dirty(resident);
            self.level = self.level.saturating_sub(1);
            self.root = next;
        }
    }

    /// Makes the path to the node at `level` that `key` belongs under dirty if that node lies at
    /// `place`, so that the next checkpoint writes it again. Returns whether it lies there.
    pub(crate) fn rewrite_node(
        &mut self,
        place: &NodePtr,
        level: u8,
        key: &Key,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        if !self.has_node(place, level, key, nodes)? {
            return Ok(false);
        }
        let mut bounds = self.bounds();
        let mut child = self.root.as_mut().expect("the node is in the tree");
        loop {
            let node = self.ledger.make_mut(child, bounds, nodes)?;
            match node {
                Node::Inner(inner) if inner.level > level => {
                    let at = inner.position(key);
                    (child, bounds) = child_mut(inner, at, bounds);
                }
                _ => return Ok(true),
            }
        }
    }

    /// Whether the node at `level` that `key` belongs under lies at `place`.
    fn has_node(&self, place: &NodePtr, level: u8, key: &Key, nodes: &dyn Nodes) -> Outcome<bool> {
        Ok(self.node_place(level, key, nodes)? == Some(*place))
    }

    /// Where the node at `level` that `key` belongs under lies, if there is one and it has not
    /// changed since it was written.
    pub(crate) fn node_place(
        &self,
        level: u8,
        key: &Key,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<NodePtr>> {
        let Some(mut child) = self.root.clone() else { return Ok(None) };
        let mut at_level = self.level;
        let mut first = Key::MIN;
        while at_level > level {
            let resident = match &child {
                Child::Dirty(resident) => SharedNode::clone(resident),
                Child::Clean(child) => {
                    let bounds = Bounds::new(at_level, &first, None);
                    node_at(&child.place, bounds, nodes)?
                }
            };
            let Node::Inner(inner) = &resident.node else { return Ok(None) };
            (first, child) = inner.entries[inner.position(key)].clone();
            at_level -= 1;
        }
        Ok(match child {
            Child::Clean(child) if at_level == level => Some(child.place),
            _ => None,
        })
    }

    /// The root as it is now, for a checkpoint. From here on it is not changed (map invariant 2).
    pub(crate) fn freeze(&mut self) -> Option<(Child, u8)> {
        self.ledger.begin_checkpoint();
        self.root.clone().map(|root| (root, self.level))
    }
}
