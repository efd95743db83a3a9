//! Version usage: how many bytes each version sees and it alone sees.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use dendro_disk::{Error, Result, VersionUsage, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Chunk, Key, PageRef, Space, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::map::Entry;
use crate::versions::Versions;
use crate::versions::ancestry::{Ancestry, AncestrySpan, BranchTree};
use crate::volume::Volume;

/// What pages take, or how much more than others.
#[derive(Clone, Copy, Default)]
struct Bytes {
    stored: i64,
    /// If nothing were compressed.
    plain: i64,
}

impl Bytes {
    /// What a page takes by itself. A frame is counted beside its pages ([`frames`]).
    fn of(page: &PageRef) -> Self {
        let stored = if page.is_in_frame() { 0 } else { page.footprint_bytes() };
        Self { stored: stored.into(), plain: page.plain_footprint_bytes().into() }
    }

    /// What a frame takes.
    fn of_frame(page: &PageRef) -> Self {
        Self { stored: page.footprint_bytes().into(), plain: 0 }
    }

    const fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.plain += other.plain;
    }

    const fn subtract(&mut self, other: Self) {
        self.stored -= other.stored;
        self.plain -= other.plain;
    }

    /// Adds them to what a version sees.
    const fn add_to(self, usage: &mut VersionUsage) {
        usage.seen_bytes += self.stored as u64;
        usage.seen_plain_bytes += self.plain as u64;
    }
}

/// A version, or an epoch that branches were made from, which sees blocks.
struct Viewpoint {
    nearest: AncestrySpan,
    /// The version whose exclusive bytes it adds to, by number. For a version that is the version
    /// itself. For an epoch that only branches made from it need, it is the version that owns them
    /// if there is just one. `None` means that no single version owns what it sees.
    owner: Option<usize>,
    is_version: bool,
}

/// Something that sees a branch up to some epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Observer {
    /// The viewpoint of this number, whose ancestry begins there.
    Viewpoint(usize),
    /// Every viewpoint that sees anything of this branch, which was made there.
    Branch(u32),
}

/// The owners of a set of observers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Owners {
    #[default]
    None,
    One(usize),
    /// Several versions, or no single version.
    Several,
}

impl Owners {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, owners) | (owners, Self::None) => owners,
            (Self::One(a), Self::One(b)) if a == b => self,
            _ => Self::Several,
        }
    }
}

/// The observers of one branch, by the last epoch that they see of it.
#[derive(Default)]
struct OnBranch {
    /// The observers, with the last epoch of each.
    observers: Vec<(u64, Observer)>,
    /// For each observer, how many bytes it sees more than the one before.
    more_bytes: Vec<Bytes>,
    /// The owners of all observers.
    owners: Owners,
}

impl OnBranch {
    /// The range in [`Self::observers`] of those that see what was written in epoch `from` and
    /// replaced in epoch `to`; 2⁶⁴ − 1 if it was not replaced.
    fn range(&self, from: u64, to: u64) -> Range<usize> {
        let at = |epoch: u64| self.observers.partition_point(|(last, _)| *last < epoch);
        let end = if to == u64::MAX { self.observers.len() } else { at(to) };
        at(from)..end.max(at(from))
    }
}

/// Counts the usage of all versions.
struct UsageCounter {
    usages: Vec<VersionUsage>,
    /// Sorted by their owners.
    viewpoints: Vec<Viewpoint>,
    branch_tree: BranchTree,
    /// The observers of each branch. A branch comes after the one that it was made from (ancestry
    /// invariant 1).
    branches: BTreeMap<u32, OnBranch>,
}

impl UsageCounter {
    /// A counter for all versions. What only the versions in `together` see counts as exclusive
    /// bytes of the first of them.
    fn of(versions: &Versions, together: &FxHashSet<View>) -> Result<Self> {
        let views: Vec<View> = versions.table().views().collect();
        let first = views.iter().position(|view| together.contains(view));
        let mut viewpoints = Vec::new();
        let mut owner_of_head = FxHashMap::default();
        for (number, view) in views.iter().enumerate() {
            let owner = first.filter(|_| together.contains(view)).unwrap_or(number);
            let nearest = versions.ancestry(*view)?.nearest();
            viewpoints.push(Viewpoint { nearest, owner: Some(owner), is_version: true });
            if view.epoch.is_none() {
                owner_of_head.insert(view.branch, owner);
            }
        }
        for ((branch, last_epoch), children) in versions.forks() {
            let nearest = AncestrySpan { branch, last_epoch };
            let mut owners = children.iter().map(|child| owner_of_head.get(child).copied());
            let owner =
                owners.next().flatten().filter(|&one| owners.all(|other| other == Some(one)));
            viewpoints.push(Viewpoint { nearest, owner, is_version: false });
        }
        viewpoints.sort_by_key(|viewpoint| viewpoint.owner);
        let usage =
            |view| VersionUsage { view, exclusive_bytes: 0, seen_bytes: 0, seen_plain_bytes: 0 };
        let usages = views.into_iter().map(usage).collect();
        let branch_tree = versions.tree().clone();
        let mut all = Self { usages, viewpoints, branch_tree, branches: BTreeMap::new() };
        all.enter_all();
        Ok(all)
    }

