//! System calls about block devices.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl, opcode};

/// `_IOR(0x12, 114, size_t)`: the length in bytes, as a `u64` in spite of its name.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
/// `_IO(0x12, 119)`: takes an offset and a length in bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
/// `_IO(0x12, 94)`: whether the device is write-protected, as a C `int`.
const BLKROGET: Opcode = opcode::none(0x12, 94);

/// From linux/loop.h.
const LOOP_SET_CAPACITY: Opcode = 0x4C07;

/// Bytes on the device. Where the ioctl is missing, seeking to the end finds them.
pub(crate) fn len_bytes(fd: impl AsFd) -> Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one u64.
    let answer = unsafe { ioctl(&fd, Getter::<BLKGETSIZE64, u64>::new()) };
    answer.or_else(|_| rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)))
}

/// Bytes in the unit that the device reads and writes at once.
pub(crate) fn logical_block_bytes(fd: impl AsFd) -> Result<u32> {
    rustix::fs::ioctl_blksszget(fd)
}

/// Whether the device is write-protected.
pub(crate) fn is_write_protected(fd: impl AsFd) -> Result<bool> {
    // SAFETY: BLKROGET writes one C int, which is an i32 on Linux.
    let answer = unsafe { ioctl(fd, Getter::<BLKROGET, i32>::new()) };
    answer.map(|flag| flag != 0)
}

/// Discards a range of the device.
pub(crate) fn discard(fd: impl AsFd, offset: u64, len_bytes: u64) -> Result<()> {
    // SAFETY: BLKDISCARD reads two u64 and touches no other memory of this process.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len_bytes])) }
}

/// Gives a loop device the length that the file behind it has now.
pub(crate) fn follow_backing_file(fd: impl AsFd) -> Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument and touches no memory of this process.
    unsafe { ioctl(fd, NoArg::<LOOP_SET_CAPACITY>::new()) }
}

/// A lock on the node of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeLock {
    /// Excludes exclusive ones; needs a descriptor that can read.
    Shared,
    /// Excludes all others; needs a descriptor that can write.
    Exclusive,
    /// None any more.
    Unlocked,
}

/// Changes the lock on the node that `fd` has open. `EAGAIN` when that conflicts with another one.
/// Like a lock by flock(2), it belongs to the open file and ends with it. Unlike such a lock, it
/// does not keep udev from the device (<https://systemd.io/BLOCK_DEVICE_LOCKING>): while a device
/// is locked by flock(2), udev handles no event about it, and who waits for udev waits for minutes.
pub(crate) fn lock_node(fd: impl AsFd, lock: NodeLock) -> Result<()> {
    let kind = match lock {
        NodeLock::Shared => libc::F_RDLCK,
        NodeLock::Exclusive => libc::F_WRLCK,
        NodeLock::Unlocked => libc::F_UNLCK,
    };
    // The whole node. For this kind of lock the process number has to be 0.
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    retry_on_intr(|| {
        // SAFETY: the descriptor is open as long as `fd` lives, and F_OFD_SETLK reads one
        // struct flock.
        let answer = unsafe {
            libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_SETLK, std::ptr::from_ref(&whole))
        };
        match answer {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    })
}

/// Opens the device at `path` a second time, only to claim it: while the descriptor is open, no
/// file system can be mounted from it, and no other process can claim it. `EBUSY` when it is
/// mounted, swapped to, part of an array, or claimed.
pub(crate) fn claim(path: &std::path::Path) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
}

/// The file behind a loop device, if the device numbered `rdev` is one.
pub(crate) fn loop_backing_file(rdev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let path = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/backing_file"));
    Some(PathBuf::from(path.ok()?.trim_end_matches('\n')))
}
