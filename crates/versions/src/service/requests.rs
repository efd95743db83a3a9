//! Which request does what.

use std::collections::HashMap;

use dendro_control::AdminError;
use dendro_control::versions::{
    BranchInfo, ChangeInfo, DeletedInfo, DiffInfo, HistoryInfo, MAX_CHANGES, RemovedInfo,
    UsageInfo, VersionList, VersionName, VersionsReply, VersionsRequest, ViewName,
};
use dendro_disk::{Error, Lid, VersionTable, View};
use dendro_fs::versions::{Tree, diff, history, removed, seen};
use dendro_fs::{FileKind, FsError};

use super::context::{Answer, Service, bytes_of, cannot_delete, refuse, refuse_disk};
use super::info;

impl Service {
    /// Checks that the asker may make this request.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, request: &VersionsRequest) -> Answer<()> {
        self.check_asker(&self.disk.versions(), request)
    }

    /// Carries out `request`.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn answer(&self, request: &VersionsRequest) -> Answer<VersionsReply> {
        let table = self.disk.versions();
        self.check_asker(&table, request)?;
        match request {
            VersionsRequest::List => Ok(VersionsReply::List(self.seen_of(&table, list(&table)))),
            VersionsRequest::Usage => self.usage(&table).map(VersionsReply::Usage),
            VersionsRequest::Snapshot { of, name } => {
                let head = self.head(&table, of)?;
                self.note_asker(View { branch: head.branch, epoch: Some(table.epoch) })?;
                let made = self.disk.snapshot(head.branch, name.as_deref()).map_err(refuse_disk)?;
                self.done(VersionsReply::Snapshot(info::snapshot(&made)))
            }
            VersionsRequest::Delete { versions, dry_run } => {
                let deleted = self.delete(&table, versions, *dry_run)?;
                self.done(VersionsReply::Deleted(deleted))
            }
            VersionsRequest::Rename { of, name } => {
                let view = self.exact(&table, of)?;
                self.disk.rename(view, name).map_err(refuse)?;
                self.done(VersionsReply::Done)
            }
            VersionsRequest::Hold { of, held } => {
                let view = self.exact(&table, of)?;
                self.disk.hold(view, *held).map_err(refuse)?;
                self.done(VersionsReply::Done)
            }
            VersionsRequest::Clone { of, name } => {
                let view = self.resolve(&table, of)?;
                let made = self.disk.branch_off(view, name).map_err(refuse)?;
                self.note_asker(made.head())?;
                self.done(VersionsReply::Branch(info::branch(&made, &self.disk.versions())))
            }
            VersionsRequest::Promote { branch, how } => self.promote(&table, branch, *how),
            VersionsRequest::Replace { with, since, how } => {
                match self.spare_replacement(request)? {
                    Some(reply) => Ok(reply),
                    None => self.replace(&table, with, since.as_ref(), *how),
                }
            }
            VersionsRequest::Rollback { to, undo, how } => self.roll_back(&table, to, *undo, *how),
            VersionsRequest::Diff { old, new, skip } => {
                self.diff(&table, old, new, *skip).map(VersionsReply::Diff)
            }
            VersionsRequest::History { of, path } => {
                self.history(&table, of, path).map(VersionsReply::History)
            }
            VersionsRequest::Removed { of, path } => {
                self.removed(&table, of, path).map(VersionsReply::Removed)
            }
            VersionsRequest::Clients => Ok(VersionsReply::Clients(self.clients(&table))),
            VersionsRequest::CreateClient { name, kind, uid, gid, quota_bytes } => {
                self.create_client(name, kind, (*uid, *gid), *quota_bytes)
            }
            VersionsRequest::SetQuota { client, quota_bytes } => {
                self.set_quota(&table, client, *quota_bytes)
            }
            VersionsRequest::DeleteClient { name, dry_run } => {
                let deleted = self.delete_client(&table, name, *dry_run)?;
                self.done(VersionsReply::Deleted(deleted))
            }
            VersionsRequest::RenameClient { client, name } => {
                self.rename_client(&table, client, name)
            }
            VersionsRequest::Undelete { from, path, to } => {
                let restored = self.undelete(&table, from.as_ref(), path, to.as_deref())?;
                self.done(VersionsReply::Restored(restored))
            }
        }
    }

    fn usage(&self, table: &VersionTable) -> Answer<Vec<UsageInfo>> {
        let usage = self.disk.version_usage().map_err(refuse_disk)?;
        Ok(usage.iter().map(|usage| info::usage(usage, table)).collect())
    }

    fn delete(
        &self,
        table: &VersionTable,
        names: &[VersionName],
        dry_run: bool,
    ) -> Answer<Vec<DeletedInfo>> {
        let mut views = Vec::new();
        for name in names {
            let view = self.exact(table, name)?;
            if !views.contains(&view) {
                views.push(view);
            }
        }
        self.delete_views(table, views, dry_run)
    }

    /// Deletes these versions, in their order, or reports what that would free.
    pub(super) fn delete_views(
        &self,
        table: &VersionTable,
        views: Vec<View>,
        dry_run: bool,
    ) -> Answer<Vec<DeletedInfo>> {
        let mut trial = table.clone();
        for view in views.iter().copied() {
            // All or none: mistakes are found before any is deleted.
            let deleted = trial.delete(view);
            // For the main branch the reason is another: unmounting it would not help.
            if !matches!(deleted, Err(Error::InUse(..))) {
                self.check_not_used(table, view)?;
            }
            deleted.map_err(|error| cannot_delete(error, view, table))?;
        }
        let mut freed = HashMap::new();
        let mut together_bytes = None;
        if dry_run {
            let usage = self.disk.version_usage().map_err(refuse_disk)?;
            freed.extend(usage.iter().map(|usage| (usage.view, usage.exclusive_bytes)));
            together_bytes = match views[..] {
                [view] => freed.get(&view).copied(),
                _ => Some(self.disk.freed_by(&views).map_err(refuse_disk)?),
            };
        } else {
            for view in &views {
                self.disk.delete(*view).map_err(refuse_disk)?;
            }
        }
        let info = |view: &View| DeletedInfo {
            branch: view.branch,
            epoch: view.epoch,
            name: info::name(*view, table),
            exclusive_bytes: freed.get(view).copied(),
            together_bytes,
        };
        Ok(views.iter().map(info).collect())
    }

    fn diff(
        &self,
        table: &VersionTable,
        old: &VersionName,
        new: &VersionName,
        skip: u64,
    ) -> Answer<DiffInfo> {
        let (old, new) = (self.resolve(table, old)?, self.resolve(table, new)?);
        self.check_same_client(table, old, new)?;
        let name = |view: View| Some(ViewName { branch: view.branch, epoch: view.epoch });
        if let Err(FsError::NoFiles(_)) = Tree::new(&*self.disk, new) {
            return self.diff_of_lists(old, new, skip).map(|(changes, more)| DiffInfo {
                changes,
                more,
                old: name(old),
                new: name(new),
            });
        }
        let mut changes = diff(&*self.disk, old, new).map_err(refuse)?;
        if let Some(who) = self.who() {
            changes = seen(&*self.disk, old, new, changes, who).map_err(refuse)?;
        }
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let listed: Vec<_> =
            changes.iter().skip(skip).take(MAX_CHANGES).map(info::change).collect();
        let more = changes.len() > skip.saturating_add(listed.len());
        Ok(DiffInfo { changes: listed, more, old: name(old), new: name(new) })
    }

    /// The lists that differ, and whether there are more. They are what changes in versions that
    /// hold no files.
    fn diff_of_lists(&self, old: View, new: View, skip: u64) -> Answer<(Vec<ChangeInfo>, bool)> {
        let (skip, max) = (usize::try_from(skip).unwrap_or(usize::MAX), MAX_CHANGES);
        let most = skip.saturating_add(max).saturating_add(1);
        let lists = self.disk.changed_lists(old, new, Lid(0), most).map_err(refuse_disk)?;
        let has = |view, list| self.disk.hints(view, list).map(|found| found.is_some());
        let change = |list: &Lid| {
            Ok(ChangeInfo {
                change: match (has(old, *list)?, has(new, *list)?) {
                    (true, false) => '-',
                    (false, true) => '+',
                    _ => 'M',
                },
                kind: "list".into(),
                path: list.to_string(),
                old_path: None,
            })
        };
        let listed: Result<_, Error> = lists.iter().skip(skip).take(max).map(change).collect();
        Ok((listed.map_err(refuse_disk)?, lists.len() == most))
    }

    fn history(
        &self,
        table: &VersionTable,
        of: &VersionName,
        path: &str,
    ) -> Answer<Vec<HistoryInfo>> {
        let view = self.resolve(table, of)?;
        let versions = history(&*self.disk, view, &bytes_of(path)?, self.who());
        let versions = versions.map_err(|error| refuse(format_args!("{path}: {error}")))?;
        Ok(versions.iter().map(|version| info::history(version, table)).collect())
    }

    fn removed(
        &self,
        table: &VersionTable,
        of: &VersionName,
        path: &str,
    ) -> Answer<Vec<RemovedInfo>> {
        let view = self.resolve(table, of)?;
        let found = removed(&*self.disk, view, &bytes_of(path)?, self.who());
        let found = found.map_err(|error| refuse(format_args!("{path}: {error}")))?;
        if found.is_empty() {
            self.check_was_directory(view, path)?;
        }
        Ok(found.iter().map(info::removed).collect())
    }
}

