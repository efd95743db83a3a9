//! What the kernel has collected of a mount (`order=close`), and how it hands that over.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fstat, major, minor, openat, syncfs};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::mounts::open_files;

/// Has the kernel begin to hand over everything that it has collected of the mount on `mount_point`
/// with the device number `device`. Some kernels return when they have begun: they do not wait for
/// a file system that is a program.
///
/// # Errors
/// The mount is not reached there, or something could not be written.
pub(super) fn begin_hand_over(mount_point: &Path, device: &str) -> io::Result<()> {
    let root = open_root(mount_point)?;
    let number = fstat(&root)?.st_dev;
    if format!("{}:{}", major(number), minor(number)) != device {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(syncfs(&root)?)
}

/// Waits until the kernel has handed over everything. Only files that are open have anything left,
/// and closing a file, also by another descriptor, waits for it.
pub(super) fn await_hand_over(device: &str) {
    open_files::close_each_written(device);
}

/// Opens the root of a mount. A clone of the mount, which is attached nowhere, is opened where that
/// is possible: an open file would keep the mount itself from being unmounted.
fn open_root(mount_point: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let root = match open_tree(CWD, mount_point, clone) {
        Ok(tree) => openat(&tree, ".", flags, Mode::empty())?,
        Err(_) => openat(CWD, mount_point, flags, Mode::empty())?,
    };
    Ok(root)
}
