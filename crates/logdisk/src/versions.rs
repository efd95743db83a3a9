//! The table of versions, as the engine looks at it with every change.
//!
//! Beside the table itself there are facts of each branch, and the ancestries of all ([`crate::versions::ancestry`]).
//! They follow the table entry by entry: one more version costs the same beside thousands.

pub(crate) mod ancestry;
pub(crate) mod inheritance;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::ops::Bound;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::{AtomicU32, Ordering};
use dendro_disk::{Branch, Error, Result, Snapshot, VersionTable, View};
use dendro_format::VersionRecord;
use dendro_format::versions::{COUNTERS_INDEX, Counters, branch_index, snapshot_index};
use rustc_hash::FxHashMap;

use crate::versions::ancestry::{Ancestry, AncestrySpan, BranchTree};

/// A record of the table to be put, or removed.
type Change = (u64, Option<Vec<u8>>);

/// No branch has this number: it would be the last, after which there is no next.
const NO_BRANCH: u32 = u32::MAX;

/// What is asked of a branch with every change.
#[derive(Debug)]
struct Facts {
    has_head: bool,
    /// Epochs of it that must stay readable.
    pins: BTreeSet<u64>,
    /// Of these, the ones that branches were made from, and which.
    forks: BTreeSet<(u64, u32)>,
    /// An ancestor to which from here on are mere passages ([`Versions::is_passage`]), or
    /// [`NO_BRANCH`] where none was looked for. It stays right, since passages stay passages.
    passage_end: AtomicU32,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            has_head: false,
            pins: BTreeSet::new(),
            forks: BTreeSet::new(),
            passage_end: AtomicU32::new(NO_BRANCH),
        }
    }
}

impl Facts {
    /// The branches that were made from moments from `from` to before `to`.
    fn forks_in(&self, from: u64, to: u64) -> btree_set::Range<'_, (u64, u32)> {
        self.forks.range((from, 0)..(to, 0))
    }

    /// The branches that were made from `epoch`.
    fn forks_at(&self, epoch: u64) -> btree_set::Range<'_, (u64, u32)> {
        self.forks.range((epoch, 0)..=(epoch, u32::MAX))
    }
}

/// Who sees something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seers<'a> {
    /// A snapshot or a head does.
    pub(crate) has_view: bool,
    /// The moments, and the branches that were made from them, whose views may.
    pub(crate) forks: btree_set::Range<'a, (u64, u32)>,
}

/// All versions of the disk.
#[derive(Debug)]
pub(crate) struct Versions {
    table: VersionTable,
    facts: FxHashMap<u32, Facts>,
    tree: BranchTree,
    /// See [`dendro_format::versions::CountersV1`].
    collect_since: Option<u64>,
    /// How often there has come to be something to collect.
    deletions: u64,
}

impl Versions {
    /// Those of a volume made at `created` that has had no other version yet.
    pub(crate) fn new(created: Timestamp) -> Self {
        let mut versions = Self {
            table: VersionTable::new(created),
            facts: FxHashMap::default(),
            tree: BranchTree::default(),
            collect_since: None,
            deletions: 0,
        };
        versions.refresh();
        versions
    }

    pub(crate) const fn table(&self) -> &VersionTable {
        &self.table
    }

    /// Whether something besides the head of one branch can be seen.
    pub(crate) fn are_several(&self) -> bool {
        self.facts.len() > 1 || self.table.snapshots().next().is_some()
    }

    /// The epoch that heads write in.
    pub(crate) const fn epoch(&self) -> u64 {
        self.table.epoch
    }

    pub(crate) const fn collect_since(&self) -> Option<u64> {
        self.collect_since
    }

    /// How often there has come to be something to collect since the volume was opened.
    pub(crate) const fn deletions(&self) -> u64 {
        self.deletions
    }

    /// Whether nothing older than what is written in `epoch` can be seen from the head of `branch`.
    pub(crate) const fn is_first(&self, branch: u32, epoch: u64) -> bool {
        branch == 0 && epoch <= 1
    }

    /// The ancestries of all branches.
    pub(crate) const fn tree(&self) -> &BranchTree {
        &self.tree
    }