    /// Enters each viewpoint in the branch where its ancestry begins, and each branch in its
    /// parent.
    fn enter_all(&mut self) {
        for (number, viewpoint) in self.viewpoints.iter().enumerate() {
            let mut next = Some((viewpoint.nearest, Observer::Viewpoint(number)));
            while let Some((AncestrySpan { branch, last_epoch }, observer)) = next {
                let is_entered = self.branches.contains_key(&branch);
                let on_branch = self.branches.entry(branch).or_default();
                on_branch.observers.push((last_epoch, observer));
                let parent = self.branch_tree.parent(branch).filter(|_| !is_entered);
                next = parent.map(|parent| (parent, Observer::Branch(branch)));
            }
        }
        // A branch is computed before its parent, because the parent needs its owners.
        let branches: Vec<u32> = self.branches.keys().rev().copied().collect();
        for branch in branches {
            let Some(mut on_branch) = self.branches.remove(&branch) else { continue };
            on_branch.observers.sort_unstable();
            on_branch.more_bytes = vec![Bytes::default(); on_branch.observers.len() + 1];
            let owners = on_branch.observers.iter().map(|(_, observer)| self.owners_of(*observer));
            on_branch.owners = owners.fold(Owners::None, Owners::and);
            self.branches.insert(branch, on_branch);
        }
    }

    fn owners_of(&self, observer: Observer) -> Owners {
        match observer {
            Observer::Viewpoint(at) => {
                self.viewpoints[at].owner.map_or(Owners::Several, Owners::One)
            }
            Observer::Branch(branch) => {
                self.branches.get(&branch).map(|on_branch| on_branch.owners).unwrap_or_default()
            }
        }
    }

    /// The owner of all these observers, if there is just one.
    fn only_owner(&self, observers: &[(u64, Observer)]) -> Option<usize> {
        let mut owners = Owners::None;
        for (_, observer) in observers {
            owners = owners.and(self.owners_of(*observer));
            if owners == Owners::Several {
                return None;
            }
        }
        if let Owners::One(owner) = owners { Some(owner) } else { None }
    }

    /// Adds the pages of a chunk to the usage of the versions that see them.
    fn add(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        let branch = chunk[0].0.branch;
        if chunk.iter().chain(of_list).all(|(key, _)| key.branch == branch) {
            self.add_of_branch(branch, chunk, of_list);
        } else {
            self.add_of_several(chunk, of_list);
        }
    }

    /// As [`Self::add`], for a chunk whose entries are all of one branch. A page is seen by the
    /// observers between the epoch in which it was written and the one in which it was replaced.
    fn add_of_branch(&mut self, branch: u32, chunk: &[Entry], of_list: &[Entry]) {
        let Some(mut on_branch) = self.branches.remove(&branch) else { return };
        let is_there = |entry: &Entry| matches!(entry.1, Value::List(_));
        let periods = of_list.chunk_by(|a, b| is_there(a) == is_there(b));
        let ends = periods.clone().skip(1).map(|period| period[0].0.epoch).chain([u64::MAX]);
        for (period, end) in periods.zip(ends).filter(|(period, _)| is_there(&period[0])) {
            let made = period[0].0;
            // For each slot, the epoch up to which its page is seen; computed from the last entry
            // to the first.
            let mut until = [end; CHUNK_PAGES as usize];
            for (key, value) in chunk.iter().rev() {
                let Value::Chunk(pages) = value else { continue };
                let end_of = |slot: u32| until[slot as usize];
                let alone = pages.iter().map(|(slot, page)| (end_of(slot), Bytes::of(&page)));
                // A frame is there as long as some page of it is seen.
                let framed = frames(pages).map(|(slots, page)| {
                    let end = slots_of(slots).map(end_of).max().unwrap_or_default();
                    (end, Bytes::of_frame(&page))
                });
                for (end, bytes) in alone.chain(framed) {
                    let range = on_branch.range(key.epoch.max(made.epoch), end);
                    on_branch.more_bytes[range.start].add(bytes);
                    on_branch.more_bytes[range.end].subtract(bytes);
                    if let Some(owner) = self.only_owner(&on_branch.observers[range]) {
                        self.usages[owner].exclusive_bytes += bytes.stored as u64;
                    }
                }
                for slot in (0..CHUNK_PAGES as u32).filter(|slot| pages.said() >> slot & 1 == 1) {
                    until[slot as usize] = until[slot as usize].min(key.epoch);
                }
            }
        }
        self.branches.insert(branch, on_branch);
    }

