//! What versions take, and where they differ.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use dendro_disk::{Error, Lid, Result, VersionUsage, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Key, Space, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::disk::LogDisk;
use crate::map::Entry;
use crate::versions::Versions;
use crate::versions::ancestry::{Ancestry, AncestrySpan, BranchTree};

/// Entries of the map looked at with the lock held once.
const STEP_LEN: usize = 4096;

/// Someone who sees blocks.
struct Seer {
    nearest: AncestrySpan,
    /// Whose share it adds to, by number: a version's own, or of a moment that only branches made from
    /// it need, theirs if that is one. `None`: what it sees goes with no single version.
    owner: Option<usize>,
    is_version: bool,
}

/// Who sees something of a branch up to some epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Onlooker {
    /// The seer of this number, who begins there.
    Seer(usize),
    /// All who see anything of this branch, which was made there.
    Branch(u32),
}

/// Whose share those add to who see something.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Owners {
    #[default]
    None,
    One(usize),
    /// Several, or no single version.
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

/// Those who see something of one branch, by the last epoch that they see of it.
#[derive(Default)]
struct OnBranch {
    /// With the last epoch of each.
    onlookers: Vec<(u64, Onlooker)>,
    /// For each of these, by how much more it sees than the one before.
    more_bytes: Vec<i64>,
    /// Of all of these.
    owners: Owners,
}

impl OnBranch {
    /// The places in [`Self::onlookers`] of those who see what was written in epoch `from` and gave
    /// way in epoch `to`; 2⁶⁴ − 1 when it has not.
    fn range(&self, from: u64, to: u64) -> Range<usize> {
        let at = |epoch: u64| self.onlookers.partition_point(|(last, _)| *last < epoch);
        let end = if to == u64::MAX { self.onlookers.len() } else { at(to) };
        at(from)..end.max(at(from))
    }
}

/// All versions, and the moments that branches were made from.
struct Seers {
    shares: Vec<VersionUsage>,
    /// In the order of their owners.
    seers: Vec<Seer>,
    branch_tree: BranchTree,
    /// A branch comes after the one that it was made from.
    branches: BTreeMap<u32, OnBranch>,
}

impl Seers {
    /// Everyone; to those in `together` belongs, as to the first of them, what only they see.
    fn of(versions: &Versions, together: &FxHashSet<View>) -> Result<Self> {
        let views: Vec<View> = versions.table().views().collect();
        let first = views.iter().position(|view| together.contains(view));
        let mut seers = Vec::new();
        let mut heads = FxHashMap::default();
        for (number, view) in views.iter().enumerate() {
            let owner = first.filter(|_| together.contains(view)).unwrap_or(number);
            let nearest = versions.ancestry(*view)?.nearest();
            seers.push(Seer { nearest, owner: Some(owner), is_version: true });
            if view.epoch.is_none() {
                heads.insert(view.branch, owner);
            }
        }
        for ((branch, last_epoch), children) in versions.forks() {
            let nearest = AncestrySpan { branch, last_epoch };
            let mut owners = children.iter().map(|child| heads.get(child).copied());
            let owner =
                owners.next().flatten().filter(|&one| owners.all(|other| other == Some(one)));
            seers.push(Seer { nearest, owner, is_version: false });
        }
        seers.sort_by_key(|seer| seer.owner);
        let share = |view| VersionUsage { view, exclusive_bytes: 0, seen_bytes: 0 };
        let shares = views.into_iter().map(share).collect();
        let branch_tree = versions.tree().clone();
        let mut all = Self { shares, seers, branch_tree, branches: BTreeMap::new() };
        all.place();
        Ok(all)
    }

    /// Enters everyone on the branch where their ancestry begins, and each branch on its parent.
    fn place(&mut self) {
        for (number, seer) in self.seers.iter().enumerate() {
            let mut next = Some((seer.nearest, Onlooker::Seer(number)));
            while let Some((AncestrySpan { branch, last_epoch }, onlooker)) = next {
                let is_entered = self.branches.contains_key(&branch);
                let on_branch = self.branches.entry(branch).or_default();
                on_branch.onlookers.push((last_epoch, onlooker));
                let parent = self.branch_tree.parent(branch).filter(|_| !is_entered);
                next = parent.map(|parent| (parent, Onlooker::Branch(branch)));
            }
        }
        // What was made from a branch comes before it.
        let branches: Vec<u32> = self.branches.keys().rev().copied().collect();
        for branch in branches {
            let Some(mut on_branch) = self.branches.remove(&branch) else { continue };
            on_branch.onlookers.sort_unstable();
            on_branch.more_bytes = vec![0; on_branch.onlookers.len() + 1];
            let owners = on_branch.onlookers.iter().map(|(_, onlooker)| self.owners_of(*onlooker));
            on_branch.owners = owners.fold(Owners::None, Owners::and);
            self.branches.insert(branch, on_branch);
        }
    }

