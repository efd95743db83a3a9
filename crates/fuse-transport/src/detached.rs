//! A mount that lies nowhere yet, to be put somewhere by whoever has its descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use crate::device::{self, DEVICE};
use crate::mount::{Access, Error, MountRequest, Mounted, Result};

/// Mounts for the user and the group `owner`, who may unmount it, on nothing yet. `mount_point` is where it will
/// be; `is_elsewhere`: in another mount namespace. Root alone can do this.
///
/// # Errors
/// [`Error::NoFuse`], [`Error::Mount`].
pub fn mount_detached(
    mount_point: &Path,
    is_elsewhere: bool,
    request: &MountRequest,
    owner: (u32, u32),
) -> Result<(Mounted, OwnedFd)> {
    let device = device::open().map_err(Error::NoFuse)?;
    let fail = |source| Error::Mount { path: mount_point.to_path_buf(), source };
    let mount = make(&device, request, owner).map_err(fail)?;
    let number = statx(&mount, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)
        .map(|told| (told.stx_dev_major, told.stx_dev_minor));
    let number = number.map_err(|errno| fail(errno.into()))?;
    Ok((Mounted::made(device, mount_point, number, is_elsewhere), mount))
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
