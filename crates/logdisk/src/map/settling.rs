//! How the nodes that a checkpoint wrote become clean in the live tree, a slice at a time.

use dendro_format::Key;

use super::Map;
use crate::map::node::{Child, Node, SharedNode, Weight};
use crate::state::slice::SLICE_LEN;

impl Map {
    /// Makes the nodes clean that a durable checkpoint wrote and the live tree still uses: those
    /// for keys from `from` on, as many as a slice holds. Returns the key where the next slice
    /// begins, or nothing when the checkpoint is over. The tree may change between slices.
    pub(crate) fn settle(&mut self, from: &Key) -> Option<Key> {
        let mut left = SLICE_LEN;
        let next = self.root.as_mut().and_then(|root| settle_under(root, from, &mut left));
        if next.is_none() {
            debug_assert_eq!(self.root.as_ref().map_or(Weight::default(), dirty), self.ledger.due);
            self.ledger.end_checkpoint();
        }
        next
    }
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
