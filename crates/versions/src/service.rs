//! Requests about versions, carried out.

mod asker;
mod facts;
mod kept;
mod succession;
#[cfg(test)]
mod tests;
mod undelete;

use std::collections::HashMap;
use std::sync::Arc;

use dendro_base::Clock;
use dendro_control::AdminError;
use dendro_control::versions::{
    DeletedInfo, DiffInfo, HistoryInfo, MAX_CHANGES, Moment, RemovedInfo, UsageInfo, VersionList,
    VersionName, VersionsReply, VersionsRequest, ViewName, path_bytes,
};
use dendro_disk::{CommitSeq, Error, VersionTable, Versions, View};
use dendro_fs::versions::{diff, history, removed, seen};
use dendro_fs::{FileKind, FileSystem, Ino};

use crate::name::resolve;
pub use asker::Asker;
pub use succession::Succession;

/// Carries out requests on one volume. Each change is durable when it is answered.
pub struct Service {
    disk: Arc<dyn Versions>,
    clock: Arc<dyn Clock>,
    /// The view that names without a branch refer to; nothing: the main branch's head.
    here: Option<View>,
    /// The views that are open, and where they are mounted; none of them can be taken away.
    mounted: Vec<(Arc<FileSystem>, String)>,
    /// Who is to hear of a name that has come to be.
    tell: Option<Tell>,
    /// Who asks; nothing: somebody who may do everything.
    asker: Option<Asker>,
}

/// Hears of the view, the directory, and the name there.
type Tell = Box<dyn Fn(View, Ino, &[u8]) + Send + Sync>;

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("here", &self.here)
            .field("mounted", &self.mounted)
            .finish_non_exhaustive()
    }
}

type Answer<T> = Result<T, AdminError>;

/// A refusal in the words of what refuses.
fn refuse(error: impl std::fmt::Display) -> AdminError {
    AdminError(error.to_string())
}

/// The disk knows versions by number only, which says nothing to those who named them.
fn refuse_disk(error: Error) -> AdminError {
    match error {
        Error::NoSuchView(View { epoch: Some(epoch), .. }) => AdminError(format!(
            "@{epoch} is gone: somebody, or retention, has deleted it meanwhile"
        )),
        Error::NoSuchView(_) => {
            AdminError("the branch is gone: somebody has deleted it meanwhile".into())
        }
        other => refuse(other),
    }
}

/// The same of what cannot be deleted.
fn cannot_delete(error: Error, view: View, table: &VersionTable) -> AdminError {
    let what = facts::called(view, table);
    match error {
        Error::InUse(_, why) if view.epoch.is_some() => AdminError(format!(
            "{what} cannot be deleted: {why}; `dendro snapshot release` lets it go"
        )),
        Error::InUse(_, why) => AdminError(format!("{what} cannot be deleted: {why}")),
        other => refuse_disk(other),
    }
}

impl Service {
    /// For a volume none of whose views is open.
    #[must_use]
    pub fn new(disk: Arc<dyn Versions>, clock: Arc<dyn Clock>) -> Self {
        Self { disk, clock, here: None, mounted: Vec::new(), tell: None, asker: None }
    }

    /// For a volume of which `fs` is open, too, and mounted at `place`.
    #[must_use]
    pub fn with_mounted(mut self, fs: Arc<FileSystem>, place: impl Into<String>) -> Self {
        self.mounted.push((fs, place.into()));
        self
    }

    /// Calls `tell` with each name that is put into a view, when it is there: a kernel that has it
    /// mounted may remember that there was none.
    #[must_use]
    pub fn telling(mut self, tell: impl Fn(View, Ino, &[u8]) + Send + Sync + 'static) -> Self {
        self.tell = Some(Box::new(tell));
        self
    }

    /// Names without a branch refer to `view`.
    #[must_use]
    pub const fn at(mut self, view: View) -> Self {
        self.here = Some(view);
        self
    }

    /// Requests are `asker`'s, who may not do everything.
    #[must_use]
    pub fn asked_by(mut self, asker: Option<Asker>) -> Self {
        self.asker = asker;
        self
    }

    /// Refuses what the one who asks may not ask.
    ///
    /// # Errors
    /// Why that one may not.
    pub fn check(&self, request: &VersionsRequest) -> Answer<()> {
        self.check_asker(&self.disk.versions(), request)
    }

