//! Another head in the place of one that is mounted.

use std::fs::File;
use std::sync::Arc;

use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{AdminError, MountNamed};
use dendro_disk::View;
use dendro_fs::versions::stale;
use dendro_versions::Succession;

use super::Daemon;
use super::admin::refuse;
use super::open_files::{self, Which};
use super::views::MountedView;

impl Daemon<'_> {
    /// Carries out a request that may put another head in the place of one that is mounted, and shows
    /// that in the mount. The caller holds the lock on changes.
    pub(super) fn succeed(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
    ) -> Result<VersionsReply, AdminError> {
        let service = self.service(mount, None)?;
        let Some(Succession { head, like }) = service.succession(request)? else {
            return service.answer(request);
        };
        // Nothing to be shown, so it does not matter what is open.
        if let Some(reply) = service.spare_replacement(request)? {
            return Ok(reply);
        }
        let views = self.views.all_open();
        let Some(mounted) = views.iter().find(|view| view.view() == head) else {
            return service.answer(request);
        };
        if let Some(other) = views.iter().find(|view| like.epoch.is_none() && view.view() == like) {
            return Err(AdminError(format!(
                "{like} is mounted on {}; unmount it first",
                other.place()
            )));
        }
        // Programs that read may go on where nothing changes under them unasked.
        let which = match request {
            VersionsRequest::Replace { .. } => Which::Writable,
            _ => Which::All,
        };
        check_closed(mounted, which)?;
        let service = self.service(mount, Some(mounted))?;
        mounted.switch.exchange(|_| {
            let stale = stale(self.volume.disk(), head, like).map_err(refuse)?;
            let reply = service.answer(request)?;
            let new = match &reply {
                // It has changed, so nothing was done.
                VersionsReply::Diff(_) => return Ok((None, reply)),
                VersionsReply::Branch(made) => View { branch: made.branch, epoch: None },
                _ => like,
            };
            let fs = self.volume.open_view(new, &mounted.options).map_err(|error| {
                AdminError(format!("it is done, but unmount {}: {error}", mounted.place()))
            })?;
            Ok((Some((fs, stale)), reply))
        })
    }
}

/// Refuses to exchange what is open.
fn check_closed(view: &Arc<MountedView>, which: Which) -> Result<(), AdminError> {
    if !view.is_elsewhere {
        // Pages that programs have mapped and changed are in the kernel still.
        if let Ok(root) = File::open(&view.mount_point) {
            let _ = rustix::fs::syncfs(&root);
        }
    }
    match open_files::find(&view.device, which) {
        None => Ok(()),
        Some(file) => Err(AdminError(format!(
            "files are open in {}: {} by process {} ({}); close them first",
            view.place(),
            file.path.display(),
            file.pid,
            file.command
        ))),
    }
}
