//! Mounts that the daemon makes for other users, of branches that they have made.
//!
//! A user could mount alone and pass the connection to the daemon. But the process that mounts
//! decides whether the kernel checks permissions and, in a user namespace, who is root. So the
//! daemon mounts, with permission checks, without devices and without set-user-ID programs. It
//! mounts on a directory that belongs to the user, or returns a detached mount, which the user
//! attaches in a mount namespace of its own.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use dendro_control::{AdminError, Caller, MountReply, MountRequest, ViewInfo};
use dendro_disk::{Versions, View};
use dendro_fs::versions::maker;
use dendro_fuse::{Access, Mount, MountOptions as FuseOptions, mount_for_user};
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use rustix::mount::{MoveMountFlags, move_mount};

use super::mounting::check_order;
use super::refusal::{NOT_FOR_OTHERS, deny, refuse};
use crate::mount_config::{Config, fuse_options};
use crate::mounts::{self, MountIdentity};
use crate::options::MountOptions;
use crate::serving::report;
use crate::state::Daemon;
use crate::views::{Closing, MountPlace};

/// Types of file systems whose directories users may mount on. These hold users' files. In others,
/// such as proc, directories that belong to users have a meaning for the system.
const MOUNTABLE: [&str; 12] = [
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "tmpfs",
    "xfs", "zfs",
];

/// A mount that was made for a user; with its descriptor if the user is to attach it.
type UserMount = (MountReply, Option<OwnedFd>);

impl Daemon<'_> {
    /// Mounts for `caller`: on `directory`, or detached.
    pub(super) fn mount_for_other_user(
        &self,
        caller: &Caller,
        request: &MountRequest,
        directory: Option<OwnedFd>,
    ) -> Result<UserMount, AdminError> {
        match self.views.arrive() {
            None => Ok((MountReply::Ending, None)),
            Some(_arrival) => {
                let (view, mount) = self.mount_one_for_user(caller, request, directory)?;
                Ok((MountReply::Served(Box::new(view)), mount))
            }
        }
    }

    fn mount_one_for_user(
        &self,
        caller: &Caller,
        request: &MountRequest,
        directory: Option<OwnedFd>,
    ) -> Result<(ViewInfo, Option<OwnedFd>), AdminError> {
        let is_elsewhere = request.namespace != self.namespace;
        let options = self.options_for(caller, request, directory.is_none())?;
        let mount_point = match &directory {
            Some(_) if is_elsewhere => {
                return Err(AdminError(
                    "its daemon is in another mount namespace, and cannot mount in this one".into(),
                ));
            }
            Some(directory) => place_of(directory, caller)?,
            None => PathBuf::from(&request.mount_point),
        };
        self.wait_for_unmounted(request);
        let _changes = self.changes.lock();
        let view = self.volume.resolve(&request.of).map_err(AdminError)?;
        self.check_is_maker(caller, view)?;
        self.check_free(view)?;
        self.check_writable(&options)?;
        check_order(&options, false)?;
        let fs = self.volume.open_view(view, &options).map_err(refuse)?;
        let source = self.volume.source().to_path_buf();
        let config = Config { source, mount_point: mount_point.clone(), options: options.clone() };
        let serving = FuseOptions { past: self.past(view, &options), ..fuse_options(&config) };
        let owner = (caller.uid, caller.gid);
        // The path is for messages only: a user may replace what is there before the mount ends.
        let made = mount_for_user(&mount_point, true, &serving, owner);
        let (mounted, descriptor) = made.map_err(refuse)?;
        let mount = Mount::serving(mounted, fs, &serving, report(self.volume)).map_err(refuse)?;
        let (device, mount_id) = mounts::numbers_of(&mounts::path_of(&descriptor));
        if let Some(directory) = &directory {
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(&descriptor, "", directory, "", flags).map_err(|errno| {
                AdminError(format!("cannot mount on {}: {errno}", mount_point.display()))
            })?;
        }
        let place = MountPlace {
            id: self.views.new_id(),
            mount_point,
            device,
            mount_id,
            namespace: request.namespace.clone(),
            is_fuseblk: false,
            on_behalf_of: Some(caller.uid),
        };
        let closing = Arc::new(Closing::new(mount.switch()));
        let view = self.add(mount, closing, place, &options);
        self.write_card();
        let info = self.view_info(&view, &self.volume.disk().versions());
        Ok((info, directory.is_none().then_some(descriptor)))
    }

    /// The options of the mount: no less strict than those of the mounts that all users have.
    fn options_for(
        &self,
        caller: &Caller,
        request: &MountRequest,
        is_detached: bool,
    ) -> Result<MountOptions, AdminError> {
        let wanted = MountOptions::parse([&*request.options]).map_err(AdminError)?;
        let mut options = MountOptions {
            read_only: wanted.read_only,
            atime: wanted.atime,
            exec: wanted.exec,
            symfollow: wanted.symfollow,
            snapdir: wanted.snapdir,
            access: Some(Access::All),
            dev: false,
            suid: false,
            ..MountOptions::default()
        };
        options.delegates.set_users(&caller.uid.to_string()).map_err(AdminError)?;
        let mut is_bounded = false;
        for view in self.views.all().iter().filter(|view| view.on_behalf_of().is_none()) {
            let MountOptions { exec, symfollow, snapdir, dev, suid, .. } = self.in_force(view);
            options.exec &= exec;
            options.symfollow &= symfollow;
            options.snapdir &= snapdir;
            is_bounded |= !(exec && symfollow && dev && suid);
        }
        // A user can lift these restrictions from a mount in a namespace of its own.
        if is_detached && is_bounded {
            return deny(
                "the volume is mounted with nodev, nosuid, noexec or nosymfollow, which could not \
                         be kept up for this; `dendro fork` can be used instead",
            );
        }
        Ok(options)
    }

    /// Refuses to mount a version that the caller has not made.
    fn check_is_maker(&self, caller: &Caller, view: View) -> Result<(), AdminError> {
        let disk = self.volume.disk();
        let is_own = view.epoch.is_none()
            && view != disk.versions().main_head()
            && maker(disk, view).map_err(refuse)? == Some(caller.uid);
        match is_own {
            true => Ok(()),
            false => deny(&format!(
                "{NOT_FOR_OTHERS}; others can mount branches that they have made, by `dendro clone` or \
                 `dendro fork`"
            )),
        }
    }
}

/// The path of the directory, if `caller` may mount on it. This does not ask the file system, which
/// may not answer.
fn place_of(directory: &OwnedFd, caller: &Caller) -> Result<PathBuf, AdminError> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let attributes =
        statx(directory, "", flags, StatxFlags::TYPE | StatxFlags::UID).map_err(refuse)?;
    let is_directory = FileType::from_raw_mode(attributes.stx_mode.into()) == FileType::Directory;
    let link = mounts::path_of(directory);
    let path = fs::read_link(&link).map_err(refuse)?;
    let table = mounts::read().map_err(|failure| AdminError(failure.message))?;
    let id = MountIdentity::of(&link).and_then(|identity| identity.table_id);
    let mount = table.iter().find(|entry| Some(entry.id) == id);
    let is_mountable = mount.is_some_and(|entry| {
        let kind = &*entry.fs_type;
        MOUNTABLE.contains(&kind) || entry.is_dendro()
    });
    match is_directory && attributes.stx_uid == caller.uid && is_mountable {
        true => Ok(path),
        false => {
            deny(&format!("{}: is not a directory of yours that can be mounted on", path.display()))
        }
    }
}
