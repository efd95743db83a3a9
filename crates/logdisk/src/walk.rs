//! Walks over the map, a slice at a time: the one way in which more than a few of its nodes are read.
//!
//! A walk keeps its place: where it missed a node, or has held the lock for long enough, it goes on
//! from there, whatever was written meanwhile. So it takes time in proportion to what it visits, others
//! wait for a slice of it alone, and no lock is held while a node is read. Of what it has passed it
//! holds nothing; the segment of a node that it reads is pinned meanwhile, and so is not filled anew.
//!
//! The tree that it walks over is the live one. Each part is seen as it is when the walk comes to it; what a
//! version of the past sees never changes, and what else must be seen at one moment, its caller keeps
//! from changing. A root that was frozen when the walk began would show the same of a version, and
//! would keep in memory all nodes that were changed since, and on the device all that were let go of.

use std::ops::ControlFlow;

use dendro_base::sync::RwLockWriteGuard;
use dendro_disk::Result;
use dendro_format::{Key, NodePtr, Value};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::map::store::PinnedNodes;
use crate::state::slice::{SLICE_LEN, Slice};

/// Nodes loaded for one bounded step of a longer walk.
const STEP_LOADS: usize = 64;

/// A walk over the whole map, in bounded steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MapWalk {
    /// The first key whose entry was not visited; with none, nodes are visited.
    entries_from: Option<Key>,
    nodes_from: Key,
}

impl MapWalk {
    pub(crate) const fn new() -> Self {
        Self { entries_from: Some(Key::MIN), nodes_from: Key::MIN }
    }
}

/// What [`LogDisk::walk_step`] finds.
pub(crate) trait Visit {
    fn entry(&mut self, key: &Key, value: &Value);
    /// A node that lies on the device, its level, and a key that belongs under it. May be called more than
    /// once with one that is not a leaf.
    fn node(&mut self, place: &NodePtr, level: u8, key: &Key);
}

impl LogDisk {
    /// Calls `step` with the map locked for reading, again and again until it breaks, and loads what it
    /// misses with the lock released. It begins at `place`, which it moves on over what it has visited:
    /// what it has loaded to come there is let go of then.
    pub(crate) fn walk<P: Copy + PartialEq, T>(
        &self,
        place: &mut P,
        step: impl FnMut(&Engine, &mut P, &dyn Nodes) -> Outcome<ControlFlow<T>>,
    ) -> Result<T> {
        self.walk_with(&mut PinnedNodes::cached(&self.store), place, step)
    }

    /// As [`Self::walk`], with nodes that are held already, or are to be.
    pub(crate) fn walk_with<P: Copy + PartialEq, T>(
        &self,
        nodes: &mut PinnedNodes<'_>,
        place: &mut P,
        mut step: impl FnMut(&Engine, &mut P, &dyn Nodes) -> Outcome<ControlFlow<T>>,
    ) -> Result<T> {
        loop {
            let engine = self.engine.read();
            let before = *place;
            let stepped = step(&engine, place, nodes);
            if *place != before {
                nodes.pass_on();
            }
            match stepped {
                Ok(ControlFlow::Break(found)) => return Ok(found),
                Ok(ControlFlow::Continue(())) => {}
                Err(Fault::Miss(missed)) => {
                    let _pin = engine.state.segments.pin(missed.addr);
                    drop(engine);
                    nodes.load(&missed)?;
                }
                Err(fault) => return Err(fault.into_error()),
            }
        }
    }

