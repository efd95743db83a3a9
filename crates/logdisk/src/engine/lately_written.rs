//! Partial segments that were written lately and have short blocks. They stay in memory.
//!
//! A short block ends a file, and what is appended to a file changes the page at its end. A kernel
//! that has the page passes on the new bytes alone, so the rest of the page is needed. The buffer
//! has it without a copy: it is only used again a little later. A partial segment with whole pages
//! alone is not kept, because the processor's cache still has its buffer for the next one.
//!
//! Invariants:
//! 1. (lately 1) What is kept is used only in the generation of the segment in which it was
//!    written, and only if the block's checksum is right.

use std::collections::VecDeque;

use dendro_device::AlignedBuf;
use dendro_format::{PageRef, checksum};

use crate::log::segments::Generation;
use crate::log::writer::Closed;

/// The maximum number of partial segments that are kept.
const MAX_COUNT: usize = 16;

/// The partial segments that are kept, the newest first.
pub(super) struct LatelyWritten {
    all: VecDeque<Closed>,
    max_count: usize,
}

impl LatelyWritten {
    /// Keeps partial segments whose buffers take up to `max_bytes` together, each up to
    /// `buffer_bytes`.
    pub(super) const fn new(max_bytes: u64, buffer_bytes: usize) -> Self {
        let count = (max_bytes / buffer_bytes as u64) as usize;
        let max_count = if count < MAX_COUNT { count } else { MAX_COUNT };
        Self { all: VecDeque::new(), max_count }
    }

    /// Keeps a partial segment if it has short blocks. Returns a buffer that is no longer needed.
    pub(super) fn keep(&mut self, closed: Closed) -> Option<AlignedBuf> {
        if !closed.has_short_blocks() {
            return Some(closed.into_buf());
        }
        self.all.push_front(closed);
        if self.all.len() <= self.max_count {
            return None;
        }
        self.all.pop_back().map(Closed::into_buf)
    }

    /// The stored bytes of `block`, whose segment is in this generation.
    pub(super) fn block(&self, block: &PageRef, generation: Generation) -> Option<&[u8]> {
        self.all
            .iter()
            .filter(|closed| closed.generation() == generation)
            .find_map(|closed| closed.block(block.addr, usize::from(block.len_bytes)))
            .filter(|bytes| checksum(bytes) == block.crc32c)
    }

    /// The size of the buffers.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.all.iter().map(Closed::buffer_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use dendro_format::{Addr, Head, Layout, SegmentNo};

    use super::*;
    use crate::log::segments::Segments;

    const LEN: usize = 8192;

    /// A partial segment at the begin of `segment`, and a block of 512 bytes at its end.
    fn closed(segments: &Segments, segment: u32, fill: u8) -> (Closed, PageRef) {
        let base = Addr::from_bytes(segments.layout().segment_offset(SegmentNo(segment)));
        let mut buf = AlignedBuf::zeroed(LEN);
        buf[LEN - 512..].fill(fill);
        let addr = base.plus_bytes(LEN as u64 - 512);
        let crc32c = checksum(&[fill; 512]);
        let block = PageRef { addr, len_bytes: 512, crc32c, ..PageRef::ZERO };
        (Closed::new(buf, LEN, base, segments.generation_at(base), fill > 0), block)
    }

    #[test]
    fn a_block_is_found_until_its_segment_is_filled_again_or_another_is_meant() {
        let mut segments = Segments::new(Layout::new(17, 32).expect("it is a layout"));
        let mut written = LatelyWritten::new(LEN as u64, LEN);
        let (first, block) = closed(&segments, 3, 7);
        assert!(written.keep(first).is_none());
        let before = segments.generation_at(block.addr);
        assert_eq!(written.block(&block, before), Some(&[7; 512][..]));
        assert_eq!(written.block(&PageRef { crc32c: 5, ..block }, before), None);
        segments.take(SegmentNo(3), Head::Payload);
        assert_eq!(written.block(&block, segments.generation_at(block.addr)), None);
    }

    #[test]
    fn those_with_short_blocks_are_kept_within_the_limit() {
        let segments = Segments::new(Layout::new(17, 32).expect("it is a layout"));
        let mut written = LatelyWritten::new(2 * LEN as u64, LEN);
        let (all, blocks): (Vec<_>, Vec<_>) = [(3, 1), (4, 0), (5, 2), (6, 3)]
            .map(|(at, fill)| closed(&segments, at, fill))
            .into_iter()
            .unzip();
        let unused: Vec<_> = all.into_iter().map(|closed| written.keep(closed).is_some()).collect();
        assert_eq!(unused, [false, true, false, true]);
        let is_kept =
            |block: &PageRef| written.block(block, segments.generation_at(block.addr)).is_some();
        assert_eq!(blocks.iter().map(is_kept).collect::<Vec<_>>(), [false, false, true, true]);
        assert_eq!(written.buffer_bytes(), 2 * LEN);
    }
}