    fn owners_of(&self, onlooker: Onlooker) -> Owners {
        match onlooker {
            Onlooker::Seer(at) => self.seers[at].owner.map_or(Owners::Several, Owners::One),
            Onlooker::Branch(branch) => {
                self.branches.get(&branch).map(|on_branch| on_branch.owners).unwrap_or_default()
            }
        }
    }

    /// The one owner of all these, if there is just one.
    fn only_owner(&self, onlookers: &[(u64, Onlooker)]) -> Option<usize> {
        let mut owners = Owners::None;
        for (_, onlooker) in onlookers {
            owners = owners.and(self.owners_of(*onlooker));
            if owners == Owners::Several {
                return None;
            }
        }
        if let Owners::One(owner) = owners { Some(owner) } else { None }
    }

    /// Adds up who sees which pages of a chunk.
    fn add(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        let branch = chunk[0].0.branch;
        if chunk.iter().chain(of_list).all(|(key, _)| key.branch == branch) {
            self.add_of_branch(branch, chunk, of_list);
        } else {
            self.add_of_several(chunk, of_list);
        }
    }

    /// As [`Self::add`], where all was written in one branch: each page is seen by those who see of it
    /// what was written from when the page was to when it gave way.
    fn add_of_branch(&mut self, branch: u32, chunk: &[Entry], of_list: &[Entry]) {
        let Some(mut on_branch) = self.branches.remove(&branch) else { return };
        let is_there = |entry: &Entry| matches!(entry.1, Value::List(_));
        let periods = of_list.chunk_by(|a, b| is_there(a) == is_there(b));
        let ends = periods.clone().skip(1).map(|period| period[0].0.epoch).chain([u64::MAX]);
        for (period, end) in periods.zip(ends).filter(|(period, _)| is_there(&period[0])) {
            let made = period[0].0;
            // From the last to the first: until when each slot's page is seen.
            let mut until = [end; CHUNK_PAGES as usize];
            for (key, value) in chunk.iter().rev() {
                let Value::Chunk(pages) = value else { continue };
                for (slot, page) in pages.iter() {
                    let end = until[slot as usize];
                    let range = on_branch.range(key.epoch.max(made.epoch), end);
                    let bytes = u64::from(page.footprint_bytes());
                    on_branch.more_bytes[range.start] += bytes as i64;
                    on_branch.more_bytes[range.end] -= bytes as i64;
                    if let Some(owner) = self.only_owner(&on_branch.onlookers[range]) {
                        self.shares[owner].exclusive_bytes += bytes;
                    }
                }
                for slot in (0..CHUNK_PAGES as u32).filter(|slot| pages.said() >> slot & 1 == 1) {
                    until[slot as usize] = until[slot as usize].min(key.epoch);
                }
            }
        }
        self.branches.insert(branch, on_branch);
    }

    /// As [`Self::add`], asking everyone.
    fn add_of_several(&mut self, chunk: &[Entry], of_list: &[Entry]) {
        // How many owners see each page of each entry, and the last that did.
        let mut seen_by: BTreeMap<(usize, u32), (usize, Option<usize>)> = BTreeMap::new();
        for seer in &self.seers {
            let ancestry = self.branch_tree.ancestry_of(seer.nearest);
            let newest = seen(ancestry, of_list).next();
            if !newest.is_some_and(|at| matches!(of_list[at].1, Value::List(_))) {
                continue;
            }
            let mut said = 0_u32;
            for at in seen(ancestry, chunk) {
                let Value::Chunk(pages) = &chunk[at].1 else { continue };
                for (slot, page) in pages.iter().filter(|(slot, _)| said >> slot & 1 == 0) {
                    if let Some(owner) = seer.owner.filter(|_| seer.is_version) {
                        self.shares[owner].seen_bytes += u64::from(page.footprint_bytes());
                    }
                    let (count, last) = seen_by.entry((at, slot)).or_default();
                    if *count == 0 || seer.owner.is_none() || *last != seer.owner {
                        *count += 1;
                    }
                    *last = seer.owner;
                }
                said |= pages.said();
                if said == u32::MAX {
                    break;
                }
            }
        }
        for ((at, slot), (count, owner)) in seen_by {
            let Value::Chunk(pages) = &chunk[at].1 else { continue };
            if let (1, Some(owner), Some(page)) = (count, owner, pages.get(slot)) {
                self.shares[owner].exclusive_bytes += u64::from(page.footprint_bytes());
            }
        }
    }

    /// What each version sees, and has alone.
    fn finish(mut self) -> Vec<VersionUsage> {
        // What all who see something of a branch see of those before it.
        let mut before: FxHashMap<u32, i64> = FxHashMap::default();
        for (branch, on_branch) in &self.branches {
            let mut seen_bytes = before.get(branch).copied().unwrap_or_default();
            for ((_, onlooker), more_bytes) in on_branch.onlookers.iter().zip(&on_branch.more_bytes)
            {
                seen_bytes += more_bytes;
                match onlooker {
                    Onlooker::Branch(branch) => drop(before.insert(*branch, seen_bytes)),
                    Onlooker::Seer(at) => {
                        let seer = &self.seers[*at];
                        if let Some(owner) = seer.owner.filter(|_| seer.is_version) {
                            self.shares[owner].seen_bytes += seen_bytes as u64;
                        }
                    }
                }
            }
        }
        self.shares
    }
}

