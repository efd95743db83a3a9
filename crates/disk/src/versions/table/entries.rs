//! The entries of a table of versions, and the indexes by which they are found.
//!
//! Finding, adding and removing an entry takes O(log n), and copying a table takes O(1): its parts
//! are persistent maps, whose copies share what they have in common. So a copy can be returned to a
//! caller, or changed for a trial, even with tens of thousands of versions.

use std::ops::RangeInclusive;

use dendro_base::ClientKind;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};

use crate::types::View;
use crate::versions::version::{Branch, FIRST_CLIENT, Snapshot};

/// The branch and epoch that a branch was made from; `None` for the first.
pub(super) type Parent = Option<(u32, u64)>;

/// All versions that a disk has. Cheap to copy, whatever their number.
#[derive(Clone, Debug)]
pub struct VersionTable {
    /// The number of the main branch, which names without a branch refer to.
    pub main: u32,
    /// The current epoch, in which heads are written.
    pub epoch: u64,
    /// The number of the next branch.
    pub next_branch: u32,
    /// The branches with a head.
    branches: RedBlackTreeMapSync<u32, Branch>,
    /// The branches without a head, and what they were made from.
    ancestors: RedBlackTreeMapSync<u32, Parent>,
    /// The snapshots, by branch and epoch.
    snapshots: RedBlackTreeMapSync<(u32, u64), Snapshot>,
    /// The snapshots' branches by epoch: each ends one, so no two have the same.
    moments: RedBlackTreeMapSync<u64, u32>,
    /// The kinds of the branches that have one, with a head or without.
    kinds: RedBlackTreeMapSync<u32, ClientKind>,
    /// The quotas of the clients that have one, by the clients' numbers.
    quotas: RedBlackTreeMapSync<u32, u64>,
    branch_names: RedBlackTreeMapSync<String, u32>,
    snapshot_names: RedBlackTreeMapSync<String, (u32, u64)>,
    /// Branches by what they were made from: parent, epoch, and the branch itself.
    forks: RedBlackTreeSetSync<(u32, u64, u32)>,
    /// See [`Self::touched`].
    touched: Vec<View>,
}

/// Whether the same versions are in both.
impl PartialEq for VersionTable {
    fn eq(&self, other: &Self) -> bool {
        let counters = |table: &Self| (table.main, table.epoch, table.next_branch);
        counters(self) == counters(other)
            && self.branches == other.branches
            && self.ancestors == other.ancestors
            && self.snapshots == other.snapshots
            && self.kinds == other.kinds
            && self.quotas == other.quotas
    }
}

impl Eq for VersionTable {}

/// The keys of one branch, up to an epoch.
fn upto(branch: u32, last_epoch: u64) -> RangeInclusive<(u32, u64)> {
    (branch, 0)..=(branch, last_epoch)
}

/// Queries.
impl VersionTable {
    /// A table without entries.
    pub(super) fn without_branches() -> Self {
        Self {
            main: 0,
            epoch: 1,
            next_branch: 1,
            branches: RedBlackTreeMapSync::new_sync(),
            ancestors: RedBlackTreeMapSync::new_sync(),
            snapshots: RedBlackTreeMapSync::new_sync(),
            moments: RedBlackTreeMapSync::new_sync(),
            kinds: RedBlackTreeMapSync::new_sync(),
            quotas: RedBlackTreeMapSync::new_sync(),
            branch_names: RedBlackTreeMapSync::new_sync(),
            snapshot_names: RedBlackTreeMapSync::new_sync(),
            forks: RedBlackTreeSetSync::new_sync(),
            touched: Vec::new(),
        }
    }

    /// The branches with a head, in order of their numbers.
    pub fn branches(&self) -> impl DoubleEndedIterator<Item = &Branch> + ExactSizeIterator {
        self.branches.values()
    }

    /// The branches that have no head any more, but have snapshots or other branches that were made
    /// from them: number and parent, in order of the numbers.
    pub fn ancestors(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u32, Option<(u32, u64)>)> + ExactSizeIterator {
        self.ancestors.iter().map(|(branch, parent)| (*branch, *parent))
    }

