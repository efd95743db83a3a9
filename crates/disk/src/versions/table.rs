//! All versions of a disk, and the rules by which they change. The table needs no disk: every
//! implementation keeps its versions in one, so all follow the same rules.
//!
//! - Epochs count from 1, one counter for all branches. A snapshot of a head at epoch E has epoch
//!   E, and every head writes in E + 1 from then on. A branch made from a head ends an epoch as
//!   well; one made from a snapshot does not.
//! - Branches are numbered from 0; a number is never used again.
//! - A version that is received from another disk has a branch of its own until it is complete.
//!   Nothing can be made from the head of such a branch, but it can be deleted.
//! - Names are as [`check_name`](crate::check_name) says; no two snapshots have the same, and no
//!   two branches.
//! - The branches that have no parent are the beginnings of clients. One that has a kind is a
//!   client of its own; those without a kind belong to the client that the disk was made for,
//!   number 0. What was made from a branch, and its snapshots, belong to the branch's client.
//! - A branch that takes the place of another one of a client ([`VersionTable::roll_back`]) takes
//!   over its kind, so that the client keeps its name.
//! - A branch whose head was deleted stays as an ancestor for as long as it has a snapshot, or
//!   another branch was made from it.
//!
//! Every change that is refused leaves the table as it was.

mod clients;
mod entries;
#[cfg(test)]
mod tests;

use dendro_base::{ClientKind, Origin, Timestamp};

use super::version::{Branch, MAIN, MAX_NAME_LEN_BYTES, Snapshot, check_name};
use crate::error::{Error, Result};
use crate::types::View;

pub use entries::VersionTable;

use entries::Parent;

/// Queries.
impl VersionTable {
    /// The table of a new disk, made at `time`: one branch, number 0, called [`MAIN`].
    #[must_use]
    pub fn new(time: Timestamp) -> Self {
        let mut table = Self::without_branches();
        table.enter_branch(Branch { branch: 0, name: MAIN.to_owned(), parent: None, time });
        table
    }

    /// The branch whose head `view` names.
    #[must_use]
    pub fn branch_of(&self, view: View) -> Option<&Branch> {
        match view.epoch {
            None => self.branch(view.branch),
            Some(_) => None,
        }
    }

    /// Whether `branch` has a head.
    #[must_use]
    pub fn has_head(&self, branch: u32) -> bool {
        self.branch(branch).is_some()
    }

    /// Checks that `view` exists: that it is the head of a branch, or a snapshot.
    ///
    /// # Errors
    /// [`Error::NoSuchView`].
    pub fn check(&self, view: View) -> Result<()> {
        let exists = match view.epoch {
            None => self.has_head(view.branch),
            Some(_) => self.snapshot_of(view).is_some(),
        };
        if exists { Ok(()) } else { Err(Error::NoSuchView(view)) }
    }

    /// The head of the main branch.
    #[must_use]
    pub const fn main_head(&self) -> View {
        View { branch: self.main, epoch: None }
    }

    /// Every view: the heads, then the snapshots.
    pub fn views(&self) -> impl Iterator<Item = View> {
        let heads = self.branches().map(Branch::head);
        heads.chain(self.snapshots().map(Snapshot::view))
    }

    /// The epochs of `branch` that must stay readable: those of its snapshots, and those that other
    /// branches, with or without a head, were made from. In no order, and some perhaps twice.
    pub fn pins(&self, branch: u32) -> impl Iterator<Item = u64> {
        let forks = self.forks_on(branch).map(|(epoch, _)| epoch);
        self.snapshots_on(branch).map(|snapshot| snapshot.epoch).chain(forks)
    }

    /// The last of [`Self::pins`].
    #[must_use]
    pub fn newest_pin(&self, branch: u32) -> Option<u64> {
        let fork = self.forks_on(branch).next_back().map(|(epoch, _)| epoch);
        self.snapshots_on(branch).next_back().map(|snapshot| snapshot.epoch).max(fork)
    }

    /// The ancestry of `view`: its own branch, the branch that this was made from, and so on to the
    /// first, each with the last epoch of it that is visible.
    #[must_use]
    pub fn ancestry(&self, view: View) -> Vec<(u32, u64)> {
        let mut ancestry = Vec::new();
        let mut next = Some((view.branch, view.epoch.unwrap_or(u64::MAX)));
        while let Some((branch, epoch)) = next {
            ancestry.push((branch, epoch));
            // A parent has a lower number than its child. An entry of a damaged disk that says
            // otherwise is not followed, so that this ends.
            next = self.parent(branch).filter(|(parent, _)| *parent < branch);
        }
        ancestry
    }

