//! Settling: what a durable checkpoint wrote becomes clean.
//!
//! A client waits at most for a slice of the nodes, however many there are: each slice locks the
//! engine for itself. What is expensive, such as giving up the memory of superseded nodes, is done
//! without the lock.

use dendro_base::priority;
use dendro_format::{ChildPtr, Key};

use super::{CheckpointJob, Checkpointer, GIVING_WAY_LEN};
use crate::engine::Engine;
use crate::log::segments::Generation;
use crate::map::node::{Node, Resident, SharedNode};
use crate::volume::holds::LockHolder;

/// The number of nodes that are settled while the lock is held once: some tens of microseconds.
const SLICE_LEN: usize = 256;

impl Checkpointer {
    pub(super) fn settle(&self, job: CheckpointJob) {
        let CheckpointJob { checkpoint, mut order, pending, is_held, .. } = job;
        let log_clock = checkpoint.log_clock;
        // A node that becomes clean is found in the cache.
        for slice in order.chunks(GIVING_WAY_LEN) {
            slice.iter().for_each(|resident| self.cache_written(resident));
            priority::give_way();
        }
        for slice in order.chunks(SLICE_LEN) {
            self.volume.hold(LockHolder::Checkpoint, |engine| {
                for resident in slice {
                    engine
                        .state_mut()
                        .segments_mut()
                        .node_added(&written(resident).place, log_clock);
                }
            });
            priority::give_way();
        }
        let mut next = Some(Key::MIN);
        while let Some(from) = next {
            let settle = |engine: &mut Engine| engine.state_mut().settle_map(&from, SLICE_LEN);
            next = self.volume.hold(LockHolder::Checkpoint, settle);
            priority::give_way();
        }
        // No more of the nodes can be superseded: the live tree has none of them.
        for slice in order.chunks(SLICE_LEN) {
            self.volume.hold(LockHolder::Checkpoint, |engine| {
                for resident in slice.iter().filter(|resident| resident.is_superseded()) {
                    engine
                        .state_mut()
                        .segments_mut()
                        .node_freed(&written(resident).place, log_clock);
                }
            });
            priority::give_way();
        }
        while !order.is_empty() {
            order.truncate(order.len().saturating_sub(GIVING_WAY_LEN));
            priority::give_way();
        }
        self.free_segments(pending, is_held);
        self.give_back_some();
    }

    /// Puts a node that was written and has not been superseded into the cache.
    fn cache_written(&self, resident: &SharedNode) {
        if resident.is_superseded() {
            return;
        }
        let cached = match resident.node() {
            Node::Leaf(_) => SharedNode::clone(resident),
            Node::Inner(inner) => Resident::new(Node::Inner(inner.with_places())),
        };
        self.volume.store().keep(written(resident).place, cached);
    }

    /// Makes the segments clean that were empty at the freeze.
    fn free_segments(&self, pending: Vec<Generation>, is_held: bool) {
        let mut engine = self.volume.write();
        self.accounts.map_stream().set_left(0);
        engine.state_mut().segments_mut().note_settled();
        self.volume.store().leave_room(engine.beside_clean_nodes());
        let segments = engine.state().segments();
        // A segment that a thread still reads stays pending (segments 2), and so does one that a
        // held state needs (segments 3); the next checkpoint finds it again. Others may have been
        // filled again already.
        let may_free = is_held || !segments.is_held();
        let is_free = |generation: &Generation| {
            may_free
                && segments.is_still_pending(*generation)
                && !segments.is_pinned(generation.segment())
        };
        let free = pending.into_iter().filter(is_free).map(|generation| generation.segment());
        let reusable = free.collect::<Vec<_>>();
        engine.withdraw_from_reuse(&reusable);
        for segment in reusable {
            engine.state_mut().segments_mut().set_clean(segment);
        }
    }
}

/// Where the checkpoint wrote a node.
fn written(resident: &SharedNode) -> ChildPtr {
    resident.written().expect("the checkpoint wrote it")
}