impl Service {
    /// Refuses a path that was a directory neither in `view` nor in its past.
    fn check_was_directory(&self, view: View, path: &str) -> Answer<()> {
        let versions = history(&*self.disk, view, &bytes_of(path)?, self.who()).map_err(refuse)?;
        let kinds = || versions.iter().filter_map(|version| version.attr.as_ref());
        if kinds().any(|attr| attr.kind == FileKind::Directory) {
            return Ok(());
        }
        let is_there = kinds().next().is_some();
        Err(AdminError(match is_there {
            true => {
                format!("{path}: is no directory, and was none; `dendro history` tells of files")
            }
            false => format!("{path}: there is no such directory, and no snapshot has one"),
        }))
    }
}

fn list(table: &VersionTable) -> VersionList {
    let descendants = info::descendants(table);
    let client_kind = |of: u32| table.kind_of(of).map(|kind| kind.name().to_owned());
    VersionList {
        epoch: table.epoch,
        branches: table
            .branches()
            .filter(|branch| !branch.is_receiving())
            .map(|branch| BranchInfo {
                client_kind: client_kind(branch.branch),
                ..info::branch(branch, table)
            })
            .collect(),
        ancestors: table.ancestors().map(|(of, parent)| info::ancestor(of, parent)).collect(),
        snapshots: table.snapshots().map(|of| info::snapshot_of(of, table, &descendants)).collect(),
    }
}
