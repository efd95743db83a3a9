//! The version table, as the engine uses it with every change.
//!
//! Beside the table itself, this module keeps facts about each branch and the ancestries of all
//! branches ([`crate::versions::ancestry`]). They are updated entry by entry, so one more version
//! costs the same however many there are.

pub(crate) mod ancestry;
pub(crate) mod change;
pub(crate) mod inheritance;
pub(crate) mod rearrangement;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::ops::Bound;

use dendro_base::Timestamp;
use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU32, Ordering};
use dendro_disk::{Branch, Error, Result, Snapshot, VersionTable, View};
use dendro_format::VersionRecord;
use dendro_format::rearrangement::REARRANGEMENT_INDEX;
use dendro_format::versions::{
    COUNTERS_INDEX, Counters, branch_index, client_of_quota, snapshot_index,
};
use rustc_hash::FxHashMap;

use crate::versions::ancestry::{Ancestry, AncestrySpan, BranchTree};
use crate::versions::rearrangement::Rearrangement;

/// A record of the table that is put, or removed if it has no value.
type Change = (u64, Option<Vec<u8>>);

/// The number of no branch: it would be the last number, and no next one would exist.
const NO_BRANCH: u32 = u32::MAX;

/// The facts about a branch that every change needs.
#[derive(Debug)]
struct Facts {
    has_head: bool,
    /// The epochs of the branch that must stay readable.
    pins: BTreeSet<u64>,
    /// Of these, the epochs that branches were made from, and those branches.
    forks: BTreeSet<(u64, u32)>,
    /// An ancestor up to which all branches from here on are pass-through branches
    /// ([`Versions::is_pass_through`]), or [`NO_BRANCH`] if it was not searched for yet. The value
    /// stays correct, because a pass-through branch remains one.
    pass_through_end: AtomicU32,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            has_head: false,
            pins: BTreeSet::new(),
            forks: BTreeSet::new(),
            pass_through_end: AtomicU32::new(NO_BRANCH),
        }
    }
}

impl Facts {
    /// The branches that were made from epochs from `from` to before `to`.
    fn forks_in(&self, from: u64, to: u64) -> btree_set::Range<'_, (u64, u32)> {
        self.forks.range((from, 0)..(to, 0))
    }

    /// The branches that were made from `epoch`.
    fn forks_at(&self, epoch: u64) -> btree_set::Range<'_, (u64, u32)> {
        self.forks.range((epoch, 0)..=(epoch, u32::MAX))
    }
}

/// The versions that may see an entry.
#[derive(Clone, Debug, Default)]
struct Viewers<'a> {
    /// Whether a snapshot or a head sees the entry.
    has_view: bool,
    /// The epochs, and the branches made from them, through which further versions may see the
    /// entry.
    forks: btree_set::Range<'a, (u64, u32)>,
}

/// All versions of the disk.
#[derive(Debug)]
pub(crate) struct Versions {
    table: VersionTable,
    facts: FxHashMap<u32, Facts>,
    tree: BranchTree,
    /// See [`dendro_format::versions::CountersV1`].
    collect_since: Option<u64>,
    /// How often versions were deleted, or a collection became due for another reason.
    deletions: u64,
    /// What is left of the unit that was too long to be done at once.
    rearrangement: Option<Arc<Rearrangement>>,
}

impl Versions {
    /// The versions of a volume that was made at `created` and has one version only.
    pub(crate) fn new(created: Timestamp) -> Self {
        let mut versions = Self {
            table: VersionTable::new(created),
            facts: FxHashMap::default(),
            tree: BranchTree::default(),
            collect_since: None,
            deletions: 0,
            rearrangement: None,
        };
        versions.refresh();
        versions
    }

    pub(crate) const fn table(&self) -> &VersionTable {
        &self.table
    }

    /// What is left of the unit that was too long to be done at once, if there is such a unit.
    pub(crate) const fn rearrangement(&self) -> Option<&Arc<Rearrangement>> {
        self.rearrangement.as_ref()
    }

