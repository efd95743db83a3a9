//! Handover: another head takes the place of one that is mounted.

use std::fs::File;
use std::sync::Arc;

use dendro_control::versions::{OpenFileInfo, VersionsReply, VersionsRequest};
use dendro_control::{AdminError, MountNamed};
use dendro_disk::View;
use dendro_fs::versions::stale;
use dendro_versions::{Asker, Handover};

use super::refusal::refuse;
use crate::mounts::open_files::{self, Which};
use crate::state::Daemon;
use crate::views::MountedView;

/// The most open files that a refusal names.
const MAX_NAMED_FILES: usize = 5;

impl Daemon<'_> {
    /// Carries out a request that may replace a mounted head, and shows the new head in that mount.
    /// The caller holds the lock `changes`.
    pub(super) fn hand_over(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
        asker: Option<Asker>,
    ) -> Result<VersionsReply, AdminError> {
        let service = self.service(mount, None)?.asked_by(asker.clone());
        service.check(request)?;
        let Some(Handover { head, like }) = service.handover(request)? else {
            return service.answer(request);
        };
        // Nothing new would be shown, so open files do not matter.
        if let Some(reply) = service.spare_replacement(request)? {
            return Ok(reply);
        }
        let views = self.views.all_open();
        let Some(mounted) = views.iter().find(|view| view.view() == head) else {
            return service.answer(request);
        };
        if mounted.is_collected() {
            return Err(AdminError(format!(
                "it is mounted on {} with order=close, where the kernel alone knows how long files \
                 are; unmount it first",
                mounted.place()
            )));
        }
        if let Some(other) = views.iter().find(|view| like.epoch.is_none() && view.view() == like) {
            return Err(AdminError(format!(
                "{like} is mounted on {}; unmount it first",
                other.place()
            )));
        }
        // Programs that only read may continue where their files do not change.
        let which = match request {
            VersionsRequest::Replace { .. } => Which::Writable,
            _ => Which::All,
        };
        let open_files = open_files(mounted, which);
        if !is_forced(request) {
            check_closed(&open_files, which)?;
        }
        let service = self.service(mount, Some(mounted))?.asked_by(asker);
        mounted.switch().exchange(|_| {
            let stale = stale(self.volume.disk(), head, like).map_err(refuse)?;
            let mut reply = service.answer(request)?;
            let new = match &reply {
                // The head has changed, so the service did nothing.
                VersionsReply::Diff(_) => return Ok((None, reply)),
                VersionsReply::Branch(made) => View { branch: made.branch, epoch: None },
                _ => like,
            };
            if let VersionsReply::Branch(made) = &mut reply
                && let Some(replaced) = &mut made.replaced
            {
                replaced.open_files.extend(open_files);
            }
            let options = mounted.own_options();
            let fs = self.volume.open_view(new, &options).map_err(|error| {
                AdminError(format!("it is done, but unmount {}: {error}", mounted.place()))
            })?;
            Ok((Some((fs, stale)), reply))
        })
    }
}

/// Whether the request is carried out even if files are open.
const fn is_forced(request: &VersionsRequest) -> bool {
    match request {
        VersionsRequest::Promote { how, .. }
        | VersionsRequest::Replace { how, .. }
        | VersionsRequest::Rollback { how, .. } => how.force,
        _ => false,
    }
}

/// Files that are open in a mount.
fn open_files(view: &Arc<MountedView>, which: Which) -> Vec<OpenFileInfo> {
    if view.is_at_hand() {
        // The kernel still holds pages that programs have mapped and changed.
        if let Ok(root) = File::open(view.mount_point()) {
            let _ = rustix::fs::syncfs(&root);
        }
    }
    open_files::find(view.device(), which)
}

/// Refuses to replace a head while files in it are open.
fn check_closed(open_files: &[OpenFileInfo], which: Which) -> Result<(), AdminError> {
    if open_files.is_empty() {
        return Ok(());
    }
    let named: Vec<_> = open_files.iter().take(MAX_NAMED_FILES).map(open_files::describe).collect();
    let more = match open_files.len() - named.len() {
        0 => "",
        _ => ", and more",
    };
    let advice = match which {
        Which::All => "close them first, or use --force",
        Which::Writable | Which::Busy => "close them first",
    };
    Err(AdminError(format!("files are open: {}{more}; {advice}", named.join(", "))))
}
