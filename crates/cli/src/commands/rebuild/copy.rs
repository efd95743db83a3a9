//! A copy of a device, without its zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dendro_daemon::text;
use dendro_device::{AlignedBuf, BLOCK_SIZE, Device};

use crate::output::progress::Progress;

const PART_LEN_BYTES: usize = 1 << 20;

/// Copies a device into a new file. What cannot be read is zero in the copy.
pub(super) fn copy(from: &dyn Device, to: &Path, progress: &Progress) -> io::Result<()> {
    let file = File::create_new(to)?;
    file.set_len(from.len_bytes())?;
    let mut part = AlignedBuf::zeroed(PART_LEN_BYTES);
    let zeros = AlignedBuf::zeroed(PART_LEN_BYTES);
    let mut offset = 0;
    while offset < from.len_bytes() {
        let len = (from.len_bytes() - offset).min(PART_LEN_BYTES as u64) as usize;
        let part = &mut part[..len];
        if from.read_at(offset, part).is_err() {
            for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(part.chunks_mut(BLOCK_SIZE)) {
                if from.read_at(at, block).is_err() {
                    block.fill(0);
                }
            }
        }
        // Most of an image that is sparse is zero. A comparison of many bytes is much faster than
        // one of each.
        let is_zero = |bytes: &[u8]| *bytes == zeros[..bytes.len()];
        if !is_zero(part) {
            for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(part.chunks(BLOCK_SIZE)) {
                if !is_zero(block) {
                    file.write_all_at(block, at)?;
                }
            }
        }
        offset += len as u64;
        progress.show(format!("{} copied", text::size(offset)));
    }
    file.sync_all()
}

/// Makes a copy longer, or shorter where nothing was written.
pub(super) fn set_len(copy: &Path, len_bytes: u64) -> io::Result<()> {
    File::options().write(true).open(copy)?.set_len(len_bytes)
}
