//! What is to be stored of pages that are moved, instead of what is.

use std::ops::Range;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up_usize};
use dendro_format::PageRef;
use dendro_format::compression::Compression;

use crate::compression::Recompression;
use crate::log::partial::{Content, without_zeros};
use crate::volume::Volume;

/// A block that is compressed in another way than before saves one part in so many at least,
/// because reading it takes more time. So does a frame, beside what its pages would take alone.
pub(super) const LEAST_SAVED_PART: usize = 8;

/// What is to be stored of a page.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// The page, compressed alone.
    Alone(Range<usize>),
    /// The page as it is. It leaves a frame.
    Plain(Range<usize>),
    /// A frame, and which page of it this one is.
    InFrame(Range<usize>, u32),
}

/// What was compressed.
pub(super) struct Packed {
    pub(super) with: Compression,
    pub(super) bytes: Vec<u8>,
}

impl Packed {
    pub(super) const fn new(with: Compression) -> Self {
        Self { with, bytes: Vec::new() }
    }

    /// What lies at `place`.
    pub(super) fn content(&self, place: &Place) -> Content<'_> {
        let bytes = |range: &Range<usize>| &self.bytes[range.clone()];
        match place {
            Place::Alone(range) => Content::compressed(bytes(range), self.with),
            Place::Plain(range) => Content::of(bytes(range), range.len()),
            Place::InFrame(range, index) => Content::in_frame(bytes(range), self.with, *index),
        }
    }

    /// Appends the compressed form of a page to the bytes, if it gains anything.
    pub(super) fn pack_alone(
        &mut self,
        volume: &Volume,
        page: &[u8; PAGE_SIZE],
    ) -> Option<Range<usize>> {
        let from = self.bytes.len();
        let is_packed = volume
            .compressors()
            .packers
            .with(|packer| packer.pack(self.with, without_zeros(page), &mut self.bytes));
        let place = from..self.bytes.len();
        if is_packed && self.is_right(volume, &place, page) {
            return Some(place);
        }
        self.bytes.truncate(from);
        None
    }

    /// Whether what was compressed is the page. The old block is about to be given up.
    fn is_right(&self, volume: &Volume, place: &Range<usize>, page: &[u8; PAGE_SIZE]) -> bool {
        let block = self.block_of(place);
        let mut again = [0; PAGE_SIZE];
        let unpacked = volume
            .compressors()
            .unpackers
            .with(|unpacker| unpacker.unpack(&block, &self.bytes[place.clone()], &mut again));
        unpacked.is_ok() && again == *page
    }

    /// Whether what was compressed are the pages. The old blocks are about to be given up.
    pub(super) fn is_frame_right(
        &self,
        volume: &Volume,
        bytes: &Range<usize>,
        pages: &[u8],
    ) -> bool {
        let frame = self.block_of(bytes).of_frame(0);
        volume.compressors().unpackers.with(|unpacker| {
            let unpacked = unpacker.unpack_frame(&frame, &self.bytes[bytes.clone()]);
            unpacked.is_ok_and(|found| found.bytes() == pages)
        })
    }

    /// A block that is stored as these bytes.
    fn block_of(&self, bytes: &Range<usize>) -> PageRef {
        let compression = self.with.kind();
        PageRef { len_bytes: bytes.len() as u16, compression, ..PageRef::ZERO }
    }
}

/// Whether a block that is no frame may become smaller: it is not compressed so hard yet, and was
/// not tried.
pub(super) fn may_gain(how: &Recompression, block: &PageRef) -> bool {
    how.is_harder(block.compression) && !how.is_settled(block.crc32c)
}

pub(super) const fn footprint(len_bytes: usize) -> usize {
    align_up_usize(len_bytes, GRAIN_SIZE)
}