    /// The snapshots in the ancestry of `view`, newest first.
    #[must_use]
    pub fn past(&self, view: View) -> Vec<&Snapshot> {
        self.back_from(view).collect()
    }

    /// The newest snapshot in the ancestry of `view` that was made at or before `time`.
    #[must_use]
    pub fn at(&self, view: View, time: Timestamp) -> Option<&Snapshot> {
        self.back_from(view).find(|snapshot| snapshot.time <= time)
    }

    fn back_from(&self, view: View) -> impl Iterator<Item = &Snapshot> {
        let ancestry = self.ancestry(view).into_iter();
        ancestry.flat_map(|(branch, last_epoch)| self.snapshots_upto(branch, last_epoch).rev())
    }
}

/// Changes.
impl VersionTable {
    /// Adds a snapshot of the head of `branch`, and ends the epoch.
    ///
    /// # Errors
    /// [`Error::NoSuchView`], [`Error::BadName`], [`Error::NameTaken`].
    pub fn snapshot(
        &mut self,
        branch: u32,
        name: Option<&str>,
        time: Timestamp,
    ) -> Result<Snapshot> {
        self.check_complete(View { branch, epoch: None })?;
        self.add_snapshot(branch, name, time, None)
    }

    /// Ends the epoch: every head writes in the next one from now on.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when no epoch follows.
    pub fn end_epoch(&mut self) -> Result<()> {
        let next_epoch = self.next_epoch()?;
        self.begin_change();
        self.epoch = next_epoch;
        Ok(())
    }