    /// As [`Self::add`], for a chunk with entries of several branches: each viewpoint is checked.
    fn add_of_several(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        // For each page of each entry, the number of owners that see it, and the last of them. A
        // frame is noted at its first page.
        let mut seen_by: BTreeMap<(usize, u32), (usize, Option<usize>)> = BTreeMap::new();
        for viewpoint in &self.viewpoints {
            let ancestry = self.branch_tree.ancestry_of(viewpoint.nearest);
            let newest = seen(ancestry, of_list).next();
            if !newest.is_some_and(|at| matches!(of_list[at].1, Value::List(_))) {
                continue;
            }
            let mut covered = 0_u32;
            for at in seen(ancestry, chunk) {
                let Value::Chunk(pages) = &chunk[at].1 else { continue };
                let is_seen = |slots: u32| slots & !covered != 0;
                let alone = pages.iter().map(|(slot, page)| (1 << slot, Bytes::of(&page)));
                let framed = frames(pages).map(|(slots, page)| (slots, Bytes::of_frame(&page)));
                for (slots, bytes) in alone.chain(framed).filter(|(slots, _)| is_seen(*slots)) {
                    if let Some(owner) = viewpoint.owner.filter(|_| viewpoint.is_version) {
                        bytes.add_to(&mut self.usages[owner]);
                    }
                    if bytes.stored == 0 {
                        continue;
                    }
                    let slot = slots.trailing_zeros();
                    let (count, last) = seen_by.entry((at, slot)).or_default();
                    if *count == 0 || viewpoint.owner.is_none() || *last != viewpoint.owner {
                        *count += 1;
                    }
                    *last = viewpoint.owner;
                }
                covered |= pages.said();
                if covered == u32::MAX {
                    break;
                }
            }
        }
        for ((at, slot), (count, owner)) in seen_by {
            let Value::Chunk(pages) = &chunk[at].1 else { continue };
            if let (1, Some(owner), Some(page)) = (count, owner, pages.get(slot)) {
                self.usages[owner].exclusive_bytes += u64::from(page.footprint_bytes());
            }
        }
    }

    /// Completes the count: adds what observers see of the ancestors of a branch.
    fn finish(mut self) -> Vec<VersionUsage> {
        // For each branch, the bytes that its observers see of its ancestors.
        let mut before: FxHashMap<u32, Bytes> = FxHashMap::default();
        for (branch, on_branch) in &self.branches {
            let mut seen_bytes = before.get(branch).copied().unwrap_or_default();
            for ((_, observer), more_bytes) in on_branch.observers.iter().zip(&on_branch.more_bytes)
            {
                seen_bytes.add(*more_bytes);
                match observer {
                    Observer::Branch(branch) => drop(before.insert(*branch, seen_bytes)),
                    Observer::Viewpoint(at) => {
                        let viewpoint = &self.viewpoints[*at];
                        if let Some(owner) = viewpoint.owner.filter(|_| viewpoint.is_version) {
                            seen_bytes.add_to(&mut self.usages[owner]);
                        }
                    }
                }
            }
        }
        self.usages
    }
}

/// The frames of an entry, with the slots of their pages.
fn frames(pages: &Chunk) -> impl Iterator<Item = (u32, PageRef)> + '_ {
    pages.blocks().filter(|(_, page)| page.is_in_frame())
}

/// The slots whose bits are set.
fn slots_of(slots: u32) -> impl Iterator<Item = u32> {
    (0..CHUNK_PAGES as u32).filter(move |slot| slots >> slot & 1 == 1)
}

/// The positions of an item's entries that `ancestry` sees, the newest first.
fn seen<'a>(ancestry: Ancestry<'a>, entries: &'a [Entry]) -> impl Iterator<Item = usize> + 'a {
    let mut at = Some(ancestry.nearest());
    let mut end = entries.len();
    std::iter::from_fn(move || {
        loop {
            let AncestrySpan { branch, last_epoch } = at?;
            let is_within = |(key, _): &Entry| (key.branch, key.epoch) <= (branch, last_epoch);
            if !is_within(entries[..end].last()?) {
                end = entries[..end].partition_point(is_within);
            }
            let last = entries[..end].last()?.0.branch;
            if last == branch {
                end -= 1;
                return Some(end);
            }
            at = ancestry.next_at_most(AncestrySpan { branch, last_epoch }, last);
        }
    })
}

