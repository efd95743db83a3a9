//! The checks that every device makes before it touches anything.

use crate::{BLOCK_SIZE, Error, Result};

/// Whether `len_bytes` from `offset` lie on a device of `device_len_bytes`.
pub(crate) fn check_bounds(device_len_bytes: u64, offset: u64, len_bytes: u64) -> Result<()> {
    match offset.checked_add(len_bytes) {
        Some(end) if end <= device_len_bytes => Ok(()),
        _ => Err(Error::OutOfRange { offset, len_bytes, device_len_bytes }),
    }
}

/// [`check_bounds`], and whether the range is made of whole blocks.
pub(crate) fn check_blocks(device_len_bytes: u64, offset: u64, len_bytes: u64) -> Result<()> {
    let block = BLOCK_SIZE as u64;
    if !offset.is_multiple_of(block) || !len_bytes.is_multiple_of(block) {
        return Err(Error::Misaligned { offset, len_bytes });
    }
    check_bounds(device_len_bytes, offset, len_bytes)
}
