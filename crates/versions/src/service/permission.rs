//! What users may do who are restricted ([`Asker`]).
//!
//! Every user may read the past of what every user can read now: of the version that is mounted,
//! and of those that its hidden directory shows, as far as the permissions in them allow. Users to
//! whom that is delegated may also make versions, and delete the versions that they have made, and
//! replace the tree by them. Everything that could take something from other users is refused.

use std::collections::{BTreeMap, HashSet};

use dendro_control::AdminError;
use dendro_control::versions::{
    AncestorInfo, Replacing, VersionList, VersionName, VersionsRequest,
};
use dendro_disk::{VersionTable, View};
use dendro_fs::versions::{maker, note_maker};

#[allow(unused_imports, reason = "named in the documentation")]
use super::asker::Asker;
use super::context::{Answer, Service, refuse};
use super::handover::Handover;
use super::{info, kept_name};

/// The refusal for users to whom it is not delegated.
const NOT_DELEGATED: &str = "this needs root, or the user who mounted it; the mount's options users=, group= \
                             and owner can allow it to others";
/// The refusal for what cannot be delegated.
const NOT_FOR_OTHERS: &str = "this needs root, or the user who mounted it";

fn deny<T>(why: &str) -> Answer<T> {
    Err(AdminError(format!("permission denied: {why}")))
}

impl Service {
    /// Refuses what the asker may not do. Permissions of files are checked elsewhere.
    pub(super) fn check_asker(
        &self,
        table: &VersionTable,
        request: &VersionsRequest,
    ) -> Answer<()> {
        use VersionsRequest as Asked;
        let Some(asker) = &self.asker else { return Ok(()) };
        let is_looking = matches!(
            request,
            Asked::List
                | Asked::Diff { .. }
                | Asked::History { .. }
                | Asked::Removed { .. }
                | Asked::Undelete { .. }
        );
        let can_be_delegated = !matches!(
            request,
            Asked::Promote { .. }
                | Asked::Clients
                | Asked::CreateClient { .. }
                | Asked::DeleteClient { .. }
                | Asked::RenameClient { .. }
                | Asked::SetQuota { .. }
        );
        match (can_be_delegated, is_looking || asker.is_delegate) {
            (false, _) => return deny(NOT_FOR_OTHERS),
            (true, false) => return deny(NOT_DELEGATED),
            (true, true) => {}
        }
        match request {
            Asked::List | Asked::Usage => Ok(()),
            Asked::Diff { old, new, .. } => {
                self.check_seen(table, old)?;
                self.check_seen(table, new)
            }
            Asked::History { of, .. } | Asked::Removed { of, .. } => self.check_seen(table, of),
            Asked::Undelete { from, .. } => {
                from.as_ref().map_or(Ok(()), |from| self.check_seen(table, from))
            }
            Asked::Snapshot { of, name } => {
                check_name(name.as_deref())?;
                self.check_seen(table, of)
            }
            Asked::Clone { of, .. } => self.check_seen(table, of),
            Asked::Delete { versions, .. } => {
                versions.iter().try_for_each(|of| self.check_own(table, of))
            }
            Asked::Rename { of, name } => {
                check_name(Some(name))?;
                self.check_own(table, of)
            }
            Asked::Hold { of, .. } => self.check_own(table, of),
            Asked::Replace { with, since, how } => {
                self.check_replacement(table, with, since.as_ref(), *how)
            }
            Asked::Rollback { to, undo, how } => self.check_rollback(table, to, *undo, *how),
            Asked::Promote { .. }
            | Asked::Clients
            | Asked::CreateClient { .. }
            | Asked::DeleteClient { .. }
            | Asked::RenameClient { .. }
            | Asked::SetQuota { .. } => deny(NOT_FOR_OTHERS),
        }
    }

    /// Whether the asker has made the version.
    pub(super) fn is_own(&self, view: View) -> Answer<bool> {
        let Some(who) = self.who() else { return Ok(true) };
        Ok(maker(&*self.disk, view).map_err(refuse)? == Some(who.uid))
    }

    fn check_own(&self, table: &VersionTable, name: &VersionName) -> Answer<()> {
        let view = self.exact(table, name)?;
        // The main branch belongs to all users.
        match view != table.main_head() && self.is_own(view)? {
            true => Ok(()),
            false => deny(&format!(
                "{} was made by another user, and {NOT_FOR_OTHERS}",
                info::called(view, table)
            )),
        }
    }

    /// Refuses versions that are not visible in this mount, except the asker's own.
    fn check_seen(&self, table: &VersionTable, name: &VersionName) -> Answer<()> {
        let view = self.resolve(table, name)?;
        if self.is_seen(table, view)? {
            return Ok(());
        }
        let what = info::called(view, table);
        deny(&format!("{what} is not to be seen in this mount, and {NOT_FOR_OTHERS}"))
    }