    /// Adds a branch that starts from `view`. If that is a head, ends the epoch.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    pub fn branch_off(&mut self, view: View, name: &str, time: Timestamp) -> Result<Branch> {
        self.check_complete(view)?;
        self.check_branch_name(name, None)?;
        let next_epoch = match view.epoch {
            None => self.next_epoch()?,
            Some(_) => self.epoch,
        };
        let parent = Some((view.branch, view.epoch.unwrap_or(self.epoch)));
        let branch = self.new_branch(name.to_owned(), parent, time)?;
        self.epoch = next_epoch;
        Ok(branch)
    }

    /// Adds a branch to receive a version into, and ends the epoch. It starts from the snapshot
    /// `base`, or from nothing. Then it begins a client of its own if it is given a kind.
    ///
    /// # Errors
    /// [`Error::NoSuchView`], for heads too.
    pub fn begin_receive(
        &mut self,
        base: Option<View>,
        kind: Option<ClientKind>,
        time: Timestamp,
    ) -> Result<Branch> {
        let parent = match base {
            None => None,
            Some(view) => {
                let snapshot = self.snapshot_of(view).ok_or(Error::NoSuchView(view))?;
                Some((snapshot.branch, snapshot.epoch))
            }
        };
        let next_epoch = self.next_epoch()?;
        let name = Branch::receiving_name(self.next_branch);
        let branch = self.new_branch(name, parent, time)?;
        self.enter_kind(branch.branch, kind.filter(|_| parent.is_none()));
        self.epoch = next_epoch;
        Ok(branch)
    }

    /// Makes a client of what was received into `branch`: gives the branch a name.
    ///
    /// # Errors
    /// [`Error::NoSuchView`] for a branch that [`Self::begin_receive`] did not begin a client with;
    /// [`Error::BadName`], [`Error::NameTaken`].
    pub fn name_client(&mut self, branch: u32, name: &str) -> Result<Branch> {
        let present = self.branch(branch).filter(|of| of.is_receiving());
        let present = present.filter(|_| self.own_kind(branch).is_some());
        let present = present.ok_or(Error::NoSuchView(View { branch, epoch: None }))?.clone();
        self.check_branch_name(name, None)?;
        let named = Branch { name: name.to_owned(), ..present };
        self.begin_change();
        self.put_branch(named.clone());
        Ok(named)
    }

    /// Notes how far a version was received into `branch`. The name of the branch has the note.
    ///
    /// # Errors
    /// [`Error::NoSuchView`] for a branch of another kind; [`Error::BadName`] for a note that is
    /// too long.
    pub fn note_receive(&mut self, branch: u32, note: &str) -> Result<()> {
        let present = self.branch(branch).filter(|branch| branch.is_receiving());
        let present = present.ok_or(Error::NoSuchView(View { branch, epoch: None }))?;
        let noted = Branch { name: Branch::noted_name(branch, note), ..present.clone() };
        if noted.name.len() > MAX_NAME_LEN_BYTES {
            return Err(Error::BadName(note.to_owned(), "it is too long for a note"));
        }
        self.begin_change();
        self.put_branch(noted);
        Ok(())
    }

    /// Makes a snapshot of what was received into `branch`, which was made at `origin` and at
    /// `time`, and removes the branch's head.
    ///
    /// # Errors
    /// As [`Self::snapshot`]; [`Error::NoSuchView`] for a branch of another kind.
    pub fn end_receive(
        &mut self,
        branch: u32,
        name: Option<&str>,
        origin: Origin,
        time: Timestamp,
    ) -> Result<Snapshot> {
        if !self.is_receiving(branch) {
            return Err(Error::NoSuchView(View { branch, epoch: None }));
        }
        let snapshot = self.add_snapshot(branch, name, time, Some(origin))?;
        self.delete_head(branch);
        Ok(snapshot)
    }

    /// Whether `branch` is one that a version is being received into.
    #[must_use]
    pub fn is_receiving(&self, branch: u32) -> bool {
        self.branch(branch).is_some_and(Branch::is_receiving)
    }

    /// Renames the snapshot or the branch that `view` names.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    pub fn rename(&mut self, view: View, name: &str) -> Result<()> {
        self.check_complete(view)?;
        match view.epoch {
            None => {
                self.check_branch_name(name, Some(view.branch))?;
                let branch = self.branch(view.branch).ok_or(Error::NoSuchView(view))?;
                let renamed = Branch { name: name.to_owned(), ..branch.clone() };
                self.begin_change();
                if self.branch(view.branch) != Some(&renamed) {
                    self.put_branch(renamed);
                }
                Ok(())
            }
            Some(_) => {
                self.check_snapshot_name(name, Some(view))?;
                self.change_snapshot(view, |snapshot| snapshot.name = Some(name.to_owned()))
            }
        }
    }

    /// Protects a snapshot from deletion, or ends that.
    ///
    /// # Errors
    /// [`Error::NoSuchView`], for heads too.
    pub fn hold(&mut self, view: View, is_held: bool) -> Result<()> {
        self.change_snapshot(view, |snapshot| snapshot.is_held = is_held)
    }

    /// Removes a snapshot or a head, and the ancestors that are no longer needed.
    ///
    /// # Errors
    /// [`Error::NoSuchView`]; [`Error::InUse`] for the main branch's head and for what is held.
    pub fn delete(&mut self, view: View) -> Result<()> {
        self.check(view)?;
        if self.snapshot_of(view).is_some_and(|snapshot| snapshot.is_held) {
            return Err(Error::InUse(view, "it is held"));
        }
        if view == self.main_head() {
            return Err(Error::InUse(view, "it is the main branch"));
        }
        self.begin_change();
        match view.epoch {
            None => self.delete_head(view.branch),
            Some(epoch) => {
                self.take_snapshot(epoch);
                self.prune(view.branch);
            }
        }
        Ok(())
    }

    /// Makes `branch` the main one, and exchanges its name with that of the former one.
    ///
    /// # Errors
    /// [`Error::NoSuchView`]; [`Error::OtherClient`] for a branch of another client.
    pub fn promote(&mut self, branch: u32) -> Result<()> {
        self.check_complete(View { branch, epoch: None })?;
        self.check_client(View { branch, epoch: None }, self.main)?;
        let with_head = |branch| {
            let found = self.branch(branch).cloned();
            found.ok_or(Error::NoSuchView(View { branch, epoch: None }))
        };
        let (mut new, mut old) = (with_head(branch)?, with_head(self.main)?);
        self.begin_change();
        if new.branch != old.branch {
            std::mem::swap(&mut new.name, &mut old.name);
            self.put_branch(new);
            self.put_branch(old);
        }
        self.main = branch;
        Ok(())
    }

    /// Replaces `branch` by a new branch that starts from the snapshot `to`, and deletes the head
    /// of `branch`. The snapshot may be of any branch of the same client: that is how a rollback is
    /// undone.
    ///
    /// # Errors
    /// [`Error::NoSuchView`]; [`Error::OtherClient`] for a snapshot of another client.
    pub fn roll_back(&mut self, branch: u32, to: View, time: Timestamp) -> Result<Branch> {
        let head = View { branch, epoch: None };
        self.check_complete(head)?;
        let name = self.branch_of(head).ok_or(Error::NoSuchView(head))?.name.clone();
        let parent = (to.branch, self.snapshot_of(to).ok_or(Error::NoSuchView(to))?.epoch);
        self.check_client(to, branch)?;
        let new = self.new_branch(name, Some(parent), time)?;
        self.enter_kind(new.branch, self.own_kind(branch));
        if self.main == branch {
            self.main = new.branch;
        }
        self.delete_head(branch);
        Ok(new)
    }

    fn add_snapshot(
        &mut self,
        branch: u32,
        name: Option<&str>,
        time: Timestamp,
        origin: Option<Origin>,
    ) -> Result<Snapshot> {
        if let Some(name) = name {
            self.check_snapshot_name(name, None)?;
        }
        let next_epoch = self.next_epoch()?;
        let epoch = self.epoch;
        let name = name.map(str::to_owned);
        let snapshot = Snapshot { branch, epoch, time, name, is_held: false, origin };
        self.enter_snapshot(snapshot.clone());
        self.epoch = next_epoch;
        Ok(snapshot)
    }

    /// As [`Self::check`]; a head whose version is still being received does not exist either.
    fn check_complete(&self, view: View) -> Result<()> {
        self.check(view)?;
        match view.epoch {
            None if self.is_receiving(view.branch) => Err(Error::NoSuchView(view)),
            _ => Ok(()),
        }
    }

    fn next_epoch(&self) -> Result<u64> {
        let used_up = || Error::Corrupted(format!("the epoch is {}, and none follows", self.epoch));
        self.epoch.checked_add(1).ok_or_else(used_up)
    }

    fn check_snapshot_name(&self, name: &str, but: Option<View>) -> Result<()> {
        check_name(name)?;
        match self.snapshot_named(name) {
            Some(other) if Some(other.view()) != but => Err(Error::NameTaken(name.to_owned())),
            _ => Ok(()),
        }
    }

    pub(super) fn check_branch_name(&self, name: &str, but: Option<u32>) -> Result<()> {
        check_name(name)?;
        match self.branch_named(name) {
            Some(other) if Some(other.branch) != but => Err(Error::NameTaken(name.to_owned())),
            _ => Ok(()),
        }
    }

    fn new_branch(&mut self, name: String, parent: Parent, time: Timestamp) -> Result<Branch> {
        let number = self.next_branch;
        let used_up = || Error::Corrupted(format!("branch {number} is the last that can be"));
        self.next_branch = number.checked_add(1).ok_or_else(used_up)?;
        let branch = Branch { branch: number, name, parent, time };
        self.enter_branch(branch.clone());
        Ok(branch)
    }

    fn change_snapshot(&mut self, view: View, change: impl FnOnce(&mut Snapshot)) -> Result<()> {
        let mut snapshot = self.snapshot_of(view).ok_or(Error::NoSuchView(view))?.clone();
        change(&mut snapshot);
        self.enter_snapshot(snapshot);
        Ok(())
    }

    /// Turns a branch into an ancestor, and removes that if it is not needed.
    fn delete_head(&mut self, branch: u32) {
        if !self.has_head(branch) {
            return;
        }
        self.put_ancestor(branch, self.parent(branch));
        self.prune(branch);
    }

    /// Removes `branch` if it is an ancestor that is no longer needed, then its parent in the same
    /// way, and so on. The first branch stays: without a record of it, a disk takes it for one with
    /// a head.
    fn prune(&mut self, branch: u32) {
        let mut next = Some(branch);
        while let Some(branch) = next {
            let is_needed = branch == 0 || self.pins(branch).next().is_some();
            if !self.is_ancestor(branch) || is_needed {
                return;
            }
            next = self.parent(branch).map(|(parent, _)| parent);
            self.take_branch(branch);
        }
    }
}