    /// As [`Self::walk`], of a walk that is so short that it may begin again where it missed a node.
    pub(crate) fn look<T>(
        &self,
        mut look: impl FnMut(&Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        self.walk(&mut (), |engine, (), nodes| look(engine, nodes).map(ControlFlow::Break))
    }

    /// Calls `change` with the lock held, again and again until it misses no node. An attempt that
    /// misses one must leave no trace ([`Engine::transact`]).
    ///
    /// # Errors
    /// What reading a node answers, or `change` itself; [`Error::Failed`] when the disk takes no writes.
    ///
    /// [`Error::Failed`]: dendro_disk::Error::Failed
    pub(crate) fn change<T>(
        &self,
        change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        let mut nodes = PinnedNodes::keeping(&self.store);
        self.change_with(&mut nodes, change).map(|(changed, _)| changed)
    }

    /// As [`Self::change`], with nodes that were looked at before; the lock is still held when it returns.
    pub(crate) fn change_with<T>(
        &self,
        nodes: &mut PinnedNodes<'_>,
        mut change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<(T, RwLockWriteGuard<'_, Engine>)> {
        loop {
            let mut engine = self.engine.write();
            if let Some(error) = self.failure() {
                return Err(error);
            }
            match change(&mut engine, nodes) {
                Ok(changed) => return Ok((changed, engine)),
                Err(fault) => {
                    let pin = match &fault {
                        Fault::Miss(place) => Some(engine.state.segments.pin(place.addr)),
                        _ => None,
                    };
                    drop(engine);
                    self.recover_from(fault, nodes)?;
                    drop(pin);
                }
            }
        }
    }

    /// Sees that a change can be tried again: loads the node that it missed. The lock is not held.
    ///
    /// # Errors
    /// What reading the node answers, or why it is not to be tried again.
    pub(crate) fn recover_from(&self, fault: Fault, nodes: &PinnedNodes<'_>) -> Result<()> {
        match fault {
            Fault::Miss(place) => nodes.load(&place),
            Fault::Unfinished(_) => Err(self.latch(fault)),
            fault => Err(fault.into_error()),
        }
    }

    /// Calls `walk` with slices of a walk over a list, until one ends before it is used up.
    pub(crate) fn look_in_slices(
        &self,
        from: u64,
        mut walk: impl FnMut(&Engine, &mut Slice, &dyn Nodes) -> Outcome<()>,
    ) -> Result<()> {
        let mut next = from;
        self.walk(&mut next, |engine, next, nodes| {
            let mut slice = Slice::from(*next);
            let walked = walk(engine, &mut slice, nodes);
            *next = slice.next;
            walked?;
            Ok(if slice.is_done() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    /// Goes on with a walk over the map, as far as a bounded number of nodes; says whether there is more.
    pub(crate) fn walk_step(&self, walk: &mut MapWalk, visit: &mut dyn Visit) -> Result<bool> {
        let mut loads_left = STEP_LOADS;
        self.walk(walk, |engine, walk, nodes| {
            if loads_left == 0 {
                return Ok(ControlFlow::Break(true));
            }
            loads_left -= 1;
            let is_done = match walk.entries_from {
                Some(from) => engine.walk_entries(from, walk, visit, nodes)?,
                None => engine.walk_nodes(walk, visit, nodes)?,
            };
            Ok(if is_done { ControlFlow::Break(false) } else { ControlFlow::Continue(()) })
        })
    }
}

impl Engine {
    /// Visits a slice of the entries from `from` on.
    fn walk_entries(
        &self,
        from: Key,
        walk: &mut MapWalk,
        visit: &mut dyn Visit,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let end = Key { list: u64::MAX, ..Key::MIN };
        let mut left = SLICE_LEN;
        self.state.map.visit(&from, &end, nodes, &mut |key, value| {
            walk.entries_from = Some(*key);
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            visit.entry(key, value);
            // One that was visited is not visited again.
            walk.entries_from = Some(Key { epoch: key.epoch.saturating_add(1), ..*key });
            ControlFlow::Continue(())
        })?;
        if left > 0 {
            walk.entries_from = None;
        }
        Ok(false)
    }

    /// Visits a slice of the nodes; says whether these were the last.
    fn walk_nodes(
        &self,
        walk: &mut MapWalk,
        visit: &mut dyn Visit,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let mut left = SLICE_LEN;
        let from = walk.nodes_from;
        self.state.map.visit_places(&from, nodes, &mut |place, level, key| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            visit.node(place, level, key);
            if level == 0 && walk.nodes_from.is_before(key) {
                walk.nodes_from = *key;
            }
            ControlFlow::Continue(())
        })?;
        Ok(left > 0)
    }
}