    /// What the head of `branch` sees.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn head_ancestry(&self, branch: u32) -> Result<Ancestry<'_>> {
        match self.facts.get(&branch) {
            Some(facts) if facts.has_head => Ok(self.tree.ancestry(branch, u64::MAX)),
            _ => Err(Error::NoSuchView(View { branch, epoch: None })),
        }
    }

    /// What `view` sees.
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

    /// What the head of `branch` sees, or would see if it had one; `None` when there is no such
    /// branch.
    pub(crate) fn whole_ancestry(&self, branch: u32) -> Option<Ancestry<'_>> {
        self.facts.contains_key(&branch).then(|| self.tree.ancestry(branch, u64::MAX))
    }

    /// The moments that branches were made from, where no snapshot is: branch and epoch, and the
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

    /// Whether a version of `branch` sees what was written in it in epoch `from` and gave way in
    /// epoch `to`; 2⁶⁴ − 1 when it has not.
    pub(crate) fn is_seen(&self, branch: u32, from: u64, to: u64) -> bool {
        if from >= to {
            return false;
        }
        self.facts.get(&branch).is_some_and(|facts| {
            let range = (Bound::Included(from), Bound::Excluded(to));
            (to == u64::MAX && facts.has_head) || facts.pins.range(range).next().is_some()
        })
    }

    /// The newest moment of `branch` that must stay readable: whatever the head sees that was written
    /// up to then is seen from there too.
    pub(crate) fn newest_pin(&self, branch: u32) -> Option<u64> {
        self.facts.get(&branch)?.pins.last().copied()
    }

    /// Those who look at what was written in `branch` from epoch `from` to before `to`.
    pub(crate) fn seers(&self, branch: u32, from: u64, to: u64) -> Seers<'_> {
        let Some(facts) = self.facts.get(&branch).filter(|_| from < to) else {
            return Seers::default();
        };
        let is_snapshot = |epoch: u64| {
            let view = View { branch, epoch: Some(epoch) };
            facts.forks_at(epoch).next().is_none() || self.table.snapshot_of(view).is_some()
        };
        let has_head = to == u64::MAX && facts.has_head;
        let mut pins = facts.pins.range((Bound::Included(from), Bound::Excluded(to)));
        let has_view = has_head || pins.any(|epoch| is_snapshot(*epoch));
        Seers { has_view, forks: facts.forks_in(from, to) }
    }

    /// The oldest of the snapshots and the head of `branch`; 2⁶⁴ − 2 for the head.
    pub(crate) fn oldest_view(&self, branch: u32) -> Option<u64> {
        let snapshot = self.table.snapshots_on(branch).next().map(|snapshot| snapshot.epoch);
        let head = || self.facts.get(&branch)?.has_head.then_some(u64::MAX - 1);
        snapshot.or_else(head)
    }

    /// Whether nobody but the head of `branch` looks at what was written in `older`, on its ancestry, in
    /// `epoch`, and can be seen from there: all branches between are ancestors that have no other
    /// child and no snapshot since.
    pub(crate) fn is_alone_with(&self, branch: u32, older: u32, epoch: u64) -> bool {
        if self.facts.get(&branch).is_none_or(|facts| !facts.pins.is_empty()) {
            return false;
        }
        let Some(end) = self.end_of_passages(branch).filter(|_| older < branch) else {
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

    /// Whether nothing is left of `branch` but that one other was made from it. No other can be from
    /// then on, nor a snapshot of it.
    fn is_passage(&self, branch: u32) -> bool {
        self.facts.get(&branch).is_some_and(|facts| {
            !facts.has_head
                && facts.pins.len() == 1
                && facts.forks.len() == 1
                && self.table.snapshots_on(branch).next().is_none()
        })
    }

    /// The nearest ancestor of `branch` that is not a mere passage, or the first of all.
    fn end_of_passages(&self, branch: u32) -> Option<u32> {
        let next = |at: u32| {
            let known = self.facts.get(&at)?.passage_end.load(Ordering::Relaxed);
            let parent = || self.is_passage(at).then(|| self.tree.parent(at)).flatten();
            if known == NO_BRANCH { parent().map(|parent| parent.branch) } else { Some(known) }
        };
        let first = self.tree.parent(branch)?.branch;
        let end = std::iter::successors(Some(first), |at| next(*at)).last()?;
        // Whoever comes this way again finds it in a step.
        let mut at = first;
        while at != end {
            let passed = at;
            at = next(passed)?;
            self.facts.get(&passed)?.passage_end.store(end, Ordering::Relaxed);
        }
        Some(end)
    }

    /// Looks at the whole table again.
    pub(crate) fn refresh(&mut self) {
        self.facts.clear();
        self.tree = BranchTree::default();
        let mut all: Vec<_> = self.table.parents().collect();
        // A parent comes before those that were made from it.
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

    /// Changes the table, and says which of its records change.
    ///
    /// # Errors
    /// What `change` answers; nothing is changed then.
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut VersionTable) -> Result<T>,
    ) -> Result<(T, Vec<Change>)> {
        let (counters, deletions) = (self.counters(), self.deletions);
        let result = change(&mut self.table)?;
        let mut touched = self.table.touched().to_vec();
        touched.sort_unstable_by_key(|view| (view.epoch, view.branch));
        touched.dedup();
        let mut changes = Vec::with_capacity(touched.len() + 1);
        for view in touched {
            changes.push(match view.epoch {
                None => self.follow_branch(view.branch),
                Some(epoch) => self.follow_snapshot(view.branch, epoch),
            });
        }
        // That something waits to be swept may not have been told before, if it was no deletion.
        if self.counters() != counters || self.deletions != deletions {
            changes.push((COUNTERS_INDEX, Some(self.counters_record())));
        }
        Ok((result, changes))
    }

    /// Which of the table's records `change` may change.
    pub(crate) fn touched_by<T>(
        &self,
        change: impl FnOnce(&mut VersionTable) -> Result<T>,
    ) -> Vec<u64> {
        let mut table = self.table.clone();
        if change(&mut table).is_err() {
            return Vec::new();
        }
        let record = |view: &View| match view.epoch {
            None => branch_index(view.branch),
            Some(epoch) => snapshot_index(epoch),
        };
        std::iter::once(COUNTERS_INDEX).chain(table.touched().iter().map(record)).collect()
    }

    /// The record of a branch that is not as it was; and what was seen of the old one alone is to be
    /// swept.
    fn follow_branch(&mut self, branch: u32) -> Change {
        let had_head = self.facts.get(&branch).map(|facts| facts.has_head);
        let head = self.table.branch(branch);
        if head.is_none() && !self.table.is_ancestor(branch) {
            let parent = self.tree.parent(branch);
            self.collect_from(parent.map_or(0, |parent| parent.last_epoch));
            if let Some(parent) = parent {
                self.collect_behind(parent.branch, parent.last_epoch);
            }
            self.remove_branch(branch);
            return (branch_index(branch), None);
        }
        let record = VersionRecord::Branch {
            branch,
            name: head.map(|head| head.name.clone()),
            parent: self.table.parent(branch),
            time: head.map_or(Timestamp(0), |head| head.time),
        };
        match (had_head, head.is_some()) {
            (None, _) => self.add_branch(branch, self.table.parent(branch)),
            (Some(true), false) => self.collect_behind(branch, u64::MAX),
            _ => {}
        }
        self.note_head(branch);
        (branch_index(branch), Some(record.encode()))
    }

    /// The record of a snapshot that is not as it was; if it is gone, what was kept for it is to be
    /// swept.
    fn follow_snapshot(&mut self, branch: u32, epoch: u64) -> Change {
        let snapshot = self.table.snapshot_of(View { branch, epoch: Some(epoch) }).cloned();
        if snapshot.is_none() {
            self.collect_behind(branch, epoch);
        }
        self.pin(branch, epoch);
        (snapshot_index(epoch), snapshot.map(|snapshot| record_of(snapshot).encode()))
    }

    fn note_head(&mut self, branch: u32) {
        let has_head = self.table.has_head(branch);
        if let Some(facts) = self.facts.get_mut(&branch) {
            facts.has_head = has_head;
        }
    }

    /// What was kept for a moment of `branch` that is gone, 2⁶⁴ − 1 for its head, is to be swept. Of
    /// a branch that is gone as a whole, all is ([`Self::follow_branch`]).
    fn collect_behind(&mut self, branch: u32, epoch: u64) {
        let is_ancestor = self.table.is_ancestor(branch);
        if !is_ancestor && !self.table.has_head(branch) {
            return;
        }
        let newest_pin = self.table.newest_pin(branch);
        let since = if is_ancestor && newest_pin.is_none_or(|pin| pin < epoch) {
            // Nobody sees anything newer that would tell what gave way.
            let fork = self.table.parent(branch).map_or(0, |(_, epoch)| epoch);
            newest_pin.unwrap_or(fork)
        } else {
            epoch
        };
        self.collect_from(since);
    }

    fn collect_from(&mut self, epoch: u64) {
        self.collect_since = Some(self.collect_since.map_or(epoch, |since| since.min(epoch)));
        self.deletions += 1;
    }

    /// What both a branch and one that was made from it have replaced waits to be swept, though
    /// nothing was deleted. Says whether there are such branches.
    pub(crate) fn collect_behind_forks(&mut self) -> bool {
        let forks = self.table.parents().filter_map(|(_, parent)| parent);
        let Some(oldest) = forks.map(|(_, epoch)| epoch).min() else { return false };
        self.collect_from(oldest);
        true
    }

    /// The record that says that nothing is left to collect.
    pub(crate) fn record_of_nothing_to_collect(&self) -> Change {
        let counters = Counters { sweep_since: None, ..self.counters() };
        (COUNTERS_INDEX, Some(VersionRecord::Counters(counters).encode()))
    }

    /// Nothing is left to collect.
    pub(crate) const fn note_collected(&mut self) {
        self.collect_since = None;
    }

    /// The record of the counters as they are.
    pub(crate) fn counters_record(&self) -> Vec<u8> {
        VersionRecord::Counters(self.counters()).encode()
    }

    fn counters(&self) -> Counters {
        Counters {
            epoch: self.table.epoch,
            main: self.table.main,
            next_branch: self.table.next_branch,
            sweep_since: self.collect_since,
        }
    }

    /// Brings one pin up to date.
    fn pin(&mut self, branch: u32, epoch: u64) {
        let is_snapshot = self.table.snapshot_of(View { branch, epoch: Some(epoch) }).is_some();
        let Some(facts) = self.facts.get_mut(&branch) else { return };
        if is_snapshot || facts.forks_at(epoch).next().is_some() {
            facts.pins.insert(epoch);
        } else {
            facts.pins.remove(&epoch);
        }
    }

    /// Enters a record of the table that was read, or takes it out. Those of a branch must be entered
    /// after its parent's, or be followed by [`Self::refresh`].
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
                // Collecting is not in the log: what a crash undid of it must be done again.
                if let Some(since) = counters.sweep_since {
                    self.collect_from(since);
                }
            }
            VersionRecord::Branch { branch, name, parent, time } => {
                let is_known = self.facts.contains_key(&branch);
                let is_same = is_known && self.table.parent(branch) == parent;
                match name {
                    Some(name) => {
                        self.table.enter_branch(Branch { branch, name, parent, time });
                    }
                    None => self.table.enter_ancestor(branch, parent),
                }
                match (is_known, is_same) {
                    (false, _) => self.add_branch(branch, parent),
                    (true, true) => self.note_head(branch),
                    // On a damaged volume alone: parents never change.
                    (true, false) => self.refresh(),
                }
            }
            VersionRecord::Snapshot { branch, epoch, name, is_held, time } => {
                self.take_out_snapshot(epoch);
                self.table.enter_snapshot(Snapshot { branch, epoch, time, name, is_held });
                self.pin(branch, epoch);
            }
        }
        Ok(())
    }

    fn take_out(&mut self, index: u64) {
        let branch = index.checked_sub(branch_index(0)).map(u32::try_from);
        if let Some(Ok(branch)) = branch {
            self.table.remove_branch(branch);
            self.remove_branch(branch);
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

    /// Says whether a table that was read makes sense.
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

fn record_of(snapshot: Snapshot) -> VersionRecord {
    let Snapshot { branch, epoch, time, name, is_held } = snapshot;
    VersionRecord::Snapshot { branch, epoch, name, is_held, time }
}
