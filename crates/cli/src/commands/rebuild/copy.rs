//! A copy of a device, without its zeros. What is read of the device in long pieces while the
//! rebuild is planned is copied then, so that nearly nothing is read twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dendro_daemon::text;
use dendro_daemon::volume::devices::Devices;
use dendro_device::{AlignedBuf, BLOCK_SIZE, Device};

use crate::output::progress::Progress;

const PART_LEN_BYTES: usize = 1 << 20;

/// Shorter pieces are not copied when they are read: a segment is no shorter.
const MIN_PIECE_LEN_BYTES: usize = 128 << 10;

/// A device that is being copied into a new file.
pub(super) struct Copying {
    from: Devices,
    to: File,
    zeros: AlignedBuf,
    done: Mutex<Done>,
}

/// What was copied, and what went wrong.
#[derive(Default)]
struct Done {
    /// The ends of ranges, by their starts. No two touch each other.
    ranges: BTreeMap<u64, u64>,
    problem: Option<io::Error>,
}

impl Copying {
    /// Makes the file.
    pub(super) fn new(from: Devices, to: &Path) -> io::Result<Self> {
        let file = File::create_new(to)?;
        file.set_len(from.len_bytes())?;
        let zeros = AlignedBuf::zeroed(BLOCK_SIZE);
        Ok(Self { from, to: file, zeros, done: Mutex::default() })
    }

    /// Copies what was not copied yet. What cannot be read is zero in the copy.
    pub(super) fn finish(self, progress: &Progress) -> io::Result<()> {
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(problem) = done.problem {
            return Err(problem);
        }
        let mut part = AlignedBuf::zeroed(PART_LEN_BYTES);
        let ends = done.ranges.into_iter().chain([(self.from.len_bytes(), u64::MAX)]);
        let mut from = 0;
        for (start, end) in ends {
            self.copy_range(from..start, &mut part, progress)?;
            from = end;
        }
        self.to.sync_all()
    }

    fn copy_range(
        &self,
        range: Range<u64>,
        part: &mut [u8],
        progress: &Progress,
    ) -> io::Result<()> {
        let mut offset = range.start;
        while offset < range.end {
            let len = (range.end - offset).min(part.len() as u64) as usize;
            let part = &mut part[..len];
            if self.from.read_at(offset, part).is_err() {
                for (at, block) in (offset..).step_by(BLOCK_SIZE).zip(part.chunks_mut(BLOCK_SIZE)) {
                    if self.from.read_at(at, block).is_err() {
                        block.fill(0);
                    }
                }
            }
            self.write(offset, part)?;
            offset += len as u64;
            progress.show(format!("{} copied", text::size(offset)));
        }
        Ok(())
    }

    /// Writes to the copy, except zeros.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // A comparison of many bytes is much faster than one of each.
        let is_zero = |block: &[u8]| *block == self.zeros[..block.len()];
        let mut start = 0;
        while start < bytes.len() {
            let blocks = |of: usize| bytes[of..].chunks(BLOCK_SIZE);
            start += BLOCK_SIZE * blocks(start).take_while(|block| is_zero(block)).count();
            if start >= bytes.len() {
                break;
            }
            let count = blocks(start).take_while(|block| !is_zero(block)).count();
            let end = (start + BLOCK_SIZE * count).min(bytes.len());
            self.to.write_all_at(&bytes[start..end], offset + start as u64)?;
            start = end;
        }
        Ok(())
    }

    /// Copies what was read, unless it was before.
    fn take(&self, offset: u64, bytes: &[u8]) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset + bytes.len() as u64;
        let before = done.ranges.range(..=offset).next_back().map(|(start, end)| (*start, *end));
        let is_known = before.is_some_and(|(_, known_end)| known_end >= end);
        if done.problem.is_some() || is_known {
            return;
        }
        if let Err(error) = self.write(offset, bytes) {
            done.problem = Some(error);
            return;
        }
        let start = before.filter(|(_, known)| *known >= offset).map_or(offset, |(start, _)| start);
        let mut new_end = end;
        while let Some((&next, &next_end)) = done.ranges.range(start..=new_end).next() {
            done.ranges.remove(&next);
            new_end = new_end.max(next_end);
        }
        done.ranges.insert(start, new_end);
    }
}

impl Device for Copying {
    fn len_bytes(&self) -> u64 {
        self.from.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.from.read_at(offset, buf)?;
        if buf.len() >= MIN_PIECE_LEN_BYTES {
            self.take(offset, buf);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.from.write_at(offset, bytes)
    }

    fn flush(&self) -> dendro_device::Result<()> {
        self.from.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.from.discard(offset, len_bytes)
    }
}

/// Makes a copy longer, or shorter where nothing was written.
pub(super) fn set_len(copy: &Path, len_bytes: u64) -> io::Result<()> {
    File::options().write(true).open(copy)?.set_len(len_bytes)
}
