//! What changes of the tree must account for, and how nodes are prepared to be changed.

use std::mem;

use dendro_format::{ChildPtr, NodePtr};

use super::bounds::Bounds;
use super::charges::Charges;
use super::nodes::Nodes;
use crate::fault::Outcome;
use crate::map::node::{Child, Node, Resident, SharedNode, Weight};

/// What changes of the tree must account for.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) released: Vec<NodePtr>,
    /// What the dirty nodes take.
    pub(super) dirty: Weight,
    /// The part of `dirty` that the checkpoint under way does not write, or not in its current
    /// state.
    pub(super) due: Weight,
    /// The memory of nodes that only the checkpoint under way uses.
    pub(super) superseded_bytes: u64,
    /// Whether a checkpoint is under way.
    pub(super) is_frozen: bool,
    /// What clients use of their quotas.
    pub(super) charges: Charges,
}

impl Ledger {
    pub(super) fn grow(&mut self, weight: Weight) {
        self.dirty += weight;
        self.due += weight;
    }

    /// Subtracts what an unshared node, which is counted in `due`, takes less.
    pub(super) fn shrink(&mut self, weight: Weight) {
        self.dirty -= weight;
        self.due -= weight;
    }

    /// Replaces the weight `before` by `after`.
    pub(super) fn exchange(&mut self, [before, after]: [Weight; 2]) {
        self.grow(after);
        self.shrink(before);
    }

    /// Notes that a checkpoint retains the tree as it is.
    pub(super) fn begin_checkpoint(&mut self) {
        (self.due, self.is_frozen) = (Weight::default(), true);
    }

    /// Notes that what the checkpoint wrote is clean: the rest is dirty.
    pub(super) const fn end_checkpoint(&mut self) {
        (self.dirty, self.is_frozen, self.superseded_bytes) = (self.due, false, 0);
    }

    pub(super) fn drop_dirty(&mut self, resident: &SharedNode) {
        let weight = resident.node.weight();
        let is_shared = SharedNode::strong_count(resident) > 1;
        self.dirty -= weight;
        if !(self.is_frozen && is_shared) {
            self.due -= weight;
        }
        if is_shared {
            self.superseded_bytes += weight.memory_bytes;
            resident.supersede();
        }
    }

    /// The node, to be changed. If a checkpoint retains it, a copy takes its place (map invariant
    /// 2).
    #[inline]
    pub(super) fn unshare<'a>(&mut self, resident: &'a mut SharedNode) -> &'a mut Node {
        if !SharedNode::is_unique(resident) {
            self.supersede(resident);
        }
        &mut SharedNode::get_mut(resident).expect("this is the only reference").node
    }

    /// Puts a copy in the place of a node that a checkpoint retains.
    #[cold]
    fn supersede(&mut self, resident: &mut SharedNode) {
        let weight = resident.node.weight();
        self.due += weight;
        self.superseded_bytes += weight.memory_bytes;
        let copy = Resident::new(resident.node.clone());
        mem::replace(resident, copy).supersede();
    }

    /// The node of `child`, which lies at `bounds`, to be changed.
    #[inline]
    pub(super) fn make_mut<'a>(
        &mut self,
        child: &'a mut Child,
        bounds: Bounds<'_>,
        nodes: &dyn Nodes,
    ) -> Outcome<&'a mut Node> {
        if let Child::Clean(ChildPtr { place, .. }) = child {
            *child = Child::Dirty(self.take_clean(*place, bounds, nodes)?);
        }
        let Child::Dirty(resident) = child else { unreachable!("it was just made dirty") };
        Ok(self.unshare(resident))
    }

    /// The node at `place`, which lies at `bounds`, as a dirty one.
    #[cold]
    fn take_clean(
        &mut self,
        place: NodePtr,
        bounds: Bounds<'_>,
        nodes: &dyn Nodes,
    ) -> Outcome<SharedNode> {
        let resident = nodes.take(&place)?;
        bounds.check(&place, &resident.node)?;
        let node = SharedNode::try_unwrap(resident)
            .map_or_else(|shared| shared.node.clone(), |alone| alone.node);
        self.grow(node.weight());
        self.released.push(place);
        Ok(Resident::new(node))
    }
}
