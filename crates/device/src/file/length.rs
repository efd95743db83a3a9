//! Making files longer and shorter, and loop devices with the files behind them.
//!
//! A file becomes longer by the write of its new end. File systems change the length of a file when
//! the data behind the old end is written, not before. So after a power cut the file has the old
//! length, or the new one with the data.

use std::io;
use std::os::fd::AsRawFd;

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::retry_on_intr;

use super::transfer::{self, Alignment};

/// Opens for writing, or for reading only, what `file` has open, whatever it is called by now.
pub(super) fn open_again(file: &OwnedFd, read_only: bool) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a file that has `from` bytes `len_bytes` long by the write of `tail` to its new end; with
/// `allocates`, all that is added is allocated before. It is durable after a flush.
pub(super) fn extend(
    file: &OwnedFd,
    alignment: Alignment,
    from: u64,
    len_bytes: u64,
    tail: &[u8],
    allocates: bool,
) -> io::Result<()> {
    if allocates && len_bytes > from {
        // The file keeps its length until the tail is written.
        let added_bytes = len_bytes - from;
        let flags = FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(file, flags, from, added_bytes))?;
    }
    if tail.is_empty() {
        rustix::fs::ftruncate(file, len_bytes)?;
    }
    transfer::write(file, alignment, len_bytes - tail.len() as u64, tail)
}
