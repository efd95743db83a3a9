//! Unmounts one certain mount, and never another one that may have taken its place.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use dendro_fuse::{UnmountMode, while_busy};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::lookup::numbers_of;
use super::open_files;

/// What stands in the way of unmounting.
enum Obstacle {
    Busy,
    /// Why it failed.
    Other(String),
}

/// Unmounts the mount on `mount_point` with this device and number. If it is in use, this tries
/// again for a second. A user may have replaced the directories on the path; then nothing is
/// unmounted.
pub(crate) fn unmount_exactly(
    mount_point: &Path,
    id: (&str, Option<u64>),
    mode: UnmountMode,
) -> Result<(), String> {
    let is_busy = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Busy);
    while_busy(is_busy, || unmount_once(mount_point, id, mode)).map_err(|obstacle| match obstacle {
        Obstacle::Busy => open_files::busy_text(mount_point, id.0, "--force, which cuts that off"),
        Obstacle::Other(why) => format!("cannot unmount {}: {why}", mount_point.display()),
    })
}

/// As [`unmount_exactly`], with one attempt.
fn unmount_once(
    mount_point: &Path,
    (device, mount_id): (&str, Option<u64>),
    mode: UnmountMode,
) -> Result<(), Obstacle> {
    let fail = |why: &dyn std::fmt::Display| Obstacle::Other(why.to_string());
    let (Some(parent), Some(name)) = (mount_point.parent(), mount_point.file_name()) else {
        return Err(fail(&"it has no name"));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let parent = parent.map_err(|errno| fail(&errno))?;
    // A mount point cannot be renamed.
    let path = path_of(&parent).join(name);
    if numbers_of(&path) != (device.to_owned(), mount_id) {
        return Err(fail(&"something else is there"));
    }
    let flags = UnmountFlags::NOFOLLOW
        | match mode {
            UnmountMode::Idle => UnmountFlags::empty(),
            UnmountMode::Detach => UnmountFlags::DETACH,
            UnmountMode::Abort => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
    rustix::mount::unmount(&path, flags).map_err(|errno| match errno {
        Errno::BUSY => Obstacle::Busy,
        errno => fail(&errno),
    })
}

/// A path that leads to what the descriptor refers to.
pub(crate) fn path_of(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}