    /// The snapshots, in order of branch and epoch.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = &Snapshot> + ExactSizeIterator {
        self.snapshots.values()
    }

    /// The snapshots of `branch`, oldest first.
    pub fn snapshots_on(&self, branch: u32) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots_upto(branch, u64::MAX)
    }

    /// As [`Self::snapshots_on`], up to that of `last_epoch`.
    pub(super) fn snapshots_upto(
        &self,
        branch: u32,
        last_epoch: u64,
    ) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots.range(upto(branch, last_epoch)).map(|(_, snapshot)| snapshot)
    }

    /// The epochs of `branch` that other branches were made from, and these branches, in order.
    pub fn forks_on(&self, branch: u32) -> impl DoubleEndedIterator<Item = (u64, u32)> {
        let all = (branch, 0, 0)..=(branch, u64::MAX, u32::MAX);
        self.forks.range(all).map(|(_, epoch, child)| (*epoch, *child))
    }

    /// All branches, with a head or without, and what they were made from.
    pub fn parents(&self) -> impl Iterator<Item = (u32, Option<(u32, u64)>)> {
        let with_head = self.branches().map(|branch| (branch.branch, branch.parent));
        with_head.chain(self.ancestors())
    }

    /// The branch with this number, if it has a head.
    #[must_use]
    pub fn branch(&self, branch: u32) -> Option<&Branch> {
        self.branches.get(&branch)
    }

    /// Whether `branch` is one that has no head any more.
    #[must_use]
    pub fn is_ancestor(&self, branch: u32) -> bool {
        self.ancestors.contains_key(&branch)
    }

    /// What `branch`, with a head or without, was made from; `None` for the first branch, and for a
    /// branch that does not exist.
    #[must_use]
    pub fn parent(&self, branch: u32) -> Option<(u32, u64)> {
        match self.branches.get(&branch) {
            Some(branch) => branch.parent,
            None => *self.ancestors.get(&branch)?,
        }
    }

    /// The branch that has a head and is called `name`.
    #[must_use]
    pub fn branch_named(&self, name: &str) -> Option<&Branch> {
        self.branch(*self.branch_names.get(name)?)
    }

    /// The snapshot called `name`.
    #[must_use]
    pub fn snapshot_named(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots.get(self.snapshot_names.get(name)?)
    }

    /// The snapshot that `view` names.
    #[must_use]
    pub fn snapshot_of(&self, view: View) -> Option<&Snapshot> {
        self.snapshots.get(&(view.branch, view.epoch?))
    }

    /// The snapshot, of any branch, that ended `epoch`.
    #[must_use]
    pub fn snapshot_at(&self, epoch: u64) -> Option<&Snapshot> {
        self.snapshots.get(&(*self.moments.get(&epoch)?, epoch))
    }

    /// The kind that `branch` itself was given, with a head or without.
    #[must_use]
    pub fn own_kind(&self, branch: u32) -> Option<ClientKind> {
        self.kinds.get(&branch).copied()
    }

    /// The branches that have a kind of their own, in order of their numbers.
    pub(super) fn branches_with_kinds(&self) -> impl Iterator<Item = (u32, ClientKind)> {
        self.kinds.iter().map(|(branch, kind)| (*branch, *kind))
    }

    /// The quotas of clients: their numbers, in order, and the bytes.
    pub fn quotas(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.quotas.iter().map(|(client, limit_bytes)| (*client, *limit_bytes))
    }

    /// The quota of the client with this number, if it has one.
    #[must_use]
    pub fn quota_of(&self, client: u32) -> Option<u64> {
        self.quotas.get(&client).copied()
    }

    /// What the last change has added, changed or removed: snapshots, and branches, with a head or
    /// without, as the views of their heads. Some perhaps twice. Quotas are not among it.
    #[must_use]
    pub fn touched(&self) -> &[View] {
        &self.touched
    }
}

/// Entries as they are stored on disk, which are added and removed without regard to the rules.
impl VersionTable {
    /// Adds a branch with a head, in place of any branch with its number, whose kind it keeps.
    pub fn enter_branch(&mut self, branch: Branch) {
        self.begin_change();
        self.put_branch(branch);
    }

