//! How entries are removed from the tree, and how nodes that become small are merged.
//!
//! These are two steps, because each entry that a change removed must find its leaf again while the
//! change can be undone (map invariant 4). So removing an entry only reports that its leaf has
//! become small. The nodes on the path to it are merged when the change is settled.

use dendro_format::{ChildPtr, Key, Value};

use super::accounting::Ledger;
use super::bounds::Bounds;
use super::descent::{child_mut, look_under};
use super::nodes::Nodes;
use crate::fault::Outcome;
use crate::map::node::{
    Child, FANOUT, FANOUT_MIN, Inner, LEAF_LEN_BYTES, LEAF_MIN_LEN_BYTES, Leaf, Node, Resident,
    SharedNode, Weight,
};

/// An entry that was removed, and whether its leaf has become small.
pub(super) type Removed = Option<(Value, bool)>;

/// Removes the entry under `key`, if there is one. Unless it is known to exist, it is searched for
/// first, so that no node is made dirty without need.
pub(super) fn remove_under(
    child: &mut Child,
    bounds: Bounds<'_>,
    key: &Key,
    nodes: &dyn Nodes,
    ledger: &mut Ledger,
    mut is_known: bool,
) -> Outcome<Removed> {
    if !is_known && !child.is_own() {
        if look_under(child, bounds, key, nodes, |_| (), |value| value.is_none())? {
            return Ok(None);
        }
        is_known = true;
    }
    match ledger.make_mut(child, bounds, nodes)? {
        Node::Leaf(leaf) => {
            let Ok(at) = leaf.position(key) else { return Ok(None) };
            let old = leaf.remove(at);
            ledger.shrink(Weight::of_entry(&old));
            Ok(Some((old, is_small(leaf))))
        }
        Node::Inner(inner) => {
            let at = inner.position(key);
            let (below, bounds) = child_mut(inner, at, bounds);
            remove_under(below, bounds, key, nodes, ledger, is_known)
        }
    }
}

/// See [`super::Map::take_from_leaf`].
pub(super) fn take_under(
    child: &mut Child,
    bounds: Bounds<'_>,
    from: &Key,
    to: &Key,
    nodes: &dyn Nodes,
    ledger: &mut Ledger,
) -> Outcome<Option<Vec<(Key, Value)>>> {
    match ledger.make_mut(child, bounds, nodes)? {
        Node::Leaf(leaf) => {
            if bounds.end().is_some_and(|end| end.is_before(to)) {
                return Ok(None);
            }
            let [start, end] = [from, to].map(|key| leaf.position(key).unwrap_or_else(|at| at));
            let (taken, weight) = leaf.take(start..end);
            ledger.shrink(weight);
            Ok(Some(taken))
        }
        Node::Inner(inner) => {
            let at = inner.position(from);
            let (below, bounds) = child_mut(inner, at, bounds);
            take_under(below, bounds, from, to, nodes, ledger)
        }
    }
}

fn is_small(leaf: &Leaf) -> bool {
    leaf.len_bytes() < LEAF_MIN_LEN_BYTES
}

/// Merges the nodes on the path to `key` that have become small, from the leaf up. Changed nodes
/// are dirty, so nothing below a clean node has changed (map invariant 1).
pub(super) fn shrink_under(child: &mut Child, key: &Key, nodes: &dyn Nodes, ledger: &mut Ledger) {
    let Child::Dirty(resident) = child else { return };
    if let Node::Inner(_) = resident.node
        && let Node::Inner(inner) = ledger.unshare(resident)
    {
        let at = inner.position(key);
        shrink_under(&mut inner.entries[at].1, key, nodes, ledger);
        shrink_child(inner, at, nodes, ledger);
    }
}

/// Drops the child at `at` if it is empty, or merges it with a neighbour if both are small. A
/// neighbour that is not in memory is left alone, because I/O here costs more than a small node.
fn shrink_child(inner: &mut Inner, at: usize, nodes: &dyn Nodes, ledger: &mut Ledger) {
    let Child::Dirty(child) = &inner.entries[at].1 else { return };
    if child.node.is_empty() {
        ledger.drop_dirty(child);
        let (first, _) = inner.entries.remove(at);
        ledger.shrink(Weight::OF_CHILD);
        // Keys that belonged under the removed child now belong under its neighbour. The first
        // child must state that, or a merge of this node would hide these keys.
        if let (0, Some(next)) = (at, inner.entries.first_mut()) {
            next.0 = first;
        }
        return;
    }
    let is_small = match &child.node {
        Node::Leaf(leaf) => is_small(leaf),
        Node::Inner(child) => child.entries.len() < FANOUT_MIN,
    };
    if !is_small || inner.entries.len() < 2 {
        return;
    }
    let left = at.saturating_sub(1);
    let neighbour = if at == 0 { 1 } else { left };
    // The reference to a clean neighbour keeps it in memory until the merge is done.
    let clean = match &inner.entries[neighbour].1 {
        Child::Dirty(_) => None,
        Child::Clean(child) => match nodes.node_if_cached(&child.place) {
            Some(resident) if Bounds::within(inner, neighbour).fits(&resident.node) => {
                Some(resident)
            }
            _ => return,
        },
    };
    if fits_with(child, clean.as_ref(), &inner.entries[neighbour].1) {
        if let (Some(clean), Child::Clean(ChildPtr { place, .. })) =
            (&clean, &inner.entries[neighbour].1)
        {
            ledger.released.push(*place);
            ledger.grow(clean.node.weight());
            inner.entries[neighbour].1 = Child::Dirty(Resident::new(clean.node.clone()));
        }
        let (_, right) = inner.entries.remove(left + 1);
        ledger.shrink(Weight::OF_CHILD);
        merge(&mut inner.entries[left].1, &right, ledger);
    }
}

/// Whether a small node and its neighbour together make a node that is not nearly full.
fn fits_with(child: &Resident, clean: Option<&SharedNode>, neighbour: &Child) -> bool {
    let neighbour = match (clean, neighbour) {
        (Some(resident), _) | (None, Child::Dirty(resident)) => &resident.node,
        (None, Child::Clean(_)) => return false,
    };
    match (&child.node, neighbour) {
        (Node::Leaf(a), Node::Leaf(b)) => a.len_bytes() + b.len_bytes() <= LEAF_LEN_BYTES * 3 / 4,
        (Node::Inner(a), Node::Inner(b)) => a.entries.len() + b.entries.len() <= FANOUT * 3 / 4,
        _ => false,
    }
}

/// Appends `right` to `left`; both are dirty and of one level.
fn merge(left: &mut Child, right: &Child, ledger: &mut Ledger) {
    let (Child::Dirty(target), Child::Dirty(source)) = (&mut *left, right) else {
        unreachable!("both were made dirty")
    };
    let mut added = source.node.weight();
    added -= Weight::OF_NODE;
    ledger.drop_dirty(source);
    match (ledger.unshare(target), &source.node) {
        (Node::Leaf(target), Node::Leaf(source)) => target.append(source),
        (Node::Inner(target), Node::Inner(source)) => {
            target.entries.extend_from_slice(&source.entries)
        }
        _ => unreachable!("neighbours are of one level"),
    }
    ledger.grow(added);
}
