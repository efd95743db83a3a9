//! Locks, so that one process at a time uses a volume.

use std::path::Path;
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::probe::FileKind;
use crate::block_device::{self, NodeLock};
use crate::error::{Error, Result};

/// The pause between attempts to take a lock that is taken.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// How long to wait for the lock of a block device at least: udev locks a device for a moment while
/// it examines what was written to it.
const PROBE_GRACE: Duration = Duration::from_secs(1);

/// What [`lock`] has taken beyond the lock on the file itself. Dropping it releases that.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// A claim on a block device.
    pub(super) claim: Option<OwnedFd>,
    /// The file behind a loop device, locked.
    pub(super) backing_file: Option<OwnedFd>,
}

/// The lock is released here, not when its last descriptor is closed. Others may have it for a
/// moment: a process that was just forked, and requests of io_uring that have ended.
impl Drop for Held {
    fn drop(&mut self) {
        if let Some(file) = &self.backing_file {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// Locks `fd`, which was opened from `path`; tries for as long as `wait`.
pub(super) fn lock(
    fd: impl AsFd,
    path: &Path,
    stat: &Stat,
    read_only: bool,
    wait: Duration,
) -> Result<Held> {
    let is_block = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let wait = if is_block { wait.max(PROBE_GRACE) } else { wait };
    let mut tries_left = wait.as_millis().div_ceil(RETRY_INTERVAL.as_millis());
    loop {
        let answer = try_lock(&fd, path, stat, read_only);
        let held_by_other = matches!(answer, Err(Errno::WOULDBLOCK | Errno::BUSY));
        if held_by_other && tries_left > 0 {
            tries_left -= 1;
            std::thread::sleep(RETRY_INTERVAL);
            continue;
        }
        let path = path.display().to_string();
        return answer.map_err(|errno| match errno {
            Errno::WOULDBLOCK | Errno::BUSY => Error::InUse { path },
            errno => Error::Open { path, source: errno.into() },
        });
    }
}

fn try_lock(fd: impl AsFd, path: &Path, stat: &Stat, read_only: bool) -> rustix::io::Result<Held> {
    let operation = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    // Programs that examine or divide a block device lock it so, too. They are waited for, but not
    // kept from it while it is open: udev would not handle its events.
    flock(&fd, operation)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(Held::default());
    }
    let held = try_lock_block_device(&fd, path, stat, read_only, operation);
    flock(&fd, FlockOperation::Unlock)?;
    held
}

fn try_lock_block_device(
    fd: impl AsFd,
    path: &Path,
    stat: &Stat,
    read_only: bool,
    operation: FlockOperation,
) -> rustix::io::Result<Held> {
    let lock = if read_only { NodeLock::Shared } else { NodeLock::Exclusive };
    block_device::lock_node(fd, lock)?;
    let claim = if read_only { None } else { Some(block_device::claim(path)?) };
    let backing_file = match block_device::loop_backing_file(stat.st_rdev) {
        Some(backing) => lock_backing_file(&backing, operation)?,
        None => None,
    };
    Ok(Held { claim, backing_file })
}

/// Releases the lock on `fd`.
pub(super) fn unlock(fd: impl AsFd, kind: FileKind) {
    // This fails only if there is no lock.
    let _ = match kind {
        FileKind::Image => flock(fd, FlockOperation::Unlock),
        FileKind::BlockDevice => block_device::lock_node(fd, NodeLock::Unlocked),
    };
}

/// Locks the file behind a loop device. If it cannot be opened, because it was deleted or is in
/// another namespace, it cannot be opened as an image by that name either.
fn lock_backing_file(
    path: &Path,
    operation: FlockOperation,
) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => flock(&file, operation).map(|()| Some(file)),
        Err(_) => Ok(None),
    }
}

fn flock(fd: impl AsFd, operation: FlockOperation) -> rustix::io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(&fd, operation))
}