    /// Notes what is left of such a unit.
    pub(crate) fn set_rearrangement(&mut self, rest: Option<Rearrangement>) {
        self.rearrangement = rest.map(Arc::new);
    }

    /// Whether there is another version than the head of one branch.
    pub(crate) fn are_several(&self) -> bool {
        self.facts.len() > 1 || self.table.snapshots().len() > 0
    }

    /// The epoch that heads write in.
    pub(crate) const fn epoch(&self) -> u64 {
        self.table.epoch
    }

    pub(crate) const fn collect_since(&self) -> Option<u64> {
        self.collect_since
    }

    /// How often a collection became due since the volume was opened.
    pub(crate) const fn deletions(&self) -> u64 {
        self.deletions
    }

    /// Whether the head of `branch` sees nothing older than what is written in `epoch`.
    pub(crate) const fn is_first(&self, branch: u32, epoch: u64) -> bool {
        branch == 0 && epoch <= 1
    }

    /// The ancestries of all branches.
    pub(crate) const fn tree(&self) -> &BranchTree {
        &self.tree
    }

    /// The ancestry of the head of `branch`.
    ///
    /// # Errors
    /// When the branch has no head.
    pub(crate) fn head_ancestry(&self, branch: u32) -> Result<Ancestry<'_>> {
        match self.facts.get(&branch) {
            Some(facts) if facts.has_head => Ok(self.tree.ancestry(branch, u64::MAX)),
            _ => Err(Error::NoSuchView(View { branch, epoch: None })),
        }
    }

    /// The ancestry of `view`.
    ///
    /// # Errors
    /// When there is no such view.
    pub(crate) fn ancestry(&self, view: View) -> Result<Ancestry<'_>> {
        let Some(epoch) = view.epoch else { return self.head_ancestry(view.branch) };
        match self.table.snapshot_of(view) {
            Some(_) => Ok(self.tree.ancestry(view.branch, epoch)),
            None => Err(Error::NoSuchView(view)),
        }
    }

    /// The ancestry that the head of `branch` has, or would have if the branch had a head; `None`
    /// if there is no such branch.
    pub(crate) fn whole_ancestry(&self, branch: u32) -> Option<Ancestry<'_>> {
        self.facts.contains_key(&branch).then(|| self.tree.ancestry(branch, u64::MAX))
    }

    /// Whether there is such a branch, with a head or without.
    pub(crate) fn knows(&self, branch: u32) -> bool {
        self.facts.contains_key(&branch)
    }

    /// The epochs that branches were made from and that have no snapshot: branch and epoch, and the
    /// branches made from there.
    pub(crate) fn forks(&self) -> Vec<((u32, u64), Vec<u32>)> {
        let mut forks: BTreeMap<(u32, u64), Vec<u32>> = BTreeMap::new();
        for (child, parent) in self.table.parents() {
            if let Some(parent) = parent {
                forks.entry(parent).or_default().push(child);
            }
        }
        let is_alone = |(branch, epoch)| {
            let view = View { branch, epoch: Some(epoch) };
            self.table.snapshot_of(view).is_none()
        };
        forks.into_iter().filter(|(moment, _)| is_alone(*moment)).collect()
    }

    /// Whether a version of `branch` sees what was written in it in epoch `from` and replaced in
    /// epoch `to`; 2⁶⁴ − 1 if it was not replaced.
    pub(crate) fn is_seen(&self, branch: u32, from: u64, to: u64) -> bool {
        if from >= to {
            return false;
        }
        self.facts.get(&branch).is_some_and(|facts| {
            let range = (Bound::Included(from), Bound::Excluded(to));
            (to == u64::MAX && facts.has_head) || facts.pins.range(range).next().is_some()
        })
    }

    /// The newest epoch of `branch` that must stay readable. Whatever the head sees that was
    /// written up to then is also seen from there.
    pub(crate) fn newest_pin(&self, branch: u32) -> Option<u64> {
        self.facts.get(&branch)?.pins.last().copied()
    }

    /// The versions that see what was written in `branch` in epoch `from` and replaced in epoch
    /// `to`.
    fn viewers(&self, branch: u32, from: u64, to: u64) -> Viewers<'_> {
        let Some(facts) = self.facts.get(&branch).filter(|_| from < to) else {
            return Viewers::default();
        };
        let is_snapshot = |epoch: u64| {
            let view = View { branch, epoch: Some(epoch) };
            facts.forks_at(epoch).next().is_none() || self.table.snapshot_of(view).is_some()
        };
        let has_head = to == u64::MAX && facts.has_head;
        let mut pins = facts.pins.range((Bound::Included(from), Bound::Excluded(to)));
        let has_view = has_head || pins.any(|epoch| is_snapshot(*epoch));
        Viewers { has_view, forks: facts.forks_in(from, to) }
    }

    /// The epoch of the oldest snapshot of `branch`, or else 2⁶⁴ − 2 if the branch has a head.
    fn oldest_view(&self, branch: u32) -> Option<u64> {
        let snapshot = self.table.snapshots_on(branch).next().map(|snapshot| snapshot.epoch);
        let head = || self.facts.get(&branch)?.has_head.then_some(u64::MAX - 1);
        snapshot.or_else(head)
    }

    /// Whether only the head of `branch` sees what was written in epoch `epoch` in its ancestor
    /// `older` and is still seen from there. That is so if `branch` has no snapshot and no child,
    /// and if neither a branch between them nor `older` has a head, and none of these has a
    /// snapshot or another child (`older` from `epoch` on).
    pub(crate) fn sees_alone(&self, branch: u32, older: u32, epoch: u64) -> bool {
        if self.facts.get(&branch).is_none_or(|facts| !facts.pins.is_empty()) {
            return false;
        }
        let Some(end) = self.end_of_pass_throughs(branch).filter(|_| older < branch) else {
            return false;
        };
        if older != end {
            return older > end;
        }
        let ancestry = self.tree.ancestry(branch, u64::MAX);
        let at = ancestry.next_at_most(ancestry.nearest(), older).filter(|at| at.branch == older);
        let (Some(AncestrySpan { last_epoch: fork, .. }), Some(facts)) =
            (at, self.facts.get(&older))
        else {
            return false;
        };
        let view = View { branch: older, epoch: Some(fork) };
        !facts.has_head
            && facts.forks_at(fork).nth(1).is_none()
            && facts.pins.range(epoch..).eq([&fork])
            && self.table.snapshot_of(view).is_none()
    }

    /// Whether nothing remains of `branch` except that one other branch was made from it. No other
    /// branch can be made from it then, and no snapshot of it.
    fn is_pass_through(&self, branch: u32) -> bool {
        self.facts.get(&branch).is_some_and(|facts| {
            !facts.has_head
                && facts.pins.len() == 1
                && facts.forks.len() == 1
                && self.table.snapshots_on(branch).next().is_none()
        })
    }

    /// The nearest ancestor of `branch` that is not a pass-through branch, or else the first
    /// branch.
    fn end_of_pass_throughs(&self, branch: u32) -> Option<u32> {
        let next = |at: u32| {
            let known = self.facts.get(&at)?.pass_through_end.load(Ordering::Relaxed);
            let parent = || self.is_pass_through(at).then(|| self.tree.parent(at)).flatten();
            if known == NO_BRANCH { parent().map(|parent| parent.branch) } else { Some(known) }
        };
        let first = self.tree.parent(branch)?.branch;
        let end = std::iter::successors(Some(first), |at| next(*at)).last()?;
        // The result is stored in each branch on the path, so that the next search takes one step.
        let mut at = first;
        while at != end {
            let passed = at;
            at = next(passed)?;
            self.facts.get(&passed)?.pass_through_end.store(end, Ordering::Relaxed);
        }
        Some(end)
    }

    /// Computes all facts again from the table.
    pub(crate) fn refresh(&mut self) {
        self.facts.clear();
        self.tree = BranchTree::default();
        let mut all: Vec<_> = self.table.parents().collect();
        // A parent has a lower number than its children (ancestry invariant 1), so it comes first.
        all.sort_unstable_by_key(|(branch, _)| *branch);
        for (branch, parent) in all {
            self.add_branch(branch, parent);
        }
        let moments: Vec<_> = self.table.snapshots().map(|of| (of.branch, of.epoch)).collect();
        for (branch, epoch) in moments {
            self.pin(branch, epoch);
        }
    }

    fn add_branch(&mut self, branch: u32, parent: Option<(u32, u64)>) {
        self.tree.add(branch, parent);
        let has_head = self.table.has_head(branch);
        self.facts.entry(branch).or_default().has_head = has_head;
        if let Some((parent, epoch)) = parent
            && let Some(facts) = self.facts.get_mut(&parent)
        {
            facts.forks.insert((epoch, branch));
            facts.pins.insert(epoch);
        }
    }

    fn remove_branch(&mut self, branch: u32) {
        if let Some(AncestrySpan { branch: parent, last_epoch }) = self.tree.parent(branch)
            && let Some(facts) = self.facts.get_mut(&parent)
        {
            facts.forks.remove(&(last_epoch, branch));
            self.pin(parent, last_epoch);
        }
        self.facts.remove(&branch);
        self.tree.remove(branch);
    }

    fn note_head(&mut self, branch: u32) {
        let has_head = self.table.has_head(branch);
        if let Some(facts) = self.facts.get_mut(&branch) {
            facts.has_head = has_head;
        }
    }

    fn collect_from(&mut self, epoch: u64) {
        self.collect_since = Some(self.collect_since.map_or(epoch, |since| since.min(epoch)));
        self.deletions += 1;
    }

    /// Makes a collection due for what both a branch and its children have replaced, although
    /// nothing was deleted. Returns whether there are such branches.
    pub(crate) fn collect_behind_forks(&mut self) -> bool {
        let forks = self.table.parents().filter_map(|(_, parent)| parent);
        let Some(oldest) = forks.map(|(_, epoch)| epoch).min() else { return false };
        self.collect_from(oldest);
        true
    }

    /// The record that states that no collection is due.
    pub(crate) fn record_of_nothing_to_collect(&self) -> Change {
        let counters = Counters { sweep_since: None, ..self.counters() };
        (COUNTERS_INDEX, Some(VersionRecord::Counters(counters).encode()))
    }

    /// Notes that the collection is finished (collection invariant 2).
    pub(crate) const fn note_collected(&mut self) {
        self.collect_since = None;
    }

    /// The record of the counters as they are.
    pub(crate) fn counters_record(&self) -> Vec<u8> {
        VersionRecord::Counters(self.counters()).encode()
    }

    fn counters(&self) -> Counters {
        counters_of(&self.table, self.collect_since)
    }

    /// Updates whether one epoch is pinned.
    fn pin(&mut self, branch: u32, epoch: u64) {
        let is_snapshot = self.table.snapshot_of(View { branch, epoch: Some(epoch) }).is_some();
        let Some(facts) = self.facts.get_mut(&branch) else { return };
        if is_snapshot || facts.forks_at(epoch).next().is_some() {
            facts.pins.insert(epoch);
        } else {
            facts.pins.remove(&epoch);
        }
    }

    /// Enters a record of the table that was read, or removes it. The records of a branch must be
    /// entered after those of its parent, or be followed by [`Self::refresh`].
    ///
    /// # Errors
    /// [`Error::Corrupted`].
    pub(crate) fn enter(&mut self, index: u64, value: Option<&[u8]>) -> Result<()> {
        let Some(value) = value else {
            self.take_out(index);
            return Ok(());
        };
        let record = VersionRecord::decode(index, value)
            .map_err(|malformed| Error::Corrupted(malformed.to_string()))?;
        match record {
            VersionRecord::Counters(counters) => {
                self.table.epoch = counters.epoch;
                self.table.main = counters.main;
                self.table.next_branch = counters.next_branch;
                // A collection is not in the log, so what a crash undid of it must be done again
                // (collection invariant 1).
                if let Some(since) = counters.sweep_since {
                    self.collect_from(since);
                }
            }
            VersionRecord::Branch { branch, name, parent, kind, time } => {
                let is_known = self.facts.contains_key(&branch);
                let is_same = is_known && self.table.parent(branch) == parent;
                match name {
                    Some(name) => {
                        self.table.enter_branch(Branch { branch, name, parent, time });
                    }
                    None => self.table.enter_ancestor(branch, parent),
                }
                self.table.enter_kind(branch, kind);
                match (is_known, is_same) {
                    (false, _) => self.add_branch(branch, parent),
                    (true, true) => self.note_head(branch),
                    // This happens only on a damaged volume, because parents never change.
                    (true, false) => self.refresh(),
                }
            }
            VersionRecord::Quota { client, limit_bytes, .. } => {
                self.table.enter_quota(client, Some(limit_bytes));
            }
            VersionRecord::Rearrangement { branch, tasks } => {
                self.set_rearrangement(Some(Rearrangement { branch, tasks }));
            }
            VersionRecord::Snapshot { branch, epoch, name, is_held, time, origin } => {
                self.take_out_snapshot(epoch);
                let snapshot = Snapshot { branch, epoch, time, name, is_held, origin };
                self.table.enter_snapshot(snapshot);
                self.pin(branch, epoch);
            }
        }
        Ok(())
    }

    fn take_out(&mut self, index: u64) {
        if index == REARRANGEMENT_INDEX {
            return self.set_rearrangement(None);
        }
        let branch = index.checked_sub(branch_index(0)).map(u32::try_from);
        if let Some(Ok(branch)) = branch {
            self.table.remove_branch(branch);
            self.remove_branch(branch);
        } else if let Some(client) = client_of_quota(index) {
            self.table.enter_quota(client, None);
        } else if let Some(epoch) = index.checked_sub(snapshot_index(0)) {
            self.take_out_snapshot(epoch);
        }
    }

    fn take_out_snapshot(&mut self, epoch: u64) {
        if let Some(branch) = self.table.snapshot_at(epoch).map(|snapshot| snapshot.branch) {
            self.table.remove_snapshot(epoch);
            self.pin(branch, epoch);
        }
    }

    /// Checks whether a table that was read is consistent.
    ///
    /// # Errors
    /// [`Error::Corrupted`].
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Corrupted(format!("the table of versions: {what}")));
        if !self.table.has_head(self.table.main) {
            return wrong("the main branch has no head");
        }
        let known = |branch| self.facts.contains_key(&branch);
        if self.facts.keys().any(|&branch| branch >= self.table.next_branch) {
            return wrong("a branch's number is to be given out again");
        }
        if self
            .table
            .snapshots()
            .any(|snapshot| snapshot.epoch >= self.table.epoch || !known(snapshot.branch))
        {
            return wrong("a snapshot is of no branch, or of the future");
        }
        for (branch, parent) in self.table.parents() {
            let is_sound =
                |(parent, epoch)| epoch < self.table.epoch && parent < branch && known(parent);
            if !parent.is_none_or(is_sound) {
                return wrong("a branch comes from none, or from the future");
            }
        }
        Ok(())
    }
}

const fn counters_of(table: &VersionTable, collect_since: Option<u64>) -> Counters {
    Counters {
        epoch: table.epoch,
        main: table.main,
        next_branch: table.next_branch,
        sweep_since: collect_since,
    }
}
