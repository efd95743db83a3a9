//! Mounts that the daemon makes for other users, of branches that these have made.
//!
//! A user could mount by itself and pass the connection on. But whoever mounts decides whether the kernel checks
//! permissions, and, in a user namespace, who is root there. So the daemon mounts, with permissions checked, no
//! devices and no set-user-ID programs: on a directory that belongs to the user, or nowhere yet, for the user to
//! show it in a mount namespace of its own.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use dendro_control::{AdminError, Caller, MountReply, MountRequest, ViewInfo};
use dendro_disk::{Versions, View};
use dendro_fs::versions::maker;
use dendro_fuse::{Access, Mount, MountOptions as FuseOptions, UnmountMode, mount_for_user};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount};

use super::admin::refuse;
use super::open_files;
use super::others::{NOT_FOR_OTHERS, deny};
use super::views::{Closing, MountedView};
use super::{Daemon, MountPlace, fuse_options, report};
use crate::daemon::Config;
use crate::mount_identity::MountIdentity;
use crate::mount_options::MountOptions;
use crate::mount_table;

/// File systems whose directories users may mount on: such as hold users' files. In others, as proc,
/// directories that belong to users mean something to the system.
const MOUNTABLE: [&str; 12] = [
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "tmpfs",
    "xfs", "zfs",
];

/// A mount that was made for somebody, and its descriptor if that one is to put it somewhere.
type Lent = (MountReply, Option<OwnedFd>);

impl Daemon<'_> {
    /// Mounts for `caller`: on `directory`, or nowhere yet.
    pub(super) fn lend(
        &self,
        caller: &Caller,
        request: &MountRequest,
        directory: Option<OwnedFd>,
    ) -> Result<Lent, AdminError> {
        match self.views.arrive() {
            None => Ok((MountReply::Ending, None)),
            Some(_arrival) => {
                let (view, mount) = self.lend_one(caller, request, directory)?;
                Ok((MountReply::Served(Box::new(view)), mount))
            }
        }
    }

    fn lend_one(
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
        self.check_lent(caller, view)?;
        self.check_free(view)?;
        self.check_writable(&options)?;
        let fs = self.volume.open_view(view, &options).map_err(refuse)?;
        let source = self.volume.source().to_path_buf();
        let config = Config { source, mount_point: mount_point.clone(), options: options.clone() };
        let serving = FuseOptions { past: self.past(view, &options), ..fuse_options(&config) };
        let owner = (caller.uid, caller.gid);
        // The path is for people to read: a user may have put something else there by the time it ends.
        let made = mount_for_user(&mount_point, true, &serving, owner);
        let (mounted, descriptor) = made.map_err(refuse)?;
        let mount = Mount::serving(mounted, fs, &serving, report(self.volume)).map_err(refuse)?;
        let (device, mount_id) = MountIdentity::told_of(&link_of(&descriptor));
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
            lent_to: Some(caller.uid),
        };
        let closing = Arc::new(Closing::new(mount.switch()));
        let view = self.add(mount, closing, place, &options);
        self.leave_card();
        let info = self.view_info(&view, &self.volume.disk().versions());
        Ok((info, directory.is_none().then_some(descriptor)))
    }

    /// How it is mounted: no less strictly than what everybody uses already.
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
        for view in self.views.all().iter().filter(|view| view.lent_to.is_none()) {
            let MountOptions { exec, symfollow, snapdir, dev, suid, .. } = self.in_force(view);
            options.exec &= exec;
            options.symfollow &= symfollow;
            options.snapdir &= snapdir;
            is_bounded |= !(exec && symfollow && dev && suid);
        }
        // Whoever has a mount in a namespace of its own can take these bounds away from it.
        if is_detached && is_bounded {
            return deny(
                "the volume is mounted with nodev, nosuid, noexec or nosymfollow, which could not \
                         be kept up for this; `dendro fork` can be used instead",
            );
        }
        Ok(options)
    }

    /// Refuses to mount what somebody has not made.
    fn check_lent(&self, caller: &Caller, view: View) -> Result<(), AdminError> {
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

/// Unmounts a view that was lent. The directories on the way are a user's, who may have put others in their
/// place: what is unmounted is the view's own mount, or nothing.
pub(super) fn unmount(view: &MountedView, mode: UnmountMode) -> Result<(), String> {
    let place = view.mount_point.display();
    let fail = |why: &dyn std::fmt::Display| format!("cannot unmount {place}: {why}");
    let (Some(parent), Some(name)) = (view.mount_point.parent(), view.mount_point.file_name())
    else {
        return Err(fail(&"it has no name"));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let parent = parent.map_err(|errno| fail(&errno))?;
    // What is mounted there cannot be renamed.
    let path = link_of(&parent).join(name);
    let (device, mount_id) = MountIdentity::told_of(&path);
    if (device, mount_id) != (view.device.clone(), view.mount_id) {
        return Err(fail(&"something else is there"));
    }
    let flags = UnmountFlags::NOFOLLOW
        | match mode {
            UnmountMode::Idle => UnmountFlags::empty(),
            UnmountMode::Detach => UnmountFlags::DETACH,
            UnmountMode::Abort => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
    rustix::mount::unmount(&path, flags).map_err(|errno| match errno {
        Errno::BUSY => {
            let advice = "--force, which cuts that off";
            open_files::busy_text(&view.mount_point, &view.device, advice)
        }
        errno => fail(&errno),
    })
}

/// Where the directory lies, if it is one that `caller` may mount on. Nobody is asked for that, who may not
/// answer.
fn place_of(directory: &OwnedFd, caller: &Caller) -> Result<PathBuf, AdminError> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = statx(directory, "", flags, StatxFlags::TYPE | StatxFlags::UID).map_err(refuse)?;
    let is_directory = FileType::from_raw_mode(told.stx_mode.into()) == FileType::Directory;
    let link = link_of(directory);
    let path = fs::read_link(&link).map_err(refuse)?;
    let table = mount_table::read().map_err(|failure| AdminError(failure.message))?;
    let id = MountIdentity::of(&link).and_then(|identity| identity.table_id);
    let mount = table.iter().find(|entry| Some(entry.id) == id);
    let is_mountable = mount.is_some_and(|entry| {
        let kind = &*entry.fs_type;
        MOUNTABLE.contains(&kind) || entry.is_dendro()
    });
    match is_directory && told.stx_uid == caller.uid && is_mountable {
        true => Ok(path),
        false => {
            deny(&format!("{}: is not a directory of yours that can be mounted on", path.display()))
        }
    }
}

/// A path of what the descriptor is of.
fn link_of(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}
