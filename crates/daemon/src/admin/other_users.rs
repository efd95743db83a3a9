//! Requests of users other than root and the daemon's own user.
//!
//! Only the requests that are handled here are allowed. Every user gets facts about the volume, and
//! may look at the past of a mount that is open to all users, as far as permissions in it allow
//! (`dendro_versions` checks those). Users to whom the mount's options delegate it may make
//! versions.
//!
//! A mount that is open to all users may lie below a directory that only some can enter. So a
//! request about its contents must come with a descriptor of the mount's root, which proves that
//! the user can reach it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dendro_control::versions::{VersionsAsked, VersionsRequest};
use dendro_control::{
    AdminError, Caller, Command, MountNamed, Outcome, Pong, Request, ViewInfo, VolumeInfo,
};
use dendro_fs::{Credentials, Ino};
use dendro_versions::Asker;
use rustix::fs::{AtFlags, StatxFlags, statx};

use super::mounting::unmount;
use super::refusal::{NOT_FOR_OTHERS, deny};
use crate::cleaning;
use crate::state::Daemon;
use crate::views::MountedView;

impl Daemon<'_> {
    /// Whether any mount that is open to all users delegates something to this user.
    fn has_delegate(&self, caller: &Caller) -> bool {
        self.views
            .all()
            .iter()
            .filter(|view| self.is_for_everybody(view))
            .any(|view| self.in_force(view).delegates.include(caller, &self.volume.source()))
    }

    /// Carries out the request of another user, if that user may make it.
    pub(super) fn serve_other(
        &self,
        caller: &Caller,
        request: &Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        if !self.is_for_others() {
            return deny(NOT_FOR_OTHERS);
        }
        let outcome = match &request.command {
            Command::Ping => Outcome::Pong(self.pong_for_others()),
            Command::Info => Outcome::Info(Box::new(self.info_for_others()?)),
            Command::Stat => Outcome::Stat(self.statistics()?),
            // How full segments are, for `dendro usage`; not their contents.
            Command::Segments(asked) if self.has_delegate(caller) => {
                Outcome::Segments(cleaning::segments(self.volume.disk(), asked))
            }
            Command::Metrics => Outcome::Metrics(self.metrics_text()?),
            // Any user can do the same by sync(2).
            Command::Sync => self.sync_all().map(|()| Outcome::Done)?,
            Command::Unmount(asked) => {
                let view = self.mounted_for_request(request)?;
                if view.on_behalf_of() != Some(caller.uid) {
                    return deny(NOT_FOR_OTHERS);
                }
                unmount(&view, *asked)?;
                Outcome::Done
            }
            Command::Mount(asked) => {
                let (reply, mount) = self.mount_for_other_user(caller, asked, descriptor)?;
                return Ok((Outcome::Mount(reply), mount));
            }
            Command::Versions(VersionsAsked {
                mount,
                request: wish @ VersionsRequest::Delete { .. },
            }) => {
                // The maker of a version may delete it from anywhere.
                let mount = request.mount(mount.as_ref());
                let mount = mount.filter(|mount| self.views.find(*mount).is_some());
                let asker = Some(Asker { who: who(caller), is_delegate: true });
                Outcome::Versions(self.versions_for(mount, wish, asker)?)
            }
            Command::Versions(asked) => {
                let VersionsAsked { mount, request: wish } = asked;
                let mount = request.mount(mount.as_ref());
                let (mount, asker) = self.asker(caller, mount, descriptor.as_ref())?;
                if wish.is_change() && self.in_force(&mount).read_only {
                    return deny("it is mounted read-only");
                }
                let mount = Some(MountNamed::View(mount.id()));
                Outcome::Versions(self.versions_for(mount, wish, Some(asker))?)
            }
            _ => return deny(NOT_FOR_OTHERS),
        };
        Ok((outcome, None))
    }

    /// The mount that a request names.
    fn mounted_for_request(&self, request: &Request) -> Result<Arc<MountedView>, AdminError> {
        match request.mount(None) {
            Some(mount) => self.mounted(mount),
            None => Err(AdminError("say which mount".into())),
        }
    }

    /// The mount that a request about versions names, and what the caller may do there.
    fn asker(
        &self,
        caller: &Caller,
        mount: Option<MountNamed<'_>>,
        root: Option<&OwnedFd>,
    ) -> Result<(Arc<MountedView>, Asker), AdminError> {
        let Some(mount) = mount else {
            return deny(
                "name the volume by a path in its mount; by its image or device this needs \
                         root, or the user who mounted it",
            );
        };
        let view = self.mounted(mount)?;
        if !self.is_for_everybody(&view) || !root.is_some_and(|root| is_root_of(root, &view)) {
            return deny("this mount is not open to other users");
        }
        let options = self.in_force(&view);
        let is_delegate = options.delegates.include(caller, &self.volume.source());
        if !is_delegate && (view.view().epoch.is_some() || !options.snapdir) {
            return deny("this mount does not show the past");
        }
        Ok((view, Asker { who: who(caller), is_delegate }))
    }

    /// The daemon's identity, without the mounts that are not open to all users.
    fn pong_for_others(&self) -> Pong {
        let mut pong = self.pong();
        self.retain_for_others(&mut pong.views);
        self.retain_for_others(&mut pong.closing);
        let first = pong.views.first().map(|view| view.mount_point.clone());
        pong.mount_point = first.unwrap_or_default();
        pong
    }

    /// The facts about the volume, without the mounts that are not open to all users.
    fn info_for_others(&self) -> Result<VolumeInfo, AdminError> {
        let mut info = self.volume_info()?;
        if let Some(mount) = &mut info.mount {
            self.retain_for_others(&mut mount.views);
            let first = mount.views.first().map(|view| view.mount_point.clone());
            mount.mount_point = first.unwrap_or_default();
        }
        Ok(info)
    }

    fn retain_for_others(&self, infos: &mut Vec<ViewInfo>) {
        let views = self.views.all_open();
        infos.retain(|info| {
            let view = views.iter().find(|view| view.id() == info.id);
            view.is_some_and(|view| self.is_for_everybody(view))
        });
    }
}

fn who(caller: &Caller) -> Credentials {
    let Caller { uid, gid, groups } = caller.clone();
    Credentials { uid, gid, groups }
}

/// Whether the descriptor refers to the root of the mount. This does not ask the file system, which
/// may not answer.
fn is_root_of(root: &OwnedFd, view: &MountedView) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(attributes) = statx(root, "", flags, StatxFlags::INO) else { return false };
    let device = format!("{}:{}", attributes.stx_dev_major, attributes.stx_dev_minor);
    device == view.device() && attributes.stx_ino == Ino::ROOT.0
}
