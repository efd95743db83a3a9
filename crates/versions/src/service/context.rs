//! The volume that requests are about, and how the versions that they name are found.

use std::sync::Arc;

use dendro_base::Clock;
use dendro_control::AdminError;
use dendro_control::versions::{Moment, VersionName, VersionsReply, path_bytes};
use dendro_disk::{CommitSeq, Error, VersionTable, Versions, View};
use dendro_fs::{Credentials, FileSystem, Ino};

use super::asker::Asker;
use super::info;
use crate::name::resolve;

/// Carries out requests on one volume. Each change is durable when it is answered.
pub struct Service {
    pub(super) disk: Arc<dyn Versions>,
    pub(super) clock: Arc<dyn Clock>,
    /// The view that names without a branch refer to; `None`: the main branch's head.
    here: Option<View>,
    /// The views that are open, and where they are mounted. None of them can be deleted.
    pub(super) mounted: Vec<(Arc<FileSystem>, String)>,
    /// The versions that clients of NBD have open. None of them can be deleted either.
    exported: Vec<View>,
    /// Called for each new name.
    pub(super) on_new_name: Option<OnNewName>,
    /// The user who asks; `None`: one who may do everything.
    pub(super) asker: Option<Asker>,
}

/// Is called with the view, the directory, and the name in it.
type OnNewName = Box<dyn Fn(View, Ino, &[u8]) + Send + Sync>;

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("here", &self.here)
            .field("mounted", &self.mounted)
            .finish_non_exhaustive()
    }
}

/// The result of a request, or the refusal.
pub(super) type Answer<T> = Result<T, AdminError>;

/// A refusal with the text of `error`.
pub(super) fn refuse(error: impl std::fmt::Display) -> AdminError {
    AdminError(error.to_string())
}

/// The same for an error of the disk. That knows versions only by their numbers, which mean nothing
/// to the user.
pub(super) fn refuse_disk(error: Error) -> AdminError {
    match error {
        Error::NoSuchView(View { epoch: Some(epoch), .. }) => AdminError(format!(
            "@{epoch} is gone: somebody, or retention, has deleted it meanwhile"
        )),
        Error::NoSuchView(_) => {
            AdminError("the branch is gone: somebody has deleted it meanwhile".into())
        }
        Error::OtherClient(_) => AdminError(OTHER_CLIENT.into()),
        other => refuse(other),
    }
}

/// The refusal to bring versions of two clients together.
const OTHER_CLIENT: &str = "the two belong to different clients of the volume, which have nothing in \
                            common; `dendro client list` lists them";

/// The same for a version that cannot be deleted.
pub(super) fn cannot_delete(error: Error, view: View, table: &VersionTable) -> AdminError {
    let what = info::called(view, table);
    match error {
        Error::InUse(_, why) if view.epoch.is_some() => AdminError(format!(
            "{what} cannot be deleted: {why}; `dendro snapshot release` lets it go"
        )),
        Error::InUse(_, why) => AdminError(format!("{what} cannot be deleted: {why}")),
        other => refuse_disk(other),
    }
}

impl Service {
    /// A service for a volume of which no view is open.
    #[must_use]
    pub fn new(disk: Arc<dyn Versions>, clock: Arc<dyn Clock>) -> Self {
        let (mounted, exported) = (Vec::new(), Vec::new());
        Self { disk, clock, here: None, mounted, exported, on_new_name: None, asker: None }
    }

    /// The same, with the view `fs` open too, and mounted at `place`.
    #[must_use]
    pub fn with_mounted(mut self, fs: Arc<FileSystem>, place: impl Into<String>) -> Self {
        self.mounted.push((fs, place.into()));
        self
    }

    /// The same, with block devices that clients have open, each once for each connection. The
    /// caller sees to it that these do not become more while a request is carried out.
    #[must_use]
    pub fn with_exported(mut self, views: Vec<View>) -> Self {
        self.exported = views;
        self
    }

    /// The same, calling `on_new_name` after a name was added to a view: a kernel that has the view
    /// mounted may have cached that the name does not exist.
    #[must_use]
    pub fn on_new_name(
        mut self,
        on_new_name: impl Fn(View, Ino, &[u8]) + Send + Sync + 'static,
    ) -> Self {
        self.on_new_name = Some(Box::new(on_new_name));
        self
    }

    /// The same, with names without a branch referring to `view`.
    #[must_use]
    pub const fn at(mut self, view: View) -> Self {
        self.here = Some(view);
        self
    }

    /// The same, for requests of `asker`.
    #[must_use]
    pub fn asked_by(mut self, asker: Option<Asker>) -> Self {
        self.asker = asker;
        self
    }

    /// Makes the changes durable, and returns the reply.
    pub(super) fn done(&self, reply: VersionsReply) -> Answer<VersionsReply> {
        self.disk.flush(CommitSeq::LATEST).map_err(refuse)?;
        Ok(reply)
    }

    /// The view that names without a branch refer to.
    pub(super) fn here(&self, table: &VersionTable) -> View {
        self.here.unwrap_or_else(|| table.main_head())
    }

    pub(super) fn resolve(&self, table: &VersionTable, name: &VersionName) -> Answer<View> {
        resolve(table, self.here(table), name, self.clock.now()).map_err(AdminError)
    }

    /// As [`Self::resolve`], for a version that is to be changed. A time, which means the newest
    /// version before it, is refused.
    pub(super) fn exact(&self, table: &VersionTable, name: &VersionName) -> Answer<View> {
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

    /// As [`Self::resolve`], for requests that need a head.
    pub(super) fn head(&self, table: &VersionTable, name: &VersionName) -> Answer<View> {
        let view = self.resolve(table, name)?;
        match view.epoch {
            None => Ok(view),
            Some(_) => {
                let what = info::called(view, table);
                Err(AdminError(format!("{what} is past; name a branch, without @")))
            }
        }
    }

    /// Refuses two versions of which each belongs to another client.
    pub(super) fn check_same_client(&self, table: &VersionTable, a: View, b: View) -> Answer<()> {
        let client = |view: View| table.client_of(view.branch).0;
        if client(a) == client(b) { Ok(()) } else { Err(AdminError(OTHER_CLIENT.into())) }
    }

    /// Refuses a version that somebody uses.
    pub(super) fn check_not_used(&self, table: &VersionTable, view: View) -> Answer<()> {
        let what = || info::called(view, table);
        if let Some((_, place)) = self.mounted.iter().find(|(fs, _)| fs.view() == view) {
            return Err(AdminError(format!("{} is mounted on {place}; unmount it first", what())));
        }
        let connections = match self.exported.iter().filter(|open| **open == view).count() {
            0 => return Ok(()),
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        Err(AdminError(format!(
            "{} has {connections} of clients of `dendro nbd`, which `dendro block list \
             --connections` lists; disconnect them first",
            what()
        )))
    }

    /// The user whose permissions count; `None`: all is allowed.
    pub(super) fn who(&self) -> Option<&Credentials> {
        self.asker.as_ref().map(|asker| &asker.who)
    }
}

/// The path that a request names.
pub(super) fn bytes_of(path: &str) -> Answer<Vec<u8>> {
    path_bytes(path).ok_or_else(|| AdminError(format!("{path} has a stray backslash")))
}
