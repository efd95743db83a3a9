//! What is read of a segment that is being cleaned: all of it or, where little of it lives, what
//! records say and what lives.
//!
//! A segment that a policy found worth cleaning early is nearly empty, and what lives in it lies
//! together as it was written: a few short reads in the place of a long one.

use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_device::AlignedBuf;
use dendro_disk::Result;
use dendro_format::Addr;

use crate::disk::LogDisk;

/// Of a segment of which less than this part lives, only what is needed is read.
const READ_IN_PARTS_BELOW: f64 = 0.25;
/// So many pages between two that are wanted are read with them: asking again takes as long.
const BRIDGED_PAGES: usize = 32;
/// While clients read as well, so much is read at a time: theirs wait for no more than that.
const PIECE_BYTES: usize = 128 << 10;
/// Where partial segments are shorter than this, all that follows is read at once.
pub(crate) const LEAST_SKIPPED_BYTES: usize = 64 << 10;

/// The bytes of a segment, as far as they were read.
#[derive(Debug)]
pub(crate) struct Body {
    base: Addr,
    bytes: AlignedBuf,
    /// Of each page, whether it is there. What is not may hold anything.
    is_read: Vec<bool>,
    /// The device is asked for no more than that at a time.
    piece_bytes: usize,
}

impl Body {
    /// Nothing yet of the segment at `base`, which is as long as `bytes`, to be read while
    /// `clients_read` or do not.
    pub(crate) fn new(base: Addr, bytes: AlignedBuf, clients_read: bool) -> Self {
        let is_read = vec![false; bytes.len() / PAGE_SIZE];
        let piece_bytes = if clients_read { PIECE_BYTES } else { bytes.len().max(PIECE_BYTES) };
        Self { base, bytes, is_read, piece_bytes }
    }

    /// Where the segment begins.
    pub(crate) const fn base(&self) -> Addr {
        self.base
    }

    /// All of it; what was not read is not what the device holds.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The memory, for another segment.
    pub(crate) fn into_buf(self) -> AlignedBuf {
        self.bytes
    }

    /// Reads what is best read before anything is known but how much lives.
    pub(crate) fn begin(&mut self, disk: &LogDisk, live_bytes: u32) -> Result<()> {
        if f64::from(live_bytes) >= self.bytes.len() as f64 * READ_IN_PARTS_BELOW {
            self.read(disk, 0..self.bytes.len())?;
        }
        Ok(())
    }

    /// As [`Self::read_all`], of one range.
    pub(crate) fn read(&mut self, disk: &LogDisk, range: Range<usize>) -> Result<()> {
        self.read_all(disk, std::iter::once(range))
    }

    /// Reads the pages of these ranges of bytes that are not there yet; nothing beyond the end.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Io`] when the device cannot be read.
    pub(crate) fn read_all(
        &mut self,
        disk: &LogDisk,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> Result<()> {
        let pages_of = |range: Range<usize>| {
            let end = range.end.div_ceil(PAGE_SIZE).min(self.is_read.len());
            range.start / PAGE_SIZE..end
        };
        let mut wanted: Vec<usize> = ranges.flat_map(pages_of).collect();
        wanted.retain(|&page| !self.is_read[page]);
        wanted.sort_unstable();
        for run in wanted.chunk_by(|before, after| after - before <= BRIDGED_PAGES) {
            let pages = run[0]..run[run.len() - 1] + 1;
            let start = self.base.plus_bytes((pages.start * PAGE_SIZE) as u64);
            let part = &mut self.bytes[pages.start * PAGE_SIZE..pages.end * PAGE_SIZE];
            for (index, piece) in part.chunks_mut(self.piece_bytes).enumerate() {
                disk.read_device(start.plus_bytes((index * self.piece_bytes) as u64), piece)?;
            }
            self.is_read[pages].fill(true);
        }
        Ok(())
    }
}
