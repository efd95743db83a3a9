//! Changes of the version table: they are planned, entered in the log, and made.
//!
//! A change is a unit of records, and a unit can be refused until all of it is in the log. So a
//! change is planned on a copy of the table, which shares with the table what stays the same
//! ([`VersionTable`]). Making a planned change cannot fail.

use dendro_base::Timestamp;
use dendro_disk::{Branch, Result, Snapshot, VersionTable, View};
use dendro_format::VersionRecord;
use dendro_format::versions::{COUNTERS_INDEX, branch_index, quota_index, snapshot_index};
use smallvec::SmallVec;

use crate::versions::{Change, Versions, counters_of};

/// A change of the version table that was not made yet.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The table after the change.
    table: VersionTable,
    /// The snapshots that change, and the branches, as the views of their heads.
    touched: SmallVec<[View; 4]>,
    /// From which epoch on a collection becomes due, if the change makes one due.
    collect_since: Option<u64>,
    records: Vec<Change>,
}

impl Plan {
    /// The records of the table that change. If there is none, nothing changes.
    pub(crate) fn records(&self) -> &[Change] {
        &self.records
    }

    /// The snapshots that change, and the branches, as the views of their heads.
    pub(crate) fn touched(&self) -> &[View] {
        &self.touched
    }
}

impl Versions {
    /// What `change` returns, and what it would change.
    ///
    /// # Errors
    /// What `change` returns.
    pub(crate) fn plan<T>(
        &self,
        change: impl FnOnce(&mut VersionTable) -> Result<T>,
    ) -> Result<(T, Plan)> {
        let mut table = self.table.clone();
        let result = change(&mut table)?;
        let mut touched: SmallVec<[View; 4]> = SmallVec::from_slice(table.touched());
        // A branch must be known before its epochs can be pinned, and a parent before its children.
        touched.sort_unstable_by_key(|view| (view.epoch, view.branch));
        touched.dedup();
        let collect_since = touched.iter().filter_map(|view| self.due_after(&table, *view)).min();
        let mut records = Vec::with_capacity(touched.len() + 1);
        records.extend(touched.iter().map(|view| record_of(&table, *view)));
        records.extend(changed_quotas(&self.table, &table));
        // The log may have no record of a collection that is due although nothing was deleted. So
        // each deletion records the counters, whether they change or not.
        let since = self.collect_since.into_iter().chain(collect_since).min();
        let counters = counters_of(&table, since);
        if collect_since.is_some() || counters != self.counters() {
            records.push((COUNTERS_INDEX, Some(VersionRecord::Counters(counters).encode())));
        }
        Ok((result, Plan { table, touched, collect_since, records }))
    }

    /// Makes a change that was planned with the table as it is.
    pub(crate) fn make(&mut self, plan: Plan) {
        self.table = plan.table;
        for view in plan.touched {
            match view.epoch {
                None => self.follow_branch(view.branch),
                Some(epoch) => self.pin(view.branch, epoch),
            }
        }
        if let Some(since) = plan.collect_since {
            self.collect_from(since);
        }
    }

    /// Changes the table; returns which of its records change.
    #[cfg(test)]
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut VersionTable) -> Result<T>,
    ) -> Result<(T, Vec<Change>)> {
        let (result, plan) = self.plan(change)?;
        let records = plan.records().to_vec();
        self.make(plan);
        Ok((result, records))
    }

    /// Updates the facts about a changed branch.
    fn follow_branch(&mut self, branch: u32) {
        if !self.table.has_head(branch) && !self.table.is_ancestor(branch) {
            self.remove_branch(branch);
        } else if self.facts.contains_key(&branch) {
            self.note_head(branch);
        } else {
            self.add_branch(branch, self.table.parent(branch));
        }
    }

    /// The epoch from which on a collection becomes due when the table becomes `table`, in which
    /// `view` was changed: what only the old state of `view` saw is to be collected.
    fn due_after(&self, table: &VersionTable, View { branch, epoch }: View) -> Option<u64> {
        let has_head = table.has_head(branch);
        if let Some(epoch) = epoch {
            let is_gone = table.snapshot_of(View { branch, epoch: Some(epoch) }).is_none();
            return if is_gone { due_behind(table, branch, epoch) } else { None };
        }
        if !has_head && !table.is_ancestor(branch) {
            let Some((parent, epoch)) = self.table.parent(branch) else { return Some(0) };
            return Some(due_behind(table, parent, epoch).map_or(epoch, |due| due.min(epoch)));
        }
        let had_head = self.table.has_head(branch);
        if had_head && !has_head { due_behind(table, branch, u64::MAX) } else { None }
    }
}

/// The records of the quotas that differ in two tables. What the clients use is not in the log.
fn changed_quotas(before: &VersionTable, after: &VersionTable) -> Vec<Change> {
    let mut records = Vec::new();
    for (client, _) in before.quotas().filter(|(client, _)| after.quota_of(*client).is_none()) {
        records.push((quota_index(client), None));
    }
    let is_new =
        |(client, limit_bytes): &(u32, u64)| before.quota_of(*client) != Some(*limit_bytes);
    for (client, limit_bytes) in after.quotas().filter(is_new) {
        let record = VersionRecord::Quota { client, limit_bytes, used_bytes: None };
        records.push((record.index(), Some(record.encode())));
    }
    records
}

/// The epoch from which on a collection is due for what was retained for an epoch of `branch` that
/// is gone; 2⁶⁴ − 1 stands for its head. `None` for a branch that is gone as a whole.
fn due_behind(table: &VersionTable, branch: u32, epoch: u64) -> Option<u64> {
    let is_ancestor = table.is_ancestor(branch);
    if !is_ancestor && !table.has_head(branch) {
        return None;
    }
    let newest_pin = table.newest_pin(branch);
    if is_ancestor && newest_pin.is_none_or(|pin| pin < epoch) {
        // No version sees a newer entry that would show what was replaced, so the walk begins with
        // what the newest remaining version sees.
        let fork = table.parent(branch).map_or(0, |(_, epoch)| epoch);
        return Some(newest_pin.unwrap_or(fork));
    }
    Some(epoch)
}

/// The record of the snapshot that `view` names in `table`, or of the branch whose head it names.
fn record_of(table: &VersionTable, view: View) -> Change {
    if let Some(epoch) = view.epoch {
        let Snapshot { branch, epoch, time, name, is_held, origin } = match table.snapshot_of(view)
        {
            Some(snapshot) => snapshot.clone(),
            None => return (snapshot_index(epoch), None),
        };
        let record = VersionRecord::Snapshot { branch, epoch, name, is_held, time, origin };
        return (snapshot_index(epoch), Some(record.encode()));
    }
    let branch = view.branch;
    let head = table.branch(branch);
    if head.is_none() && !table.is_ancestor(branch) {
        return (branch_index(branch), None);
    }
    let (name, time) = match head {
        Some(Branch { name, time, .. }) => (Some(name.clone()), *time),
        None => (None, Timestamp(0)),
    };
    let (parent, kind) = (table.parent(branch), table.own_kind(branch));
    let record = VersionRecord::Branch { branch, name, parent, kind, time };
    (branch_index(branch), Some(record.encode()))
}
