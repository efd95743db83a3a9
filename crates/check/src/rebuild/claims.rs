//! Which node fills which part of the gaps.
//!
//! The nodes that the sweep found go by age, the newest first, and each claims what no newer one
//! has claimed. An inner node states the keys of each child exactly, and that the child was up to
//! date when the inner node was written. A leaf that no inner node names claims from its first key
//! to its last.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dendro_format::{Entries, Key, NodePtr, SegmentNo};

use super::gaps::Gap;
use super::sweep::{Sweep, SweptNode};
use crate::read::Volume;

/// A leaf that fills keys from `from` on and below `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) from: Key,
    pub(super) to: Key,
    pub(super) leaf: NodePtr,
    /// The checkpoint of which the leaf was a part.
    pub(super) checkpoint_seq: u64,
    /// It has all changes that the main log has before this partial segment.
    pub(super) log_seq: u64,
}

/// The lowest key above `key`.
pub(super) const fn after(key: Key) -> Key {
    Key { epoch: key.epoch.saturating_add(1), ..key }
}

/// Fills the gaps from nodes that are at most as new as `limit`, a checkpoint's number and position
/// in the log. The claims are in the order of their keys. Segments with inner nodes that tell how
/// new leaves are go into `needed`.
pub(super) fn claim(
    volume: &Volume<'_>,
    sweep: &Sweep,
    gaps: &[Gap],
    limit: Option<(u64, u64)>,
    needed: &mut BTreeSet<SegmentNo>,
) -> Vec<Claim> {
    let is_old_enough = |node: &SweptNode| {
        limit.is_none_or(|(seq, log_seq)| node.checkpoint_seq <= seq && node.log_seq <= log_seq)
    };
    let mut pool: Vec<&SweptNode> = sweep.nodes.iter().filter(|node| is_old_enough(node)).collect();
    let by_age = |node: &&SweptNode| {
        std::cmp::Reverse((node.log_seq, node.checkpoint_seq, node.level, node.place.addr))
    };
    pool.sort_by_key(by_age);
    let mut claiming = Claiming {
        volume,
        by_place: pool.iter().map(|node| (node.place, *node)).collect(),
        unclaimed: gaps.iter().map(|gap| (gap.from, gap.to)).collect(),
        claims: Vec::new(),
        needed,
    };
    for node in pool {
        if claiming.unclaimed.is_empty() {
            break;
        }
        claiming.descend(node, node.first, None, node);
    }
    claiming.claims.sort_by_key(|claim| claim.from);
    claiming.claims
}

struct Claiming<'v, 's> {
    volume: &'v Volume<'v>,
    by_place: HashMap<NodePtr, &'s SweptNode>,
    unclaimed: BTreeMap<Key, Key>,
    claims: Vec<Claim>,
    needed: &'s mut BTreeSet<SegmentNo>,
}

impl Claiming<'_, '_> {
    /// Claims what lies under `node` of the keys from `from` on and below `to`; without `to`, up to
    /// its last key. It was a part of the map when `root` was written.
    fn descend(&mut self, node: &SweptNode, from: Key, to: Option<Key>, root: &SweptNode) {
        let upto = to.unwrap_or_else(|| after(node.last));
        let is_wanted = to.is_none() && node.level > 0 || self.is_wanted(from, upto);
        if !is_wanted {
            return;
        }
        if node.level == 0 {
            for (from, to) in self.take(from, upto) {
                self.claims.push(Claim {
                    from,
                    to,
                    leaf: node.place,
                    checkpoint_seq: root.checkpoint_seq,
                    log_seq: root.log_seq,
                });
            }
            return;
        }
        let Ok(read) = self.volume.node(node.place) else { return };
        let Entries::Inner(children) = &read.entries else { return };
        let count_before = self.claims.len();
        for (at, (first, pointer)) in children.iter().enumerate() {
            let next = children.get(at + 1).map(|(key, _)| *key);
            let end = match (next, to) {
                (Some(next), Some(to)) => Some(next.min(to)),
                (next, to) => next.or(to),
            };
            // The map gives each level to one parent, so a child is below its parent.
            if let Some(&child) = self.by_place.get(&pointer.place)
                && child.level + 1 == node.level
            {
                self.descend(child, from.max(*first), end, root);
            }
        }
        if self.claims.len() > count_before {
            self.needed.extend(read.segments(self.volume));
        }
    }

    /// Whether some keys from `from` on and below `to` are not claimed yet.
    fn is_wanted(&self, from: Key, to: Key) -> bool {
        self.unclaimed.range(..to).next_back().is_some_and(|(_, end)| *end > from)
    }

    /// Claims the keys from `from` on and below `to` that are not claimed yet.
    fn take(&mut self, from: Key, to: Key) -> Vec<(Key, Key)> {
        let mut taken = Vec::new();
        while let Some((&start, &end)) = self.unclaimed.range(..to).next_back() {
            if end <= from {
                break;
            }
            self.unclaimed.remove(&start);
            if start < from {
                self.unclaimed.insert(start, from);
            }
            if end > to {
                self.unclaimed.insert(to, end);
            }
            taken.push((start.max(from), end.min(to)));
            if start < from {
                break;
            }
        }
        taken
    }
}
