//! Mounting on a directory: by mount(2), or through fusermount3.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::fusermount;
use super::mounted::Mounted;
use super::mountinfo::device_number;
use super::request::{Access, Error, MountRequest, Result};
use crate::dev_fuse;

/// Mounts on the directory `mount_point`: by mount(2) if this process may do that, otherwise
/// through fusermount3.
///
/// # Errors
/// [`Error::NoFuse`], [`Error::MountPoint`], [`Error::Mount`].
pub fn mount(mount_point: &Path, request: &MountRequest) -> Result<Mounted> {
    let mount_point = checked_mount_point(mount_point)?;
    let device = dev_fuse::open().map_err(Error::NoFuse)?;
    let fail = |source| Error::Mount { path: mount_point.clone(), source };
    let device = match mount_directly(&device, &mount_point, request) {
        Ok(()) => device,
        Err(Errno::PERM) if !request.block_device => {
            drop(device);
            fusermount::mount(&mount_point, request).map_err(fail)?
        }
        Err(errno) => return Err(fail(errno.into())),
    };
    let number = device_number(&mount_point);
    Ok(Mounted::new(device, &mount_point, number, false))
}

fn checked_mount_point(mount_point: &Path) -> Result<PathBuf> {
    let fail = |source| Error::MountPoint { path: mount_point.to_path_buf(), source };
    let absolute = mount_point.canonicalize().map_err(fail)?;
    if !fs::metadata(&absolute).map_err(fail)?.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    Ok(absolute)
}

fn mount_directly(
    device: &OwnedFd,
    mount_point: &Path,
    request: &MountRequest,
) -> rustix::io::Result<()> {
    let root = fs::metadata(mount_point)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        root.mode(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if request.default_permissions {
        data.push_str(",default_permissions");
    }
    if request.access != Access::Owner {
        data.push_str(",allow_other");
    }
    if request.block_device {
        // The block size that the device has already: another one would drop its cached pages.
        data.push_str(",blksize=4096");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, request.read_only);
    flags.set(MountFlags::NODEV, !request.dev);
    flags.set(MountFlags::NOSUID, !request.suid);
    flags.set(MountFlags::NOEXEC, !request.exec);
    flags.set(MountFlags::SYNCHRONOUS, request.sync);
    flags.set(MountFlags::DIRSYNC, request.dirsync);
    flags.set(MountFlags::NOATIME, request.noatime);
    flags.set(MountFlags::NOSYMFOLLOW, request.nosymfollow);
    let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
    let kind = if request.block_device { "fuseblk" } else { "fuse" };
    let fs_type = format!("{kind}.{}", request.subtype);
    rustix::mount::mount(request.source.as_str(), mount_point, fs_type, flags, &*data)
}
