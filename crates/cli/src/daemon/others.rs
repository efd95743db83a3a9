//! What other users than the daemon's own and root may ask at the control socket.
//!
//! Nothing that is not named here. Everybody hears what the volume is like, and may look at the past of a
//! mount that is for everybody, as far as the permissions in it allow (`dendro_versions` checks those).
//! Making versions is for those to whom the mount's options delegate it.
//!
//! A mount may be for everybody and lie where only some can go. So whoever asks about what is in it shows
//! that it gets there, by a descriptor of its root.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dendro_control::cleaning::Cleaning;
use dendro_control::versions::{VersionsAsked, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Caller, Command, MountNamed, Outcome, Pong, Request, UnmountRequest,
    ViewInfo, VolumeInfo,
};
use dendro_fs::{Credentials, Ino};
use dendro_fuse::{Access, UnmountMode};
use dendro_versions::Asker;
use rustix::fs::{AtFlags, StatxFlags, statx};

use super::Daemon;
use super::views::MountedView;

pub(super) fn deny<T>(why: &str) -> Result<T, AdminError> {
    Err(AdminError(format!("permission denied: {why}")))
}

/// What nobody else may have done.
pub(super) const NOT_FOR_OTHERS: &str = "this needs root, or the user who mounted it";

impl Daemon<'_> {
    /// Whether other users may use a mount, as far as permissions in it allow.
    fn is_for_everybody(&self, view: &MountedView) -> bool {
        self.in_force(view).access == Some(Access::All)
    }

    /// Whether others than its own user may have anything done by this daemon.
    pub(super) fn is_for_others(&self) -> bool {
        rustix::process::geteuid().is_root()
            && self.views.all().iter().any(|view| self.is_for_everybody(view))
    }

    /// Whether a mount for everybody delegates anything to this user.
    fn has_delegate(&self, caller: &Caller) -> bool {
        self.views
            .all()
            .iter()
            .filter(|view| self.is_for_everybody(view))
            .any(|view| self.in_force(view).delegates.include(caller, self.volume.source()))
    }

    /// Does what another user asks, if that user may.
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
            Command::Stat => Outcome::Stat(self.stat()?),
            // How full they are, for `dendro usage`; nothing of what is in them.
            Command::Segments(asked) if self.has_delegate(caller) => {
                Outcome::Segments(self.segments(asked)?)
            }
            Command::Metrics => Outcome::Metrics(self.metrics()?),
            // As anybody can by sync(2).
            Command::Sync => self.sync().map(|()| Outcome::Done)?,
            Command::Unmount(asked) => {
                let view = self.mounted_for_request(request)?;
                if view.lent_to != Some(caller.uid) {
                    return deny(NOT_FOR_OTHERS);
                }
                unmount(&view, *asked)?;
                Outcome::Done
            }
            Command::Mount(asked) => {
                let (reply, mount) = self.lend(caller, asked, descriptor)?;
                return Ok((Outcome::Mount(reply), mount));
            }
            Command::Versions(VersionsAsked {
                mount,
                request: wish @ VersionsRequest::Delete { .. },
            }) => {
                // Whoever made a version may take it away from anywhere.
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
                let mount = Some(MountNamed::View(mount.id));
                Outcome::Versions(self.versions_for(mount, wish, Some(asker))?)
            }
            _ => return deny(NOT_FOR_OTHERS),
        };
        Ok((outcome, None))
    }

    /// The mount that a request is meant for.
    fn mounted_for_request(&self, request: &Request) -> Result<Arc<MountedView>, AdminError> {
        match request.mount(None) {
            Some(mount) => self.mounted(mount),
            None => Err(AdminError("say which mount".into())),
        }
    }

    /// The mount in which somebody asks about versions, and what that one may do there.
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
        let is_delegate = options.delegates.include(caller, self.volume.source());
        if !is_delegate && (view.view().epoch.is_some() || !options.snapdir) {
            return deny("this mount does not show the past");
        }
        Ok((view, Asker { who: who(caller), is_delegate }))
    }

    /// Who the daemon is, without the mounts that are not for everybody.
    fn pong_for_others(&self) -> Pong {
        let mut pong = self.ping();
        self.retain_for_others(&mut pong.views);
        self.retain_for_others(&mut pong.closing);
        let first = pong.views.first().map(|view| view.mount_point.clone());
        pong.mount_point = first.unwrap_or_default();
        pong
    }

    /// The same with what the volume is like.
    fn info_for_others(&self) -> Result<VolumeInfo, AdminError> {
        let mut info = self.info()?;
        if let Some(mount) = &mut info.mount {
            self.retain_for_others(&mut mount.views);
            let first = mount.views.first().map(|view| view.mount_point.clone());
            mount.mount_point = first.unwrap_or_default();
        }
        Ok(info)
    }

    fn retain_for_others(&self, told: &mut Vec<ViewInfo>) {
        let views = self.views.all_open();
        told.retain(|info| {
            let view = views.iter().find(|view| view.id == info.id);
            view.is_some_and(|view| self.is_for_everybody(view))
        });
    }
}

/// Unmounts one mount.
pub(super) fn unmount(view: &MountedView, how: UnmountRequest) -> Result<(), AdminError> {
    let mode = if how.force { UnmountMode::Abort } else { UnmountMode::Idle };
    match view.is_elsewhere {
        true => Err(AdminError(format!(
            "{}: goes when the processes in that namespace end",
            view.place()
        ))),
        false => view.unmount(mode).map_err(AdminError),
    }
}

fn who(caller: &Caller) -> Credentials {
    let Caller { uid, gid, groups } = caller.clone();
    Credentials { uid, gid, groups }
}

/// Whether the descriptor is of the root of what is mounted. Nobody is asked for that, who may not answer.
fn is_root_of(root: &OwnedFd, view: &MountedView) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(told) = statx(root, "", flags, StatxFlags::INO) else { return false };
    let device = format!("{}:{}", told.stx_dev_major, told.stx_dev_minor);
    device == view.device && told.stx_ino == Ino::ROOT.0
}
