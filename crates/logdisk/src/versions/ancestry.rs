//! Ancestry: which branch was made from which, and what a view sees (DESIGN §7).
//!
//! A view sees of its own branch what was written up to its epoch, of its parent branch what was
//! written up to the epoch that the branch was made from, and so on. Whole ancestries are not
//! stored, because those of a long chain of branches would take space in proportion to the square
//! of its length. Instead each branch has a pointer to its parent and one to an ancestor farther
//! back. The distances of the latter are those of the skew-binary numbers (Myers, *An applicative
//! random-access stack*, 1983), so every span of an ancestry is found in O(log n) steps.
//!
//! Invariants:
//! 1. A branch has a higher number than the branch that it was made from.
//! 2. A branch's pointers to its ancestors never change, whatever becomes of other branches.

use dendro_format::Key;
use rustc_hash::FxHashMap;

/// The part of an ancestry that lies in one branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AncestrySpan {
    pub(crate) branch: u32,
    /// The last epoch that is seen of the branch.
    pub(crate) last_epoch: u64,
}

/// The pointers from a branch to its ancestors.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The number of spans that follow.
    depth: u32,
    parent: Option<AncestrySpan>,
    /// The parent, or an ancestor farther back.
    jump: Option<AncestrySpan>,
}

/// The ancestries of all branches, whether they have a head or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct BranchTree(FxHashMap<u32, Link>);

impl BranchTree {
    /// Adds a branch. Its parent must exist and have a lower number (ancestry invariant 1);
    /// otherwise the branch counts as one without a parent.
    pub(crate) fn add(&mut self, branch: u32, parent: Option<(u32, u64)>) {
        let parent = parent.map(|(branch, last_epoch)| AncestrySpan { branch, last_epoch });
        let link = parent
            .filter(|parent| parent.branch < branch)
            .and_then(|parent| Some(self.link_to(parent, self.0.get(&parent.branch)?)));
        self.0.insert(branch, link.unwrap_or_default());
    }

    fn link_to(&self, parent: AncestrySpan, its: &Link) -> Link {
        let depth = its.depth.saturating_add(1);
        // Two jumps of the same length are combined into one.
        let twice = its.jump.and_then(|first| {
            let next = self.0.get(&first.branch)?;
            let last = next.jump?;
            let (from, mid, to) = (its.depth, next.depth, self.0.get(&last.branch)?.depth);
            (from.checked_sub(mid) == mid.checked_sub(to)).then_some(last)
        });
        Link { depth, parent: Some(parent), jump: Some(twice.unwrap_or(parent)) }
    }

    /// Removes a branch that no other was made from.
    pub(crate) fn remove(&mut self, branch: u32) {
        self.0.remove(&branch);
    }

    /// The parent of `branch`, and the last epoch that is seen of it.
    pub(crate) fn parent(&self, branch: u32) -> Option<AncestrySpan> {
        self.0.get(&branch)?.parent
    }

    /// The ancestry of a view that sees `branch` up to `last_epoch`.
    pub(crate) const fn ancestry(&self, branch: u32, last_epoch: u64) -> Ancestry<'_> {
        self.ancestry_of(AncestrySpan { branch, last_epoch })
    }

    /// The ancestry that begins with `nearest`.
    pub(crate) const fn ancestry_of(&self, nearest: AncestrySpan) -> Ancestry<'_> {
        Ancestry { tree: self, nearest }
    }

    fn link(&self, branch: u32) -> Link {
        self.0.get(&branch).copied().unwrap_or_default()
    }

    /// The ancestor of `from` that has `depth` spans behind it, or `from` if it has fewer.
    fn at_depth(&self, mut from: AncestrySpan, depth: u32) -> AncestrySpan {
        loop {
            let link = self.link(from.branch);
            let (Some(parent), Some(jump)) = (link.parent, link.jump) else { return from };
            if link.depth <= depth {
                return from;
            }
            from = if self.link(jump.branch).depth >= depth { jump } else { parent };
        }
    }
}

