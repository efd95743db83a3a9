//! The table of versions, as the engine looks at it with every change.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Bound;

use dendro_base::Timestamp;
use dendro_disk::{Branch, Error, Result, Snapshot, VersionTable, View};
use dendro_format::VersionRecord;
use dendro_format::versions::{COUNTERS_INDEX, Counters, branch_index, snapshot_index};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::line::{Line, Stretch};

/// A record of the table to be put, or removed.
type Change = (u64, Option<Vec<u8>>);

/// What is asked of a branch with every change.
#[derive(Debug, Default)]
struct Facts {
    has_head: bool,
    /// Epochs of it that must stay readable.
    pins: BTreeSet<u64>,
    /// Of these, the ones that branches were made from, and which.
    forks: BTreeMap<u64, SmallVec<[u32; 1]>>,
    /// What its head sees, or would.
    line: Line,
}

/// Who sees something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seers<'a> {
    /// A snapshot or a head does.
    pub(crate) has_view: bool,
    /// The moments, and the branches that were made from them, whose views may.
    pub(crate) forks: btree_map::Range<'a, u64, SmallVec<[u32; 1]>>,
}

/// All versions of the disk.
#[derive(Debug)]
pub(crate) struct Versions {
    table: VersionTable,
    facts: FxHashMap<u32, Facts>,
    /// See [`dendro_format::versions::CountersV1`].
    sweep_since: Option<u64>,
    /// How often there has come to be something to sweep.
    deletions: u64,
}

impl Versions {
    /// Those of a volume made at `created` that has had no other version yet.
    pub(crate) fn new(created: Timestamp) -> Self {
        let mut versions = Self {
            table: VersionTable::new(created),
            facts: FxHashMap::default(),
            sweep_since: None,
            deletions: 0,
        };
        versions.refresh();
        versions
    }

    pub(crate) const fn table(&self) -> &VersionTable {
        &self.table
    }

    /// The epoch that heads write in.
    pub(crate) const fn epoch(&self) -> u64 {
        self.table.epoch
    }

    pub(crate) const fn sweep_since(&self) -> Option<u64> {
        self.sweep_since
    }

    /// How often there has come to be something to sweep since the volume was opened.
    pub(crate) const fn deletions(&self) -> u64 {
        self.deletions
    }

    /// Whether nothing older than what is written in `epoch` can be seen from the head of `branch`.
    pub(crate) const fn is_first(&self, branch: u32, epoch: u64) -> bool {
        branch == 0 && epoch <= 1
    }

