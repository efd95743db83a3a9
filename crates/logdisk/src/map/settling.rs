//! What a checkpoint writes of the tree, and how that becomes clean in the live tree, a slice at a
//! time.

use dendro_format::Key;

use super::Map;
use crate::map::node::{Child, Node, SharedNode, Weight};

impl Map {
    /// Makes the nodes clean that a durable checkpoint wrote and the live tree still uses: those
    /// for keys from `from` on, until `left` children of dirty nodes were looked at. Returns the
    /// key where the next slice begins, or nothing when the checkpoint is over. The tree may change
    /// between slices.
    pub(crate) fn settle(&mut self, from: &Key, mut left: usize) -> Option<Key> {
        let next = self.root.as_mut().and_then(|root| settle_under(root, from, &mut left));
        if next.is_none() {
            debug_assert_eq!(self.root.as_ref().map_or(Weight::default(), dirty), self.ledger.due);
            self.ledger.end_checkpoint();
        }
        next
    }
}

/// Lists the dirty nodes under `child`, children before parents.
pub(crate) fn collect_dirty(child: &Child, order: &mut Vec<SharedNode>) {
    let Child::Dirty(resident) = child else { return };
    if let Node::Inner(inner) = &resident.node {
        for (_, child) in &inner.entries {
            collect_dirty(child, order);
        }
    }
    order.push(SharedNode::clone(resident));
}

/// Makes the written nodes under `child` clean. Returns a key where `left`, the number of children
/// that may be looked at, was used up.
fn settle_under(child: &mut Child, from: &Key, left: &mut usize) -> Option<Key> {
    let Child::Dirty(resident) = child else { return None };
    if let Some(written) = resident.written() {
        // None of the nodes below has changed since, or this one would be another (map invariant
        // 1). So all of them were written and become clean with it.
        *child = Child::Clean(written);
        return None;
    }
    let node = &mut SharedNode::get_mut(resident).expect("no checkpoint retains it").node;
    let Node::Inner(inner) = node else { return None };
    for at in inner.position(from)..inner.entries.len() {
        let (first, child) = &mut inner.entries[at];
        if *left == 0 {
            return Some((*first).max(*from));
        }
        *left -= 1;
        let next = settle_under(child, from, left);
        if next.is_some() {
            return next;
        }
    }
    None
}

/// What the dirty nodes under `child` take.
fn dirty(child: &Child) -> Weight {
    let Child::Dirty(resident) = child else { return Weight::default() };
    let mut weight = resident.node.weight();
    if let Node::Inner(inner) = &resident.node {
        weight += inner.entries.iter().map(|(_, child)| dirty(child)).sum();
    }
    weight
}
