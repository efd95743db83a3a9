//! What changes of the tree leave to account for, and how nodes are made ready to be changed.

use std::mem;

use dendro_base::sync::Arc;
use dendro_format::{ChildPtr, NodePtr};

use super::{Bounds, Nodes};
use crate::fault::Outcome;
use crate::map::node::{Child, Node, Resident, Weight};

/// What changes of the tree leave to account for.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) released: Vec<NodePtr>,
    /// What the dirty nodes take.
    pub(super) dirty: Weight,
    /// Of these, those that the checkpoint under path does not write, or not as they are by now.
    pub(super) due: Weight,
    /// What nodes take that the checkpoint under path holds alone.
    pub(super) superseded_bytes: u64,
    /// Whether a checkpoint is under path.
    pub(super) is_frozen: bool,
}

impl Ledger {
    pub(super) fn grow(&mut self, weight: Weight) {
        self.dirty += weight;
        self.due += weight;
    }

    /// A node that was unshared, and so is due, takes less.
    pub(super) fn shrink(&mut self, weight: Weight) {
        self.dirty -= weight;
        self.due -= weight;
    }

    /// What took `before` takes `after`.
    pub(super) fn exchange(&mut self, [before, after]: [Weight; 2]) {
        self.grow(after);
        self.shrink(before);
    }

    pub(super) fn drop_dirty(&mut self, resident: &Arc<Resident>) {
        let weight = resident.node.weight();
        let is_shared = Arc::strong_count(resident) > 1;
        self.dirty -= weight;
        if !(self.is_frozen && is_shared) {
            self.due -= weight;
        }
        if is_shared {
            self.superseded_bytes += weight.memory_bytes;
            resident.supersede();
        }
    }

    /// The node, to be changed: a copy if a checkpoint holds it (invariant 2).
    pub(super) fn unshare<'a>(&mut self, resident: &'a mut Arc<Resident>) -> &'a mut Node {
        // To look at the count costs less than to lock it. Only who has the live tree makes more of
        // them.
        if Arc::strong_count(resident) > 1 {
            let weight = resident.node.weight();
            self.due += weight;
            self.superseded_bytes += weight.memory_bytes;
            let copy = Resident::new(resident.node.clone());
            mem::replace(resident, copy).supersede();
        }
        &mut Arc::get_mut(resident).expect("nobody else holds it").node
    }

    /// The node of `child`, which lies at `bounds`, to be changed.
    pub(super) fn make_mut<'a>(
        &mut self,
        child: &'a mut Child,
        bounds: Bounds<'_>,
        nodes: &dyn Nodes,
    ) -> Outcome<&'a mut Node> {
        match child {
            Child::Clean(ChildPtr { place, .. }) => {
                let resident = nodes.take(place)?;
                bounds.check(place, &resident.node)?;
                let node = Arc::try_unwrap(resident)
                    .map_or_else(|shared| shared.node.clone(), |alone| alone.node);
                self.grow(node.weight());
                self.released.push(*place);
                *child = Child::Dirty(Resident::new(node));
            }
            Child::Dirty(_) => {}
        }
        let Child::Dirty(resident) = child else { unreachable!("it was just made dirty") };
        Ok(self.unshare(resident))
    }
}
