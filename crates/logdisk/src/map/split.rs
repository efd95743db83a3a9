//! Nodes that have become too long are split, from the leaf up.

use dendro_format::Key;

use super::accounting::Ledger;
use super::bounds::Bounds;
use super::descent::child_mut;
use super::nodes::Nodes;
use crate::fault::Outcome;
use crate::map::node::{Child, FANOUT, Leaf, Node, Resident, Weight};

/// A node that was split off, with its first key; none if no node was split.
pub(super) type Split = Option<(Key, Child)>;

/// Splits the leaf that `key` belongs in, which was changed at entry `changed_at`, and the nodes
/// above it that become too long.
pub(super) fn split_under(
    child: &mut Child,
    bounds: Bounds<'_>,
    key: &Key,
    changed_at: usize,
    nodes: &dyn Nodes,
    ledger: &mut Ledger,
) -> Outcome<Split> {
    match ledger.make_mut(child, bounds, nodes)? {
        Node::Leaf(leaf) => {
            let split = split_leaf(leaf, changed_at);
            if split.is_some() {
                ledger.grow(Weight::OF_NODE);
            }
            Ok(split)
        }
        Node::Inner(inner) => {
            let at = inner.position(key);
            let (below, bounds) = child_mut(inner, at, bounds);
            let Some(right) = split_under(below, bounds, key, changed_at, nodes, ledger)? else {
                return Ok(None);
            };
            inner.entries.insert(at + 1, right);
            ledger.grow(Weight::OF_CHILD);
            if inner.entries.len() <= FANOUT {
                return Ok(None);
            }
            let upper = inner.split();
            let first = upper.entries[0].0;
            ledger.grow(Weight::OF_NODE);
            Ok(Some((first, Child::Dirty(Resident::new(Node::Inner(upper))))))
        }
    }
}

fn split_leaf(leaf: &mut Leaf, changed_at: usize) -> Split {
    if !leaf.is_too_long() {
        return None;
    }
    let upper = leaf.split(changed_at);
    let first = upper.entries()[0].0;
    Some((first, Child::Dirty(Resident::new(Node::Leaf(upper)))))
}
