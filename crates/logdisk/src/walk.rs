//! Walks over the map, one slice at a time. All code that reads more than a few nodes of the map
//! walks.
//!
//! Invariants:
//! 1. (walk 1) No lock is held while a walk reads a node, and that node's segment is pinned
//!    meanwhile. So the segment is not filled again.
//!
//! A walk keeps its place. If a node is not in memory, or the lock has been held long enough, the
//! walk continues from that place, whatever was written meanwhile. So it takes time in proportion
//! to what it visits, and other threads wait for one slice at most. It does not retain nodes that
//! it has passed. A thread of low priority gives way before each slice.
//!
//! A walk visits the live tree, each part in its state at the moment when the walk reaches it.
//! What a past version sees never changes. If the caller needs something else as it was at one
//! moment, the caller must keep it from changing. A root that is frozen at the start of the walk
//! would show the same content of a version. But it would keep in memory all nodes that were
//! changed since, and on the device all nodes that were released since.

use std::ops::ControlFlow;

use dendro_base::sync::BriefWriteGuard;
use dendro_base::{Timestamp, priority};
use dendro_disk::Result;
use dendro_format::{Key, NodePtr, Value};

use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::map::Nodes;
use crate::map::store::PinnedNodes;
use crate::state::slice::{SLICE_LEN, Slice};
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The number of nodes that one bounded step of a longer walk loads.
const STEP_LOADS: usize = 64;

/// A walk over the whole map, in bounded steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MapWalk {
    /// The first key whose entry has not been visited. It is `None` when entries are done and
    /// nodes are visited.
    entries_from: Option<Key>,
    nodes_from: Key,
}

impl MapWalk {
    pub(crate) const fn new() -> Self {
        Self { entries_from: Some(Key::MIN), nodes_from: Key::MIN }
    }

    /// The walk that continues at `point`.
    pub(crate) const fn at(point: WalkPoint) -> Self {
        match point {
            WalkPoint::Entries(key) => Self { entries_from: Some(key), nodes_from: Key::MIN },
            WalkPoint::Nodes(key) => Self { entries_from: None, nodes_from: key },
        }
    }

    /// Where the walk is.
    pub(crate) const fn point(&self) -> WalkPoint {
        match self.entries_from {
            Some(key) => WalkPoint::Entries(key),
            None => WalkPoint::Nodes(self.nodes_from),
        }
    }
}

/// A point of a walk over the map. Points are in the order in which a walk reaches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WalkPoint {
    /// Before the entry with this key.
    Entries(Key),
    /// Before the nodes that this key belongs under.
    Nodes(Key),
}

/// The engine, locked for a change.
pub(crate) struct Held<'v> {
    engine: BriefWriteGuard<'v, Engine>,
    holder: LockHolder,
    began: Timestamp,
}

impl Held<'_> {
    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

/// The visitor of [`Volume::walk_step`].
pub(crate) trait Visit {
    fn entry(&mut self, key: &Key, value: &Value);
    /// Visits a node on the device, with its level and a key under it. It may be called more than
    /// once with an inner node.
    fn node(&mut self, place: &NodePtr, level: u8, key: &Key);
}

impl Volume {
    /// Calls `step` with the map locked for reading until it breaks, and loads the nodes that it
    /// misses while the lock is released (walk 1). The walk begins at `place`, and `step` advances
    /// `place` over what it has visited. When `place` has advanced, the nodes that were loaded to
    /// reach it are released.
    #[inline]
    pub(crate) fn walk<P: Copy + PartialEq, T>(
        &self,
        place: &mut P,
        step: impl FnMut(&Engine, &mut P, &dyn Nodes) -> Outcome<ControlFlow<T>>,
    ) -> Result<T> {
        self.walk_with(&mut PinnedNodes::cached(self.store()), place, step)
    }

    /// As [`Self::walk`], with `nodes` that were loaded before or are to be retained.
    #[inline]
    pub(crate) fn walk_with<P: Copy + PartialEq, T>(
        &self,
        nodes: &mut PinnedNodes<'_>,
        place: &mut P,
        mut step: impl FnMut(&Engine, &mut P, &dyn Nodes) -> Outcome<ControlFlow<T>>,
    ) -> Result<T> {
        loop {
            priority::give_way();
            let engine = self.read();
            let before = *place;
            let stepped = step(&engine, place, nodes);
            if *place != before {
                nodes.pass_on();
            }
            match stepped {
                Ok(ControlFlow::Break(found)) => return Ok(found),
                Ok(ControlFlow::Continue(())) => {}
                Err(Fault::Miss(missed)) => {
                    let _pins = nodes.pins(&missed, engine.state().segments());
                    drop(engine);
                    nodes.load(&missed)?;
                }
                Err(Fault::Rearranged) => {
                    drop(engine);
                    self.settle()?;
                }
                Err(fault) => return Err(fault.into_error()),
            }
        }
    }

