//! A mount without a place, which the holder of its descriptor can attach to a directory.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::mounted::Mounted;
use super::request::{Access, Error, MountRequest, Result};
use crate::dev_fuse::{self, DEVICE};

/// Creates a mount for the user and the group `owner`, who may unmount it. It is not attached to a
/// directory yet: `mount_point` is where it will be. `is_elsewhere`: in another mount namespace.
/// Only root can do this. Returns the connection, and the descriptor of the mount.
///
/// # Errors
/// [`Error::NoFuse`], [`Error::Mount`].
pub fn mount_detached(
    mount_point: &Path,
    is_elsewhere: bool,
    request: &MountRequest,
    owner: (u32, u32),
) -> Result<(Mounted, OwnedFd)> {
    let device = dev_fuse::open().map_err(Error::NoFuse)?;
    let fail = |source| Error::Mount { path: mount_point.to_path_buf(), source };
    let mount = make(&device, request, owner).map_err(fail)?;
    let number = statx(&mount, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)
        .map(|stat| (stat.stx_dev_major, stat.stx_dev_minor));
    let number = number.map_err(|errno| fail(errno.into()))?;
    Ok((Mounted::new(device, mount_point, Some(number), is_elsewhere), mount))
}

fn make(device: &OwnedFd, request: &MountRequest, (uid, gid): (u32, u32)) -> io::Result<OwnedFd> {
    let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let values = [
        ("source", request.source.clone()),
        ("subtype", request.subtype.clone()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40755".to_owned()),
        ("user_id", uid.to_string()),
        ("group_id", gid.to_string()),
    ];
    for (name, value) in values {
        fsconfig_set_string(&fs, name, value)?;
    }
    let flags = [
        ("default_permissions", request.default_permissions),
        ("allow_other", request.access != Access::Owner),
        ("ro", request.read_only),
        ("sync", request.sync),
        ("dirsync", request.dirsync),
    ];
    for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        fsconfig_set_flag(&fs, *name)?;
    }
    fsconfig_create(&fs).map_err(|errno| {
        io::Error::new(io::Error::from(errno).kind(), format!("{DEVICE}: {errno}"))
    })?;
    let mut attributes = MountAttrFlags::empty();
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, request.read_only);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, !request.dev);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !request.suid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, !request.exec);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOATIME, request.noatime);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, request.nosymfollow);
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