    /// What the head of `branch` sees.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn head_line(&self, branch: u32) -> Result<&Line> {
        match self.facts.get(&branch) {
            Some(facts) if facts.has_head => Ok(&facts.line),
            _ => Err(Error::NoSuchView(View { branch, epoch: None })),
        }
    }

    /// What `view` sees.
    ///
    /// # Errors
    /// When there is no such view.
    pub(crate) fn line(&self, view: View) -> Result<Line> {
        let Some(epoch) = view.epoch else { return self.head_line(view.branch).cloned() };
        match self.facts.get(&view.branch) {
            Some(facts) if self.table.snapshot_of(view).is_some() => {
                let mut line = facts.line.clone();
                line.0[0].last_epoch = epoch;
                Ok(line)
            }
            _ => Err(Error::NoSuchView(view)),
        }
    }

    /// What the head of `branch` sees, or would see if it had one; `None` when there is no such
    /// branch.
    pub(crate) fn whole_line(&self, branch: u32) -> Option<&Line> {
        self.facts.get(&branch).map(|facts| &facts.line)
    }

    /// What is seen from the moments that branches were made from, where no snapshot is, and the
    /// branch if it is the only one made from there.
    pub(crate) fn forks(&self) -> impl Iterator<Item = (Line, Option<u32>)> {
        let heads = self.table.branches.iter().map(|branch| (branch.branch, branch.parent));
        let mut forks: BTreeMap<(u32, u64), Vec<u32>> = BTreeMap::new();
        for (branch, parent) in heads.chain(self.table.ancestors.iter().copied()) {
            if let Some(parent) = parent {
                forks.entry(parent).or_default().push(branch);
            }
        }
        forks.into_iter().filter_map(|((branch, epoch), children)| {
            let view = View { branch, epoch: Some(epoch) };
            let mut line = self.whole_line(branch)?.clone();
            line.0[0].last_epoch = epoch;
            let only = (children.len() == 1).then(|| children[0]);
            self.table.snapshot_of(view).is_none().then_some((line, only))
        })
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
        let range = (Bound::Included(from), Bound::Excluded(to));
        let is_snapshot = |epoch: &u64| {
            let view = View { branch, epoch: Some(*epoch) };
            !facts.forks.contains_key(epoch) || self.table.snapshot_of(view).is_some()
        };
        let has_head = to == u64::MAX && facts.has_head;
        let has_view = has_head || facts.pins.range(range).any(is_snapshot);
        Seers { has_view, forks: facts.forks.range(range) }
    }

    /// The oldest of the snapshots and the head of `branch`; 2⁶⁴ − 2 for the head.
    pub(crate) fn oldest_view(&self, branch: u32) -> Option<u64> {
        let snapshot = self.table.snapshots_on(branch).first().map(|snapshot| snapshot.epoch);
        let head = || self.facts.get(&branch)?.has_head.then_some(u64::MAX - 1);
        snapshot.or_else(head)
    }

    /// Whether nobody but the head of `branch` looks at what was written in `older`, on its line, in
    /// `epoch`, and can be seen from there: all branches between are ancestors that have no other
    /// child and no snapshot since.
    pub(crate) fn is_alone_with(&self, branch: u32, older: u32, epoch: u64) -> bool {
        let Some(facts) = self.facts.get(&branch).filter(|facts| facts.pins.is_empty()) else {
            return false;
        };
        for Stretch { branch: parent, last_epoch: fork } in &facts.line.0[1..] {
            let Some(facts) = self.facts.get(parent).filter(|facts| !facts.has_head) else {
                return false;
            };
            let view = View { branch: *parent, epoch: Some(*fork) };
            let has_one_child = facts.forks.get(fork).is_some_and(|all| all.len() == 1);
            let is_older = *parent == older;
            let since = if is_older { epoch } else { 0 };
            let is_only_pin = facts.pins.range(since..).eq([fork]);
            if !has_one_child || !is_only_pin || self.table.snapshot_of(view).is_some() {
                return false;
            }
            if is_older {
                return true;
            }
        }
        false
    }

    /// Looks at the whole table again.
    pub(crate) fn refresh(&mut self) {
        self.facts.clear();
        let mut all: Vec<_> = self.table.parents().collect();
        // A parent comes before those that were made from it.
        all.sort_unstable_by_key(|(branch, _)| *branch);
        for (branch, parent) in all {
            let mut line = Line(SmallVec::from_slice(&[Stretch { branch, last_epoch: u64::MAX }]));
            if let Some((parent, epoch)) = parent
                && let Some(facts) = self.facts.get_mut(&parent)
            {
                facts.pins.insert(epoch);
                facts.forks.entry(epoch).or_default().push(branch);
                line.0.push(Stretch { branch: parent, last_epoch: epoch });
                line.0.extend_from_slice(&facts.line.0[1..]);
            }
            let facts = Facts {
                has_head: self.table.has_head(branch),
                pins: self.table.snapshots_on(branch).iter().map(|one| one.epoch).collect(),
                forks: BTreeMap::new(),
                line,
            };
            self.facts.insert(branch, facts);
        }
    }

    /// Changes the table, and says which of its records change.
    ///
    /// # Errors
    /// What `change` answers; nothing is changed then.
    pub(crate) fn change<T>(
        &mut self,
        touched: impl FnOnce(&T) -> Option<View>,
        change: impl FnOnce(&mut VersionTable) -> Result<T>,
    ) -> Result<(T, Vec<Change>)> {
        let branches = self.table.branches.clone();
        let ancestors = self.table.ancestors.clone();
        let counters = self.counters();
        let result = change(&mut self.table)?;
        let mut changes = Vec::new();
        let is_same = branches == self.table.branches && ancestors == self.table.ancestors;
        if !is_same {
            self.note_branches(&branches, &ancestors, &mut changes);
            self.refresh();
        }
        if let Some(View { branch, epoch: Some(epoch) }) = touched(&result) {
            let view = View { branch, epoch: Some(epoch) };
            let snapshot = self.table.snapshot_of(view).cloned();
            if snapshot.is_none() {
                self.sweep_behind(branch, epoch);
            }
            let record = snapshot.map(|snapshot| record_of(snapshot).encode());
            changes.push((snapshot_index(epoch), record));
            self.pin(branch, epoch);
        }
        if self.counters() != counters {
            changes.push((COUNTERS_INDEX, Some(self.counters_record())));
        }
        Ok((result, changes))
    }

    /// The records of branches that are not as they were; and what was seen of the old ones alone
    /// is to be swept.
    fn note_branches(
        &mut self,
        branches: &[Branch],
        ancestors: &[(u32, Option<(u32, u64)>)],
        changes: &mut Vec<Change>,
    ) {
        let all = |branches: &[Branch], ancestors: &[(u32, Option<(u32, u64)>)]| {
            let heads =
                branches.iter().map(|branch| (branch.branch, branch.parent, Some(branch.clone())));
            let rest = ancestors.iter().map(|(branch, parent)| (*branch, *parent, None));
            heads.chain(rest).collect::<Vec<_>>()
        };
        let before = all(branches, ancestors);
        let after = all(&self.table.branches, &self.table.ancestors);
        for entry in after.iter().filter(|entry| !before.contains(entry)) {
            let (branch, parent, head) = entry;
            let record = VersionRecord::Branch {
                branch: *branch,
                name: head.as_ref().map(|head| head.name.clone()),
                parent: *parent,
                time: head.as_ref().map_or(Timestamp(0), |head| head.time),
            };
            changes.push((branch_index(*branch), Some(record.encode())));
        }
        for (branch, parent, head) in &before {
            let is_left = after.iter().find(|(other, ..)| other == branch);
            match is_left {
                None => {
                    changes.push((branch_index(*branch), None));
                    self.sweep_from(parent.map_or(0, |(_, fork)| fork));
                    if let Some((parent, epoch)) = parent {
                        self.sweep_behind(*parent, *epoch);
                    }
                }
                Some((.., None)) if head.is_some() => self.sweep_behind(*branch, u64::MAX),
                Some(_) => {}
            }
        }
    }

    /// What was kept for a moment of `branch` that is gone, 2⁶⁴ − 1 for its head, is to be swept. Of
    /// a branch that is gone as a whole, all is ([`Self::note_branches`]).
    fn sweep_behind(&mut self, branch: u32, epoch: u64) {
        let Some((_, parent)) = self.table.parents().find(|(other, _)| *other == branch) else {
            return;
        };
        let is_last =
            !self.table.has_head(branch) && self.table.pins(branch).all(|pin| pin < epoch);
        let since = if is_last {
            // Nobody sees anything newer that would tell what gave way.
            let fork = parent.map_or(0, |(_, epoch)| epoch);
            self.table.pins(branch).max().unwrap_or(fork)
        } else {
            epoch
        };
        self.sweep_from(since);
    }

    fn sweep_from(&mut self, epoch: u64) {
        self.sweep_since = Some(self.sweep_since.map_or(epoch, |since| since.min(epoch)));
        self.deletions += 1;
    }

    /// What both a branch and one that was made from it have replaced waits to be swept, though
    /// nothing was deleted. Says whether there are such branches.
    pub(crate) fn sweep_behind_forks(&mut self) -> bool {
        let forks = self.table.parents().filter_map(|(_, parent)| parent);
        let Some(oldest) = forks.map(|(_, epoch)| epoch).min() else { return false };
        self.sweep_from(oldest);
        true
    }

    /// Nothing waits to be swept any more. Returns the record that says so.
    pub(crate) fn has_been_swept(&mut self) -> Change {
        self.sweep_since = None;
        (COUNTERS_INDEX, Some(self.counters_record()))
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
            sweep_since: self.sweep_since,
        }
    }

    /// Brings one pin up to date with the table.
    fn pin(&mut self, branch: u32, epoch: u64) {
        let is_pinned = self.table.snapshot_of(View { branch, epoch: Some(epoch) }).is_some()
            || self.table.pins(branch).any(|pin| pin == epoch);
        if let Some(facts) = self.facts.get_mut(&branch) {
            if is_pinned {
                facts.pins.insert(epoch);
            } else {
                facts.pins.remove(&epoch);
            }
        }
    }

    /// Enters a record of the table that was read, or takes it out. [`Self::refresh`] must follow
    /// where this says so.
    ///
    /// # Errors
    /// [`Error::Corrupted`].
    pub(crate) fn enter(&mut self, index: u64, value: Option<&[u8]>) -> Result<bool> {
        let Some(value) = value else { return Ok(self.take_out(index)) };
        let record = VersionRecord::decode(index, value)
            .map_err(|malformed| Error::Corrupted(malformed.to_string()))?;
        match record {
            VersionRecord::Counters(counters) => {
                self.table.epoch = counters.epoch;
                self.table.main = counters.main;
                self.table.next_branch = counters.next_branch;
                // Sweeping is not in the log: what a crash undid of it must be done again.
                if let Some(since) = counters.sweep_since {
                    self.sweep_from(since);
                }
                Ok(false)
            }
            VersionRecord::Branch { branch, name, parent, time } => {
                self.take_out(index);
                match name {
                    Some(name) => {
                        let heads = &mut self.table.branches;
                        let at = heads.partition_point(|other| other.branch < branch);
                        heads.insert(at, Branch { branch, name, parent, time });
                    }
                    None => {
                        let rest = &mut self.table.ancestors;
                        let at = rest.partition_point(|(other, _)| *other < branch);
                        rest.insert(at, (branch, parent));
                    }
                }
                Ok(true)
            }
            VersionRecord::Snapshot { branch, epoch, name, is_held, time } => {
                self.take_out(index);
                let snapshots = &mut self.table.snapshots;
                let at = snapshots
                    .partition_point(|other| (other.branch, other.epoch) < (branch, epoch));
                snapshots.insert(at, Snapshot { branch, epoch, time, name, is_held });
                self.pin(branch, epoch);
                Ok(false)
            }
        }
    }

    fn take_out(&mut self, index: u64) -> bool {
        let found = |snapshot: &Snapshot| snapshot_index(snapshot.epoch) == index;
        if let Some(at) = self.table.snapshots.iter().rposition(found) {
            let Snapshot { branch, epoch, .. } = self.table.snapshots.remove(at);
            self.pin(branch, epoch);
            return false;
        }
        self.table.branches.retain(|branch| branch_index(branch.branch) != index);
        self.table.ancestors.retain(|(branch, _)| branch_index(*branch) != index);
        true
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
            .snapshots
            .iter()
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