/// Which of an item's entries, in their order, are seen from `ancestry`, the newest first.
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

impl LogDisk {
    /// Goes through the map and adds up, for each version, the blocks that it sees and those that
    /// only it sees.
    pub(crate) fn count_shares(&self) -> Result<Vec<VersionUsage>> {
        let seers = Seers::of(&self.engine.read().state.versions, &FxHashSet::default())?;
        self.count(seers)
    }

    /// Adds up the blocks that only these versions see.
    pub(crate) fn count_freed_by(&self, views: &[View]) -> Result<u64> {
        let mut together: FxHashSet<View> = views.iter().copied().collect();
        let seers = Seers::of(&self.engine.read().state.versions, &together)?;
        // The first of them, to whom all of it belongs.
        let first = seers.shares.iter().position(|share| together.contains(&share.view));
        for share in &seers.shares {
            together.remove(&share.view);
        }
        if let Some(nobody) = views.iter().find(|view| together.contains(view)) {
            return Err(Error::NoSuchView(*nobody));
        }
        let shares = self.count(seers)?;
        Ok(first.map_or(0, |first| shares[first].exclusive_bytes))
    }

    fn count(&self, mut seers: Seers) -> Result<Vec<VersionUsage>> {
        let mut next = Key::MIN;
        loop {
            let (items, end) = self.look(|engine, nodes| {
                let mut items: Vec<(Vec<Entry>, Vec<Entry>)> = Vec::new();
                let end = engine.end_of_step(&next, nodes)?;
                if let Some(end) = &end {
                    engine.state.visit_items(&next, end, nodes, &mut |entries, of_list| {
                        if entries[0].0.space == Space::Chunks {
                            items.push((entries.to_vec(), of_list.to_vec()));
                        }
                    })?;
                }
                Ok((items, end))
            })?;
            for (chunk, of_list) in &items {
                seers.add(chunk, of_list);
            }
            match end {
                Some(end) => next = end,
                None => return Ok(seers.finish()),
            }
        }
    }

    /// Lists that have an entry that only one of the two views sees. Where nothing was written
    /// since the views have parted, the map is not looked at.
    pub(crate) fn find_changed_lists(
        &self,
        a: View,
        b: View,
        from: Lid,
        max: usize,
    ) -> Result<Vec<Lid>> {
        let mut lists = Vec::new();
        let mut next = Key::first(from.0, Space::List, 0);
        let end = Key::first(Lid::CLIENT_END.0, Space::List, 0);
        if max == 0 {
            return Ok(lists);
        }
        self.walk(&mut next, |engine, next, nodes| {
            let ancestries =
                (engine.state.versions.ancestry(a)?, engine.state.versions.ancestry(b)?);
            let common = ancestries.0.parts_after(&ancestries.1);
            let mut count = 0;
            let mut at = *next;
            let mut found = None;
            let walked = engine.state.map.visit_newer(next, &end, common, nodes, &mut |key, _| {
                count += 1;
                at = *key;
                if ancestries.0.sees(key) != ancestries.1.sees(key) {
                    found = Some(key.list);
                }
                if found.is_some() || count > STEP_LEN {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            // What was visited is not visited again, but for the entry that it came to last.
            *next = at;
            walked?;
            if let Some(list) = found {
                lists.push(Lid(list));
                *next = Key::first(list + 1, Space::List, 0);
            }
            let is_done = lists.len() >= max || (found.is_none() && count <= STEP_LEN);
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(lists)
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::{Rng, Timestamp};

    use super::*;

    #[test]
    fn who_sees_a_long_chain_of_branches_takes_no_more_than_there_are_branches() {
        let mut versions = Versions::new(Timestamp(0));
        let mut view = View::HEAD;
        for number in 0..2000 {
            let name = format!("b{number}");
            let made = versions.change(|table| table.branch_off(view, &name, Timestamp(0)));
            view = made.expect("the name is new").0.head();
        }
        let seers = Seers::of(&versions, &FxHashSet::default()).expect("all views are there");
        let onlookers: usize = seers.branches.values().map(|at| at.onlookers.len()).sum();
        assert!(onlookers <= 3 * 2001, "{onlookers}");
        // Each head sees alone what it writes; the first writes for all.
        assert!(seers.branches[&0].owners == Owners::Several);
        let last = seers.branches.last_key_value().expect("there are branches");
        assert!(last.1.owners == Owners::One(seers.shares.len() - 1));
    }

    #[test]
    fn entries_that_are_seen_are_found_as_when_each_is_asked() {
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
