//! Descents: how an entry, or all entries of a range, are found below a node.

use std::ops::ControlFlow;

use dendro_format::{ChildPtr, Key, NodePtr, Value};

use super::bounds::Bounds;
use super::nodes::Nodes;
use super::path_cache::Path;
use crate::fault::{Fault, Outcome};
use crate::map::node::{Child, Inner, Leaf, Node, Resident, SharedNode};

/// The value under `key`.
fn find<'a>(leaf: &'a Leaf, key: &Key) -> Option<&'a Value> {
    leaf.position(key).ok().map(|at| &leaf.entries()[at].1)
}

/// The child of `inner` at `at`, to be changed, and where it lies if `inner` lies at `bounds`.
#[inline]
pub(super) fn child_mut<'a>(
    inner: &'a mut Inner,
    at: usize,
    bounds: Bounds<'a>,
) -> (&'a mut Child, Bounds<'a>) {
    let level = inner.level.saturating_sub(1);
    let (upto, behind) = inner.entries.split_at_mut(at + 1);
    let (first, child) = &mut upto[at];
    let end = behind.first().map(|(first, _)| first);
    (child, Bounds::new(level, first, end.or(bounds.end())))
}

/// The node at `place`; the parent states that it lies at `bounds`.
#[inline]
pub(super) fn node_at(
    place: &NodePtr,
    bounds: Bounds<'_>,
    nodes: &dyn Nodes,
) -> Outcome<SharedNode> {
    let resident = nodes.node(place)?;
    bounds.check(place, &resident.node)?;
    Ok(resident)
}

/// Calls `look` with the value under `key`, and `note` with the path to it if all nodes on the path
/// are dirty.
#[inline]
pub(super) fn look_under<'a, T>(
    mut child: &'a Child,
    mut bounds: Bounds<'a>,
    key: &Key,
    nodes: &dyn Nodes,
    note: impl FnOnce(Path),
    look: impl FnOnce(Option<&Value>) -> T,
) -> Outcome<T> {
    let mut path = Path::default();
    // The dirty top of the tree is borrowed; the nodes below it come from the cache.
    let place = loop {
        match child {
            Child::Clean(child) => break child.place,
            Child::Dirty(resident) => match &resident.node {
                Node::Leaf(leaf) => {
                    let Ok(at) = leaf.position(key) else { return Ok(look(None)) };
                    note(path.then(at));
                    return Ok(look(Some(&leaf.entries()[at].1)));
                }
                Node::Inner(inner) => {
                    let at = inner.position(key);
                    path = path.then(at);
                    bounds = bounds.below(inner, at);
                    child = &inner.entries[at].1;
                }
            },
        }
    };
    let mut resident = node_at(&place, bounds, nodes)?;
    loop {
        let next = match &resident.node {
            Node::Leaf(leaf) => return Ok(look(find(leaf, key))),
            Node::Inner(inner) => {
                let at = inner.position(key);
                match &inner.entries[at].1 {
                    Child::Clean(child) => node_at(&child.place, Bounds::within(inner, at), nodes)?,
                    Child::Dirty(child) => SharedNode::clone(child),
                }
            }
        };
        resident = next;
    }
}

/// The node of `child` at `bounds`. If it is clean, `loaded` keeps it in memory.
fn resident_of<'a>(
    child: &'a Child,
    bounds: Bounds<'_>,
    nodes: &dyn Nodes,
    loaded: &'a mut Option<SharedNode>,
) -> Outcome<&'a Resident> {
    match child {
        Child::Dirty(resident) => Ok(resident),
        Child::Clean(child) => Ok(loaded.insert(node_at(&child.place, bounds, nodes)?)),
    }
}

/// Calls `visit` with the entries from `from` to `to`, the last first, until it breaks.
pub(super) fn visit_child_back(
    child: &Child,
    bounds: Bounds<'_>,
    from: &Key,
    to: &Key,
    nodes: &dyn Nodes,
    visit: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
) -> Outcome<ControlFlow<()>> {
    let mut loaded = None;
    match &resident_of(child, bounds, nodes, &mut loaded)?.node {
        Node::Leaf(leaf) => {
            let end = leaf.position(to).map_or_else(|at| at, |at| at + 1);
            for (key, value) in leaf.entries()[..end].iter().rev() {
                if key < from || visit(key, value).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Node::Inner(inner) => {
            for at in (0..=inner.position(to)).rev() {
                let (first, child) = &inner.entries[at];
                let below = bounds.below(inner, at);
                if visit_child_back(child, below, from, to, nodes, visit)?.is_break()
                    || first <= from
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Calls `visit` with the entries from `from` to before `to`, until it breaks. Nodes without
/// entries newer than `epoch` are passed over.
pub(super) fn visit_child(
    child: &Child,
    bounds: Bounds<'_>,
    (from, to, epoch): (&Key, &Key, u64),
    nodes: &dyn Nodes,
    visit: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
) -> Outcome<ControlFlow<()>> {
    let mut loaded = None;
    match &resident_of(child, bounds, nodes, &mut loaded)?.node {
        Node::Leaf(leaf) => {
            let start = leaf.position(from).unwrap_or_else(|at| at);
            for (key, value) in &leaf.entries()[start..] {
                if key >= to || visit(key, value).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Node::Inner(inner) => {
            for at in inner.position(from)..inner.entries.len() {
                let (first, child) = &inner.entries[at];
                if first >= to {
                    return Ok(ControlFlow::Break(()));
                }
                if matches!(child, Child::Clean(child) if child.newest_epoch <= epoch) {
                    continue;
                }
                let below = bounds.below(inner, at);
                let visited = visit_child(child, below, (from, to, epoch), nodes, visit);
                if matches!(visited, Err(Fault::Miss(_))) && inner.level == 1 {
                    nodes.note_following(&mut leaves_behind(inner, at, to, epoch));
                }
                if visited?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The clean leaves under `inner` behind the one at `at`, as far as they have keys before `to` and
/// entries newer than `epoch`.
fn leaves_behind(inner: &Inner, at: usize, to: &Key, epoch: u64) -> impl Iterator<Item = NodePtr> {
    let behind = inner.entries[at + 1..].iter().take_while(move |(first, _)| first < to);
    behind.filter_map(move |(_, child)| match child {
        Child::Clean(child) if child.newest_epoch > epoch => Some(child.place),
        _ => None,
    })
}

/// Calls `visit` with the places of clean nodes from `from` on, until it breaks.
pub(super) fn visit_places_under(
    child: &Child,
    bounds: Bounds<'_>,
    first: &Key,
    from: &Key,
    nodes: &dyn Nodes,
    visit: &mut dyn FnMut(&NodePtr, u8, &Key) -> ControlFlow<()>,
) -> Outcome<ControlFlow<()>> {
    if let Child::Clean(ChildPtr { place, .. }) = child {
        let flow = visit(place, bounds.level, first);
        if flow.is_break() || bounds.level == 0 {
            return Ok(flow);
        }
    }
    let mut loaded = None;
    if let Node::Inner(inner) = &resident_of(child, bounds, nodes, &mut loaded)?.node {
        for at in inner.position(from)..inner.entries.len() {
            let ((first, child), below) = (&inner.entries[at], bounds.below(inner, at));
            if visit_places_under(child, below, first, from, nodes, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}
