//! What an open file or block device is like.

use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, StatxFlags};

use super::transfer::Alignment;
use crate::block_device;
use crate::device::BLOCK_SIZE;

/// The kind of file that a [`FileDevice`](crate::FileDevice) uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Image,
    /// A disk, a partition, a loop device, a logical volume …
    BlockDevice,
}

/// The kind of `fd`, and its length rounded down to whole blocks.
pub(super) fn measure(fd: &OwnedFd) -> io::Result<(FileKind, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    let (kind, len_bytes) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => (FileKind::BlockDevice, block_device::len_bytes(fd)?),
        _ => (FileKind::Image, u64::try_from(stat.st_size).unwrap_or(0)),
    };
    Ok((kind, round_down(len_bytes)))
}

/// The alignment that direct I/O on `fd` requires, as the kernel reports it. `None` when there is
/// no direct I/O, or it requires more than a block. Whole blocks where the kernel does not report
/// it (before Linux 6.1).
pub(super) fn direct_alignment(fd: impl AsFd) -> Option<Alignment> {
    const WHOLE_BLOCKS: Alignment =
        Alignment { offset_bytes: BLOCK_SIZE, memory_bytes: BLOCK_SIZE };
    let Ok(statx) = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Some(WHOLE_BLOCKS);
    };
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Some(WHOLE_BLOCKS);
    }
    let usable = |bytes: u32| {
        let bytes = usize::try_from(bytes).ok()?;
        (bytes.is_power_of_two() && bytes <= BLOCK_SIZE).then_some(bytes)
    };
    Some(Alignment {
        offset_bytes: usable(statx.stx_dio_offset_align)?,
        memory_bytes: usable(statx.stx_dio_mem_align)?,
    })
}

/// `len_bytes` rounded down to whole blocks.
pub(super) fn round_down(len_bytes: u64) -> u64 {
    len_bytes - len_bytes % BLOCK_SIZE as u64
}

pub(super) fn check_block_device(fd: &OwnedFd, read_only: bool) -> io::Result<()> {
    let logical_block_bytes = block_device::logical_block_bytes(fd)?;
    if logical_block_bytes as usize > BLOCK_SIZE {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("has blocks of {logical_block_bytes} bytes; only up to {BLOCK_SIZE} will do"),
        ));
    }
    if !read_only && block_device::is_write_protected(fd)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the block device is write-protected",
        ));
    }
    Ok(())
}
