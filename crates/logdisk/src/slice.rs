//! Walks over many entries of the map, a slice at a time.
//!
//! A walk keeps its place: where it missed a node, or has held the lock for long enough, it goes on
//! from there, whatever was written meanwhile. So it takes time in proportion to what it visits, and
//! others wait for a slice of it alone. Each part is seen as it is when the walk comes to it; what
//! must be seen at one moment, its caller keeps from changing.

use std::ops::ControlFlow;

use dendro_disk::Result;
use dendro_format::{Key, NodePtr, Value};

use crate::core::Core;
use crate::disk::LogDisk;
use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::store::Held;

/// Entries visited with the lock held once: some hundred microseconds.
pub(crate) const SLICE_LEN: usize = 2048;
/// Nodes loaded for one bounded step of a longer walk.
const STEP_LOADS: usize = 64;

/// How far a walk has come through the things of a list, by their index, and how much further it may go
/// before it lets others in.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Everything before was visited.
    pub(crate) next: u64,
    left: usize,
    is_cut: bool,
}

impl Slice {
    /// From the things with index `next` on.
    pub(crate) const fn from(next: u64) -> Self {
        Self { next, left: SLICE_LEN, is_cut: false }
    }

    /// As [`Self::from`], of a walk that is short.
    pub(crate) const fn whole(next: u64) -> Self {
        Self { next, left: usize::MAX, is_cut: false }
    }

    /// An entry was visited.
    pub(crate) const fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The walk comes to the thing with this index. It ends here when the slice is used up.
    pub(crate) const fn come_to(&mut self, index: u64) -> ControlFlow<()> {
        self.next = index;
        self.is_cut = self.left == 0;
        if self.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// As [`Self::come_to`], of a walk that is short.
    pub(crate) const fn pass_to(&mut self, index: u64) {
        self.next = index;
    }

    /// The caller has seen enough, or there is nothing more.
    const fn is_done(&self) -> bool {
        !self.is_cut
    }
}

/// A walk over the whole map, in bounded steps.
#[derive(Debug)]
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
    /// Calls `walk` with slices of a walk over a list, until one ends before it is used up.
    pub(crate) fn look_in_slices(
        &self,
        mut from: u64,
        mut walk: impl FnMut(&Core, &mut Slice, &dyn Nodes) -> Outcome<()>,
    ) -> Result<()> {
        let mut nodes = Held::cached(&self.store);
        loop {
            let core = self.core.read();
            core.check_whole()?;
            let mut slice = Slice::from(from);
            let walked = walk(&core, &mut slice, &nodes);
            if slice.next > from {
                // What was passed is not needed any more.
                nodes = Held::cached(&self.store);
            }
            from = slice.next;
            match walked {
                Ok(()) if slice.is_done() => return Ok(()),
                Ok(()) => {}
                Err(Fault::Miss(place)) => {
                    let _pin = core.state.segments.pin(place.addr);
                    drop(core);
                    nodes.load(&place)?;
                }
                Err(fault) => return Err(fault.into_error()),
            }
        }
    }

    /// Goes on with a walk over the map, as far as a bounded number of nodes; says whether there is more.
    pub(crate) fn walk_step(&self, walk: &mut MapWalk, visit: &mut dyn Visit) -> Result<bool> {
        let mut nodes = Held::cached(&self.store);
        let mut loads = 0;
        while loads < STEP_LOADS {
            let core = self.core.read();
            core.check_whole()?;
            let before = (walk.entries_from, walk.nodes_from);
            let walked = match walk.entries_from {
                Some(from) => core.walk_entries(from, walk, visit, &nodes),
                None => core.walk_nodes(walk, visit, &nodes),
            };
            if (walk.entries_from, walk.nodes_from) != before {
                nodes = Held::cached(&self.store);
            }
            match walked {
                Ok(true) => return Ok(false),
                Ok(false) => loads += 1,
                Err(Fault::Miss(place)) => {
                    let _pin = core.state.segments.pin(place.addr);
                    drop(core);
                    nodes.load(&place)?;
                    loads += 1;
                }
                Err(fault) => return Err(fault.into_error()),
            }
        }
        Ok(true)
    }
}

impl Core {
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