    fn is_seen(&self, table: &VersionTable, view: View) -> Answer<bool> {
        let here = self.here(table);
        // The hidden directory shows the snapshots of its own client.
        let is_named = || {
            table.snapshot_of(view).is_some_and(|of| of.name.is_some())
                && self.check_same_client(table, view, here).is_ok()
        };
        let is_past = || table.past(here).iter().any(|snapshot| snapshot.view() == view);
        Ok(view == here || is_named() || is_past() || self.is_own(view)?)
    }

    /// A clone that the asker has made of the tree may replace it, as long as the tree has not
    /// changed since: then the result is one that the asker could have produced in the tree itself.
    fn check_replacement(
        &self,
        table: &VersionTable,
        with: &str,
        since: Option<&VersionName>,
        how: Replacing,
    ) -> Answer<()> {
        let Some(since) = since.filter(|_| !how.force) else { return deny(NOT_FOR_OTHERS) };
        let like = VersionName { branch: Some(with.to_owned()), moment: None };
        self.check_own(table, &like)?;
        let (like, since) = (self.resolve(table, &like)?, self.exact(table, since)?);
        let parent = table.branch_of(like).and_then(|branch| branch.parent);
        match parent.is_some() && parent == since.epoch.map(|epoch| (since.branch, epoch)) {
            true => Ok(()),
            false => {
                deny(&format!("{with} is no clone of what it is to replace; {NOT_FOR_OTHERS}"))
            }
        }
    }

    /// The asker may roll back an own branch, which the asker may also delete. In other trees the
    /// asker may take back an own try, and that again, as long as nobody has changed anything
    /// since.
    fn check_rollback(
        &self,
        table: &VersionTable,
        to: &VersionName,
        undo: bool,
        how: Replacing,
    ) -> Answer<()> {
        if how.force {
            return deny(NOT_FOR_OTHERS);
        }
        let Handover { head, like } = self.rollback_handover(table, to, undo)?;
        if head != table.main_head() && self.is_own(head)? {
            return match self.is_seen(table, like)?
                || table.past(head).iter().any(|of| of.view() == like)
            {
                true => Ok(()),
                false => {
                    deny(&format!("{} is not to be seen in this mount", info::called(like, table)))
                }
            };
        }
        match undo && self.is_as_left(table, like, head)? {
            true => Ok(()),
            false => deny(&format!(
                "{} was made by another user or is everybody's: only a try of your own can be taken back \
                 there, and only as long as nothing was changed since; else {NOT_FOR_OTHERS}",
                info::called(head, table)
            )),
        }
    }

    /// Records the asker as the maker of a version.
    pub(super) fn note_asker(&self, made: View) -> Answer<()> {
        match self.who() {
            Some(who) => note_maker(&*self.disk, made, who.uid).map_err(refuse),
            None => Ok(()),
        }
    }

    /// Those versions among `all` that the asker may see.
    pub(super) fn seen_of(&self, table: &VersionTable, mut all: VersionList) -> VersionList {
        if self.asker.as_ref().is_none_or(|asker| asker.is_delegate) {
            return all;
        }
        // A version that cannot be examined is left out.
        let is_seen = |branch, epoch| self.is_seen(table, View { branch, epoch }).unwrap_or(false);
        all.branches.retain(|of| is_seen(of.branch, None));
        all.snapshots.retain(|of| is_seen(of.branch, Some(of.epoch)));
        all.ancestors = ancestors(table, &all);
        all
    }
}

/// The branches that those in `all` continue and that are not among its branches.
fn ancestors(table: &VersionTable, all: &VersionList) -> Vec<AncestorInfo> {
    let shown: HashSet<u32> = all.branches.iter().map(|of| of.branch).collect();
    let mut ancestors = BTreeMap::new();
    for branch in shown.iter().copied().chain(all.snapshots.iter().map(|of| of.branch)) {
        let mut next = Some(branch);
        while let Some(branch) = next {
            let parent = table.parent(branch).filter(|(parent, _)| *parent < branch);
            let is_known = ancestors.insert(branch, info::ancestor(branch, parent)).is_some();
            next = parent.filter(|_| !is_known).map(|(parent, _)| parent);
        }
    }
    ancestors.into_values().filter(|of| !shown.contains(&of.branch)).collect()
}

/// Refuses names by which rollbacks find what they have kept.
fn check_name(name: Option<&str>) -> Answer<()> {
    match name.filter(|name| kept_name::is_kept(name)) {
        Some(name) => Err(AdminError(format!(
            "{name} is what a rollback calls what it keeps; choose another name"
        ))),
        None => Ok(()),
    }
}