    /// Does what `request` asks.
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
                self.done(VersionsReply::Snapshot(facts::snapshot(&made)))
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
                self.done(VersionsReply::Branch(facts::branch(&made, &self.disk.versions())))
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
            VersionsRequest::Undelete { from, path, to } => {
                let restored = self.undelete(&table, from.as_ref(), path, to.as_deref())?;
                self.done(VersionsReply::Restored(restored))
            }
        }
    }

    /// Makes what was done durable.
    fn done(&self, reply: VersionsReply) -> Answer<VersionsReply> {
        self.disk.flush(CommitSeq::LATEST).map_err(refuse)?;
        Ok(reply)
    }

    /// The view that names without a branch refer to.
    fn here(&self, table: &VersionTable) -> View {
        self.here.unwrap_or_else(|| table.main_head())
    }

    fn resolve(&self, table: &VersionTable, name: &VersionName) -> Answer<View> {
        resolve(table, self.here(table), name, self.clock.now()).map_err(AdminError)
    }

    /// As [`Self::resolve`], for what is to be changed: a time, which means the newest before it,
    /// is not enough.
    fn exact(&self, table: &VersionTable, name: &VersionName) -> Answer<View> {
        let by_time = name.moment.as_ref().filter(|moment| moment.unix_ns.is_some());
        let moment = name.moment.clone().map(|moment| Moment { unix_ns: None, ..moment });
        let found = self.resolve(table, &VersionName { moment, ..name.clone() });
        match by_time {
            Some(moment) => found.map_err(|_| {
                AdminError(format!(
                    "{} is a time; name the snapshot, or its epoch as `dendro snapshot list` shows \
                     it",
                    moment.text
                ))
            }),
            None => found,
        }
    }

    /// As [`Self::resolve`], for what only a head can do.
    fn head(&self, table: &VersionTable, name: &VersionName) -> Answer<View> {
        let view = self.resolve(table, name)?;
        match view.epoch {
            None => Ok(view),
            Some(_) => {
                let what = facts::called(view, table);
                Err(AdminError(format!("{what} is past; name a branch, without @")))
            }
        }
    }

    fn check_not_mounted(&self, table: &VersionTable, view: View) -> Answer<()> {
        match self.mounted.iter().find(|(fs, _)| fs.view() == view) {
            Some((_, place)) => {
                let what = facts::called(view, table);
                Err(AdminError(format!("{what} is mounted on {place}; unmount it first")))
            }
            None => Ok(()),
        }
    }

    fn usage(&self, table: &VersionTable) -> Answer<Vec<UsageInfo>> {
        let shares = self.disk.shares().map_err(refuse_disk)?;
        Ok(shares.iter().map(|share| facts::usage(share, table)).collect())
    }

    fn delete(
        &self,
        table: &VersionTable,
        names: &[VersionName],
        dry_run: bool,
    ) -> Answer<Vec<DeletedInfo>> {
        let mut views = Vec::new();
        let mut trial = table.clone();
        for name in names {
            let view = self.exact(table, name)?;
            if !views.contains(&view) {
                // All or none: what one cannot be done for is found before any is deleted.
                let deleted = trial.delete(view);
                // Unmounting it would not help with the main branch.
                if !matches!(deleted, Err(Error::InUse(..))) {
                    self.check_not_mounted(table, view)?;
                }
                deleted.map_err(|error| cannot_delete(error, view, table))?;
                views.push(view);
            }
        }
        let mut freed = HashMap::new();
        let mut together_bytes = None;
        if dry_run {
            let shares = self.disk.shares().map_err(refuse_disk)?;
            freed.extend(shares.iter().map(|share| (share.view, share.exclusive_bytes)));
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
            name: facts::name(*view, table),
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
        let mut changes = diff(&*self.disk, old, new).map_err(refuse)?;
        if let Some(who) = self.who() {
            changes = seen(&*self.disk, old, new, changes, who).map_err(refuse)?;
        }
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let told: Vec<_> = changes.iter().skip(skip).take(MAX_CHANGES).map(facts::change).collect();
        let more = changes.len() > skip.saturating_add(told.len());
        let name = |view: View| Some(ViewName { branch: view.branch, epoch: view.epoch });
        Ok(DiffInfo { changes: told, more, old: name(old), new: name(new) })
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
        Ok(versions.iter().map(|version| facts::history(version, table)).collect())
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
        Ok(found.iter().map(facts::removed).collect())
    }
}

impl Service {
    /// Refuses what was a directory neither in `view` nor in its past.
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

/// The path that a request names.
fn bytes_of(path: &str) -> Answer<Vec<u8>> {
    path_bytes(path).ok_or_else(|| AdminError(format!("{path} has a stray backslash")))
}

fn list(table: &VersionTable) -> VersionList {
    let lines = facts::lines(table);
    VersionList {
        epoch: table.epoch,
        branches: table.branches().map(|branch| facts::branch(branch, table)).collect(),
        ancestors: table.ancestors().map(|(of, parent)| facts::ancestor(of, parent)).collect(),
        snapshots: table.snapshots().map(|of| facts::snapshot_of(of, table, &lines)).collect(),
    }
}