    /// Gives the branch with this number a kind, or none.
    pub fn enter_kind(&mut self, branch: u32, kind: Option<ClientKind>) {
        match kind {
            Some(kind) => self.kinds.insert_mut(branch, kind),
            None => drop(self.kinds.remove_mut(&branch)),
        }
    }

    /// Gives the client with this number a quota, or none.
    pub fn enter_quota(&mut self, client: u32, limit_bytes: Option<u64>) {
        match limit_bytes {
            Some(limit_bytes) => self.quotas.insert_mut(client, limit_bytes),
            None => drop(self.quotas.remove_mut(&client)),
        }
    }

    /// Adds a branch without a head, in place of any branch with its number, whose kind it keeps.
    pub fn enter_ancestor(&mut self, branch: u32, parent: Option<(u32, u64)>) {
        self.begin_change();
        self.put_ancestor(branch, parent);
    }

    /// Removes the branch with this number, with a head or without.
    pub fn remove_branch(&mut self, branch: u32) {
        self.begin_change();
        self.take_branch(branch);
    }

    /// Adds a snapshot, in place of any snapshot with its epoch.
    pub fn enter_snapshot(&mut self, snapshot: Snapshot) {
        self.begin_change();
        self.put_snapshot(snapshot);
    }

    /// Removes the snapshot that ended `epoch`.
    pub fn remove_snapshot(&mut self, epoch: u64) {
        self.begin_change();
        self.take_snapshot(epoch);
    }

    /// Forgets what the last change has touched.
    pub(super) fn begin_change(&mut self) {
        self.touched.clear();
    }

    pub(super) fn put_branch(&mut self, branch: Branch) {
        self.take_but_kind(branch.branch);
        self.put_fork(branch.branch, branch.parent);
        self.branch_names.insert_mut(branch.name.clone(), branch.branch);
        self.branches.insert_mut(branch.branch, branch);
    }

    pub(super) fn put_ancestor(&mut self, branch: u32, parent: Parent) {
        self.take_but_kind(branch);
        self.put_fork(branch, parent);
        self.ancestors.insert_mut(branch, parent);
    }

    fn put_fork(&mut self, branch: u32, parent: Parent) {
        if let Some((parent, epoch)) = parent {
            self.forks.insert_mut((parent, epoch, branch));
        }
    }

    pub(super) fn take_branch(&mut self, branch: u32) {
        self.take_but_kind(branch);
        self.kinds.remove_mut(&branch);
        // A client ends with the branch that it began with, but the first one has no end.
        if branch != FIRST_CLIENT {
            self.quotas.remove_mut(&branch);
        }
    }

    fn take_but_kind(&mut self, branch: u32) {
        self.touched.push(View { branch, epoch: None });
        if let Some((parent, epoch)) = self.parent(branch) {
            self.forks.remove_mut(&(parent, epoch, branch));
        }
        if let Some(Branch { name, .. }) = self.branches.get(&branch).cloned() {
            // On a damaged disk, another branch may have the same name.
            if self.branch_names.get(&name) == Some(&branch) {
                self.branch_names.remove_mut(&name);
            }
            self.branches.remove_mut(&branch);
        }
        self.ancestors.remove_mut(&branch);
    }

    pub(super) fn put_snapshot(&mut self, snapshot: Snapshot) {
        self.take_snapshot(snapshot.epoch);
        let (branch, epoch) = (snapshot.branch, snapshot.epoch);
        self.touched.push(snapshot.view());
        if let Some(name) = &snapshot.name {
            self.snapshot_names.insert_mut(name.clone(), (branch, epoch));
        }
        self.moments.insert_mut(epoch, branch);
        self.snapshots.insert_mut((branch, epoch), snapshot);
    }

    pub(super) fn take_snapshot(&mut self, epoch: u64) {
        let Some(snapshot) = self.snapshot_at(epoch).cloned() else { return };
        let key = (snapshot.branch, epoch);
        self.touched.push(snapshot.view());
        if let Some(name) = snapshot.name
            && self.snapshot_names.get(&name) == Some(&key)
        {
            self.snapshot_names.remove_mut(&name);
        }
        self.moments.remove_mut(&epoch);
        self.snapshots.remove_mut(&key);
    }
}