/// The ancestry of a view, the nearest span first. The numbers of the branches decrease (ancestry
/// invariant 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ancestry<'a> {
    tree: &'a BranchTree,
    nearest: AncestrySpan,
}

impl<'a> Ancestry<'a> {
    /// The view's own branch, and the last epoch that it sees of it.
    pub(crate) const fn nearest(&self) -> AncestrySpan {
        self.nearest
    }

    /// All spans, the nearest first.
    #[cfg(test)]
    pub(crate) fn spans(self) -> impl Iterator<Item = AncestrySpan> + use<'a> {
        let next = move |at: &AncestrySpan| self.tree.parent(at.branch);
        std::iter::successors(Some(self.nearest), next)
    }

    /// Whether the ancestry has only one span.
    pub(crate) fn is_short(&self) -> bool {
        self.tree.parent(self.nearest.branch).is_none()
    }

    /// The first span of the ancestry, from its span `from` on, in a branch with a number of at
    /// most `branch`.
    pub(crate) fn next_at_most(&self, from: AncestrySpan, branch: u32) -> Option<AncestrySpan> {
        let mut at = from;
        while at.branch > branch {
            let link = self.tree.0.get(&at.branch)?;
            at = match link.jump {
                Some(jump) if jump.branch >= branch => jump,
                _ => link.parent?,
            };
        }
        Some(at)
    }

    /// Whether anything of `branch` can be seen.
    pub(crate) fn passes(&self, branch: u32) -> bool {
        self.next_at_most(self.nearest, branch).is_some_and(|at| at.branch == branch)
    }

    /// Whether what was written under `key` can be seen.
    pub(crate) fn sees(&self, key: &Key) -> bool {
        self.next_at_most(self.nearest, key.branch)
            .is_some_and(|at| at.branch == key.branch && key.epoch <= at.last_epoch)
    }

    /// The newest of `entries` that can be seen. They are of one item, in the order of their keys.
    pub(crate) fn newest_of<'e, T>(&self, entries: &'e [(Key, T)]) -> Option<&'e (Key, T)> {
        let mut at = self.nearest;
        let mut rest = entries;
        loop {
            let is_older =
                |(key, _): &(Key, T)| (key.branch, key.epoch) <= (at.branch, at.last_epoch);
            rest = &rest[..rest.partition_point(is_older)];
            let last = rest.last()?;
            if last.0.branch == at.branch {
                return Some(last);
            }
            at = self.next_at_most(at, last.0.branch)?;
        }
    }

    /// What was there when the view's own branch was made; `None` if it was made from none.
    pub(crate) fn inherited(&self) -> Option<Self> {
        let parent = self.tree.parent(self.nearest.branch)?;
        Some(Self { nearest: parent, ..*self })
    }

    /// Whether nothing older can be seen than what was written under `key`, which is in the
    /// ancestry.
    pub(crate) fn ends_with(&self, key: &Key) -> bool {
        key.epoch <= 1 && self.tree.parent(key.branch).is_none()
    }

    /// Calls `tell` with what only this one or only `other` sees: a branch, and the epochs of it
    /// from after the first one up to the second.
    pub(crate) fn differences(&self, other: &Self, tell: &mut dyn FnMut(u32, u64, u64)) {
        let (mut a, mut b) = (Some(self.nearest), Some(other.nearest));
        loop {
            // Of two branches the one with the higher number is no ancestor of the other.
            let (alone, rest) = match (a, b) {
                (Some(of_a), Some(of_b)) if of_a.branch == of_b.branch => {
                    let (of_a, of_b) = (of_a.last_epoch, of_b.last_epoch);
                    if of_a != of_b {
                        tell(a.map_or(0, |span| span.branch), of_a.min(of_b), of_a.max(of_b));
                    }
                    return;
                }
                (Some(of_a), Some(of_b)) if of_a.branch < of_b.branch => (of_b, &mut b),
                (Some(of_a), _) => (of_a, &mut a),
                (None, Some(of_b)) => (of_b, &mut b),
                (None, None) => return,
            };
            let parent = self.tree.parent(alone.branch);
            *rest = parent;
            // What was written in a branch is newer than the epoch that the branch was made from.
            tell(alone.branch, parent.map_or(0, |parent| parent.last_epoch), alone.last_epoch);
        }
    }

    /// The last epoch that it has in common with `other`: what was written up to then is seen from
    /// both or from neither.
    pub(crate) fn parts_after(&self, other: &Self) -> u64 {
        let tree = self.tree;
        let depth_of = |at: AncestrySpan| tree.link(at.branch).depth;
        let depth = depth_of(self.nearest).min(depth_of(other.nearest));
        let mut a = tree.at_depth(self.nearest, depth);
        let mut b = tree.at_depth(other.nearest, depth);
        // Both are at the same depth, so their jumps have the same length.
        while a.branch != b.branch {
            let (of_a, of_b) = (tree.link(a.branch), tree.link(b.branch));
            let jumps = of_a.jump.zip(of_b.jump).filter(|(a, b)| a.branch != b.branch);
            let Some(next) = jumps.or_else(|| of_a.parent.zip(of_b.parent)) else { return 0 };
            (a, b) = next;
        }
        // What was written in a branch is newer than the epoch that the branch was made from.
        a.last_epoch.min(b.last_epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::Rng;
    use dendro_format::Space;

    const fn span(branch: u32, last_epoch: u64) -> AncestrySpan {
        AncestrySpan { branch, last_epoch }
    }

    const fn key(branch: u32, epoch: u64) -> Key {
        Key { list: 1, space: Space::Chunks, index: 0, branch, epoch }
    }

    /// Computes an ancestry step by step.
    fn walk(parents: &[Option<(u32, u64)>], branch: u32) -> Vec<AncestrySpan> {
        let mut ancestry = vec![span(branch, u64::MAX)];
        let mut next = parents[branch as usize];
        while let Some((parent, epoch)) = next {
            ancestry.push(span(parent, epoch));
            next = parents[parent as usize];
        }
        ancestry
    }

    /// Makes branches of which each has one of the last `reach` branches as its parent.
    fn random(rng: &mut Rng, count: u32, reach: u64) -> (BranchTree, Vec<Option<(u32, u64)>>) {
        let (mut tree, mut parents) = (BranchTree::default(), Vec::new());
        for branch in 0..count {
            let back = 1 + rng.below(reach.min(u64::from(branch).max(1))) as u32;
            let parent =
                (branch > 0).then(|| (branch - back, u64::from(branch) * 3 + rng.below(3)));
            tree.add(branch, parent);
            parents.push(parent);
        }
        (tree, parents)
    }

    #[test]
    fn an_ancestry_found_by_jumps_is_the_one_found_step_by_step() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (tree, parents) = random(&mut rng, 120, 1 + seed % 6 * 4);
            for branch in 0..120 {
                let walked = walk(&parents, branch);
                let ancestry = tree.ancestry(branch, u64::MAX);
                assert!(ancestry.spans().eq(walked.iter().copied()), "seed {seed}");
                assert_eq!(ancestry.is_short(), walked.len() == 1);
                for other in 0..120 {
                    let expected = walked.iter().find(|at| at.branch <= other).copied();
                    assert_eq!(
                        ancestry.next_at_most(ancestry.nearest(), other),
                        expected,
                        "seed {seed}"
                    );
                    let in_ancestry = walked.iter().find(|at| at.branch == other);
                    let epoch = rng.below(400);
                    let expected = in_ancestry.is_some_and(|at| epoch <= at.last_epoch);
                    assert_eq!(ancestry.sees(&key(other, epoch)), expected, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn ancestries_part_after_the_last_epoch_in_their_first_common_branch() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (tree, parents) = random(&mut rng, 100, 1 + seed % 6 * 4);
            for _ in 0..500 {
                let (a, b) = (rng.below(100) as u32, rng.below(100) as u32);
                let (of_a, of_b) = (walk(&parents, a), walk(&parents, b));
                let met = of_a.iter().find_map(|at| {
                    let other = of_b.iter().find(|other| other.branch == at.branch)?;
                    Some(at.last_epoch.min(other.last_epoch))
                });
                let (of_a, of_b) = (tree.ancestry(a, u64::MAX), tree.ancestry(b, u64::MAX));
                assert_eq!(Some(of_a.parts_after(&of_b)), met, "seed {seed}: {a} and {b}");
            }
        }
    }

    #[test]
    fn differences_are_what_one_of_two_ancestries_sees() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (tree, parents) = random(&mut rng, 60, 1 + seed % 6 * 4);
            for _ in 0..200 {
                let mut any = || tree.ancestry(rng.below(60) as u32, rng.below(250));
                let (a, b) = (any(), any());
                let mut told = Vec::new();
                a.differences(&b, &mut |branch, above, upto| told.push((branch, above, upto)));
                for branch in 0..60 {
                    // Older ones there are not.
                    let first = parents[branch as usize].map_or(0, |(_, epoch)| epoch) + 1;
                    for epoch in first..250 {
                        let key = key(branch, epoch);
                        let is_over = |&(of, above, upto): &(u32, u64, u64)| {
                            of == branch && above < epoch && epoch <= upto
                        };
                        let count = told.iter().filter(|step| is_over(step)).count();
                        let differs = a.sees(&key) != b.sees(&key);
                        assert_eq!(count, usize::from(differs), "seed {seed}: {key}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_newest_entry_that_is_seen_is_found_without_trying_all() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (tree, _) = random(&mut rng, 60, 1 + seed % 6 * 4);
            for _ in 0..50 {
                let mut entries: Vec<(Key, ())> = (0..rng.below(40))
                    .map(|_| (key(rng.below(60) as u32, rng.below(400)), ()))
                    .collect();
                entries.sort_unstable_by_key(|(key, ())| *key);
                let ancestry = tree.ancestry(rng.below(60) as u32, rng.below(400));
                let newest = entries.iter().rev().find(|(key, ())| ancestry.sees(key));
                assert_eq!(ancestry.newest_of(&entries), newest, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_span_of_an_ancestry_of_100_000_branches_is_found_in_few_steps() {
        let mut tree = BranchTree::default();
        let count = 100_000_u32;
        for branch in 0..count {
            tree.add(branch, branch.checked_sub(1).map(|parent| (parent, u64::from(branch))));
        }
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            let target = rng.below(u64::from(count)) as u32;
            let (mut at, mut steps) = (count - 1, 0);
            while at > target {
                let link = tree.link(at);
                let jump = link.jump.filter(|jump| jump.branch >= target);
                at = jump.or(link.parent).expect("the ancestry goes on").branch;
                steps += 1;
            }
            assert!(steps <= 60, "{steps} steps to {target}");
        }
    }

    #[test]
    fn a_branch_with_an_invalid_parent_ends_its_ancestry() {
        let mut tree = BranchTree::default();
        tree.add(3, Some((7, 1)));
        tree.add(4, Some((4, 1)));
        tree.add(5, Some((3, 2)));
        assert!(tree.ancestry(3, 9).is_short());
        assert!(tree.ancestry(4, 9).is_short());
        assert!(tree.ancestry(5, 9).spans().eq([span(5, 9), span(3, 2)]));
        tree.remove(3);
        assert!(tree.ancestry(5, 9).spans().eq([span(5, 9), span(3, 2)]));
        assert!(!tree.ancestry(5, 9).sees(&key(1, 1)));
        assert_eq!(tree.ancestry(5, 9).parts_after(&tree.ancestry(4, 9)), 0);
    }
}