    /// As [`Self::walk`], for a walk that is short enough to start again when it misses a node.
    #[inline]
    pub(crate) fn look<T>(
        &self,
        mut look: impl FnMut(&Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        self.walk(&mut (), |engine, (), nodes| look(engine, nodes).map(ControlFlow::Break))
    }

    /// As [`Self::walk`], for a walk in slices of which each takes some time: the time is noted.
    pub(crate) fn walk_slices<P: Copy + PartialEq, T>(
        &self,
        place: &mut P,
        mut step: impl FnMut(&Engine, &mut P, &dyn Nodes) -> Outcome<ControlFlow<T>>,
    ) -> Result<T> {
        self.walk(place, |engine, place, nodes| {
            let began = engine.clock().now();
            let stepped = step(engine, place, nodes);
            self.holds().note(LockHolder::Walk, began, engine.clock().now());
            stepped
        })
    }

    /// Calls `change` with the lock held until it misses no node. An attempt that misses one must
    /// leave no trace ([`Engine::transact`]). `holder` says what the lock is held for.
    ///
    /// # Errors
    /// The error of reading a node or of `change`; that of [`Self::check_writable`] when the volume
    /// takes no changes, or no more: it may be shut down until the lock is held.
    pub(crate) fn change<T>(
        &self,
        holder: LockHolder,
        mut change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        let mut nodes = PinnedNodes::keeping(self.store());
        let (changed, held) = self.change_with(&mut nodes, holder, |engine, nodes| {
            self.check_writable(engine)?;
            change(engine, nodes)
        })?;
        self.end_hold(held);
        Ok(changed)
    }

    /// As [`Self::change`], with nodes that were loaded before, and also for the last checkpoint of
    /// a volume that was shut down. The lock is still held when this returns, and
    /// [`Self::end_hold`] must follow.
    ///
    /// # Errors
    /// The error of reading a node or of `change`; [`Error::Failed`] when the disk accepts no
    /// writes.
    ///
    /// [`Error::Failed`]: dendro_disk::Error::Failed
    pub(crate) fn change_with<T>(
        &self,
        nodes: &mut PinnedNodes<'_>,
        holder: LockHolder,
        mut change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<(T, Held<'_>)> {
        loop {
            priority::give_way();
            let mut engine = self.write();
            let began = engine.clock().now();
            if let Some(error) = self.failure() {
                return Err(error);
            }
            match change(&mut engine, nodes) {
                Ok(changed) => return Ok((changed, Held { engine, holder, began })),
                Err(fault) => {
                    self.holds().note(holder, began, engine.clock().now());
                    let pins = match &fault {
                        Fault::Miss(place) => Some(nodes.pins(place, engine.state().segments())),
                        _ => None,
                    };
                    drop(engine);
                    self.recover_from(fault, nodes)?;
                    drop(pins);
                }
            }
        }
    }

    /// Unlocks the engine, and notes how long it was locked.
    pub(crate) fn end_hold(&self, held: Held<'_>) {
        self.holds().note(held.holder, held.began, held.engine.clock().now());
        self.unlock(held.engine);
    }

    /// Loads the node that a change missed, or finishes what is in its way, so that the change can
    /// be tried again. The lock is not held.
    ///
    /// # Errors
    /// The error of reading the node, or the reason why the change cannot be tried again.
    pub(crate) fn recover_from(&self, fault: Fault, nodes: &PinnedNodes<'_>) -> Result<()> {
        match fault {
            Fault::Miss(place) => nodes.load(&place),
            Fault::Rearranged => self.settle(),
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
            // Most walks have one slice, and are too short to be timed.
            let began = (*next != from).then(|| engine.clock().now());
            let mut slice = Slice::from(*next);
            let walked = walk(engine, &mut slice, nodes);
            *next = slice.next();
            if let Some(began) = began {
                self.holds().note(LockHolder::Walk, began, engine.clock().now());
            }
            walked?;
            Ok(if slice.is_done() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    /// Continues a walk over the map by a bounded number of nodes. Returns whether there is more.
    pub(crate) fn walk_step(&self, walk: &mut MapWalk, visit: &mut dyn Visit) -> Result<bool> {
        let mut loads_left = STEP_LOADS;
        self.walk_slices(walk, |engine, walk, nodes| {
            if loads_left == 0 {
                return Ok(ControlFlow::Break(true));
            }
            loads_left -= 1;
            let is_done = engine.walk_slice(walk, visit, nodes)?;
            Ok(if is_done { ControlFlow::Break(false) } else { ControlFlow::Continue(()) })
        })
    }

    /// Continues a walk over the map by one slice, for which few nodes are loaded. A node that
    /// cannot be read is passed over with all that lies under it, and is noted as damage. Returns
    /// whether there is more.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Corrupted`] when a node lies where it may not.
    pub(crate) fn walk_over_damage(
        &self,
        walk: &mut MapWalk,
        visit: &mut dyn Visit,
    ) -> Result<bool> {
        let nodes = PinnedNodes::one_by_one(self.store());
        let start = walk.point();
        let mut loads_left = STEP_LOADS;
        loop {
            priority::give_way();
            let engine = self.read();
            let began = engine.clock().now();
            let walked = engine.walk_slice(walk, visit, &nodes);
            self.holds().note(LockHolder::Walk, began, engine.clock().now());
            match walked {
                Ok(is_done) => return Ok(!is_done),
                // What was loaded stays in memory until this returns. Where nothing was visited
                // yet, nodes were passed over, which would be met again.
                Err(Fault::Miss(_)) if loads_left == 0 && walk.point() != start => {
                    return Ok(true);
                }
                Err(Fault::Miss(missed)) => {
                    loads_left = loads_left.saturating_sub(1);
                    // Whatever of the tree is not in memory is the same until the lock is
                    // released.
                    let level = engine.level_of(&missed, walk, &nodes);
                    let _pin = engine.state().segments().pin(missed.addr);
                    drop(engine);
                    if nodes.load(&missed).is_err() {
                        nodes.pass_over(missed, level);
                    }
                }
                Err(fault) => return Err(fault.into_error()),
            }
        }
    }
}

impl Engine {
    /// Visits a slice of the entries or of the nodes. Returns whether the walk has ended.
    fn walk_slice(
        &self,
        walk: &mut MapWalk,
        visit: &mut dyn Visit,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        match walk.entries_from {
            Some(from) => self.walk_entries(from, walk, visit, nodes),
            None => self.walk_nodes(walk, visit, nodes),
        }
    }

    /// The level of the node at `place`, which `walk` missed.
    fn level_of(&self, place: &NodePtr, walk: &MapWalk, nodes: &dyn Nodes) -> u8 {
        let (WalkPoint::Entries(from) | WalkPoint::Nodes(from)) = walk.point();
        let mut found = 0;
        // The search ends at the missed node at the latest, which it sees before it misses it.
        let _ = self.state().map().visit_places(&from, nodes, &mut |seen, level, _| {
            if seen == place {
                found = level;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        found
    }

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
        self.state().map().visit(&from, &end, nodes, &mut |key, value| {
            walk.entries_from = Some(*key);
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            visit.entry(key, value);
            // An entry that was visited is not visited again.
            walk.entries_from = Some(Key { epoch: key.epoch.saturating_add(1), ..*key });
            ControlFlow::Continue(())
        })?;
        if left > 0 {
            walk.entries_from = None;
        }
        Ok(false)
    }

    /// Visits a slice of the nodes. Returns whether these were the last.
    fn walk_nodes(
        &self,
        walk: &mut MapWalk,
        visit: &mut dyn Visit,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let mut left = SLICE_LEN;
        let from = walk.nodes_from;
        self.state().map().visit_places(&from, nodes, &mut |place, level, key| {
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

#[cfg(test)]
mod tests {
    use dendro_base::ManualClock;
    use dendro_base::sync::Arc;
    use dendro_device::sim::SimDevice;
    use dendro_disk::{Aru, LogicalDisk, View};
    use dendro_format::Space;

    use super::*;
    use crate::state::item::space_end;
    use crate::testing::make_list;
    use crate::{FormatOptions, LogDisk, OpenOptions, format};

    #[test]
    fn a_look_at_leaves_that_are_not_in_memory_begins_again_few_times_and_reads_none_in_vain() {
        const COUNT: u64 = 100_000;
        let device = Arc::new(SimDevice::new(64 << 20, 1));
        let (shared, clock) = (Arc::clone(&device) as _, Arc::new(ManualClock::default()) as _);
        format(&shared, &FormatOptions::default(), &clock).unwrap();
        let options = || OpenOptions { cache_size_bytes: 1 << 20, ..OpenOptions::default() };
        let open = || LogDisk::open(Arc::clone(&shared), options(), Arc::clone(&clock)).unwrap();
        let disk = open();
        let list = make_list(&disk);
        for first in (0..COUNT).step_by(1000) {
            let mut aru = Aru::new(View::HEAD);
            (first..first + 1000).for_each(|index| {
                aru.put_record(list, index, &index.to_le_bytes()[..]);
            });
            disk.commit(aru).unwrap();
        }
        disk.checkpoint().unwrap();
        drop(disk);

        let disk = open();
        let look = |index: u64, max: u64| {
            let (from, to) =
                (Key::first(list.0, Space::Records, index), space_end(list.0, Space::Records));
            let (mut attempts, mut seen) = (0, 0);
            let reads_before = device.counts().reads;
            let looked = disk.volume().look(|engine, nodes| {
                (attempts, seen) = (attempts + 1, 0);
                engine.state().map().visit(&from, &to, nodes, &mut |_, _| {
                    seen += 1;
                    if seen < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })
            });
            looked.unwrap();
            (seen, attempts, device.counts().reads - reads_before)
        };
        let (seen, attempts, reads) = look(COUNT / 3, 1);
        assert_eq!((seen, attempts), (1, reads + 1), "each read is of a node that was missed");
        let (seen, attempts, reads) = look(0, COUNT);
        assert_eq!(seen, COUNT);
        assert!(reads > 100 && attempts < reads / 5, "{attempts} attempts, {reads} reads");
    }
}
