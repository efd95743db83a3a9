//! Unmounting.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::fusermount;
use super::request::{Error, Result, UnmountMode};

/// How often a busy mount is tried, and with which pause between. The kernel may still use a file
/// for a moment after its last user, while it reads ahead or releases the file.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Unmounts what is mounted on `mount_point`. If it is in use, this tries again for a second.
///
/// # Errors
/// [`Error::Busy`], [`Error::Unmount`].
pub fn unmount(mount_point: &Path, mode: UnmountMode) -> Result<()> {
    let is_busy = |error: &Error| matches!(error, Error::Busy(_));
    while_busy(is_busy, || unmount_once(mount_point, mode))
}

/// Tries again, for a second, what fails because a mount is busy.
///
/// # Errors
/// Those of the last attempt.
pub fn while_busy<T, E>(
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    for _ in 1..BUSY_TRIES {
        match attempt() {
            Err(error) if is_busy(&error) => std::thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
    attempt()
}

/// As [`unmount`], with one attempt.
pub(super) fn unmount_once(mount_point: &Path, mode: UnmountMode) -> Result<()> {
    let fail = |source| Error::Unmount { path: mount_point.to_path_buf(), source };
    let flags = UnmountFlags::NOFOLLOW
        | match mode {
            UnmountMode::Idle => UnmountFlags::empty(),
            UnmountMode::Detach => UnmountFlags::DETACH,
            UnmountMode::Abort => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
    match rustix::mount::unmount(mount_point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Error::Busy(mount_point.to_path_buf())),
        Err(Errno::PERM) => fusermount::unmount(mount_point, mode),
        Err(errno) => Err(fail(errno.into())),
    }
}