/// Walks over the map and counts, for each version, the bytes of the blocks that it sees and of
/// those that only it sees.
pub(crate) fn count(volume: &Volume) -> Result<Vec<VersionUsage>> {
    let viewpoints = UsageCounter::of(volume.read().state().versions(), &FxHashSet::default())?;
    walk(volume, viewpoints)
}

/// Counts the bytes of the blocks that only these versions see.
pub(crate) fn freed_by(volume: &Volume, views: &[View]) -> Result<u64> {
    let mut together: FxHashSet<View> = views.iter().copied().collect();
    let viewpoints = UsageCounter::of(volume.read().state().versions(), &together)?;
    // The first of these versions owns what only they see.
    let first = viewpoints.usages.iter().position(|usage| together.contains(&usage.view));
    for usage in &viewpoints.usages {
        together.remove(&usage.view);
    }
    if let Some(unknown) = views.iter().find(|view| together.contains(view)) {
        return Err(Error::NoSuchView(*unknown));
    }
    let usages = walk(volume, viewpoints)?;
    Ok(first.map_or(0, |first| usages[first].exclusive_bytes))
}

fn walk(volume: &Volume, mut viewpoints: UsageCounter) -> Result<Vec<VersionUsage>> {
    let mut next = Key::MIN;
    loop {
        let (items, end) = volume.walk_slices(&mut (), |engine, (), nodes| {
            let mut items: Vec<(Vec<Entry>, Vec<Entry>)> = Vec::new();
            let end = engine.end_of_step(&next, nodes)?;
            if let Some(end) = &end {
                engine.state().visit_items(&next, end, nodes, &mut |entries, of_list| {
                    let current = |entries| engine.state().without_remains(entries).into_owned();
                    let chunk = current(entries);
                    if chunk.first().is_some_and(|(key, _)| key.space == Space::Chunks) {
                        items.push((chunk, current(of_list)));
                    }
                })?;
            }
            Ok(ControlFlow::Break((items, end)))
        })?;
        for (chunk, of_list) in &items {
            viewpoints.add(chunk, of_list);
        }
        match end {
            Some(end) => next = end,
            None => return Ok(viewpoints.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::{Rng, Timestamp};

    use super::*;

    #[test]
    fn the_observers_of_a_long_chain_of_branches_are_as_many_as_the_branches() {
        let mut versions = Versions::new(Timestamp(0));
        let mut view = View::HEAD;
        for number in 0..2000 {
            let name = format!("b{number}");
            let made = versions.change(|table| table.branch_off(view, &name, Timestamp(0)));
            view = made.expect("the name is new").0.head();
        }
        let viewpoints =
            UsageCounter::of(&versions, &FxHashSet::default()).expect("all views are there");
        let observers: usize = viewpoints.branches.values().map(|at| at.observers.len()).sum();
        assert!(observers <= 3 * 2001, "{observers}");
        // Each head alone sees what was written in its branch, but all see what was written in the
        // first.
        assert!(viewpoints.branches[&0].owners == Owners::Several);
        let last = viewpoints.branches.last_key_value().expect("there are branches");
        assert!(last.1.owners == Owners::One(viewpoints.usages.len() - 1));
    }

    #[test]
    fn seen_entries_are_those_that_the_ancestry_sees() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut branch_tree = BranchTree::default();
            branch_tree.add(0, None);
            for branch in 1..20 {
                branch_tree.add(branch, Some((rng.below(u64::from(branch)) as u32, rng.below(40))));
            }
            let mut keys: Vec<(u32, u64)> =
                (0..rng.below(60)).map(|_| (rng.below(20) as u32, rng.below(50))).collect();
            keys.sort_unstable();
            keys.dedup();
            let entry = |&(branch, epoch): &(u32, u64)| {
                let key = Key { list: 1, space: Space::Chunks, index: 0, branch, epoch };
                (key, Value::Tombstone)
            };
            let entries: Vec<Entry> = keys.iter().map(entry).collect();
            for branch in 0..20 {
                let ancestry = branch_tree.ancestry(branch, rng.below(60));
                let asked = (0..entries.len()).rev().filter(|at| ancestry.sees(&entries[*at].0));
                assert!(seen(ancestry, &entries).eq(asked), "seed {seed}, branch {branch}");
            }
        }
    }
}
