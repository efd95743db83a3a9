//! Reading a victim: all of it or, where few of its bytes are live, only the records and the live
//! blocks.
//!
//! A victim that a policy chose early is nearly empty, and its live blocks lie together as they
//! were written. So a few short reads replace a long one.

use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_device::AlignedBuf;
use dendro_disk::Result;
use dendro_format::Addr;

use crate::volume::Volume;

/// A segment with a smaller live share than this is read in parts.
const READ_IN_PARTS_BELOW: f64 = 0.25;
/// A gap of up to so many pages between two wanted pages is read with them, because a separate read
/// takes as long.
const BRIDGED_PAGES: usize = 32;
/// The length of one read while clients read as well. A client's read waits for no more than that.
const PIECE_BYTES: usize = 128 << 10;
/// If a partial segment is shorter than this, the rest of the segment is read at once.
pub(super) const LEAST_SKIPPED_BYTES: usize = 64 << 10;

/// The bytes of a segment, as far as they were read.
#[derive(Debug)]
pub(super) struct Body {
    base: Addr,
    bytes: AlignedBuf,
    /// Whether each page was read. The content of a page that was not read is undefined.
    is_read: Vec<bool>,
    /// The largest length of one read of the device.
    piece_bytes: usize,
}

impl Body {
    /// Makes an empty body for the segment at `base`, which is as long as `bytes`. `clients_read`
    /// states whether clients read at the same time.
    pub(crate) fn new(base: Addr, bytes: AlignedBuf, clients_read: bool) -> Self {
        let is_read = vec![false; bytes.len() / PAGE_SIZE];
        let piece_bytes = if clients_read { PIECE_BYTES } else { bytes.len().max(PIECE_BYTES) };
        Self { base, bytes, is_read, piece_bytes }
    }

    /// The start of the segment.
    pub(crate) const fn base(&self) -> Addr {
        self.base
    }

    /// All bytes of the segment; those that were not read differ from what the device holds.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the memory, to be used for another segment.
    pub(crate) fn into_buf(self) -> AlignedBuf {
        self.bytes
    }

    /// Reads the whole segment if so many of its bytes are live that this is faster than reading
    /// parts.
    pub(crate) fn begin(&mut self, volume: &Volume, live_bytes: u32) -> Result<()> {
        if f64::from(live_bytes) >= self.bytes.len() as f64 * READ_IN_PARTS_BELOW {
            self.read(volume, 0..self.bytes.len())?;
        }
        Ok(())
    }

    /// As [`Self::read_all`], for one range.
    pub(crate) fn read(&mut self, volume: &Volume, range: Range<usize>) -> Result<()> {
        self.read_all(volume, std::iter::once(range))
    }

    /// Reads the pages in these ranges of bytes that were not read yet, up to the end of the
    /// segment.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Io`] when the device cannot be read.
    pub(super) fn read_all(
        &mut self,
        volume: &Volume,
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
                volume.read_device(start.plus_bytes((index * self.piece_bytes) as u64), piece)?;
            }
            self.is_read[pages].fill(true);
        }
        Ok(())
    }
}
