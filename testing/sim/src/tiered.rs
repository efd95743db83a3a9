//! A device that calls some of its segments fast.

use dendro_device::{Device, IoSlice, IoSliceMut, Part, Result};

/// A device of which one in so many segments is fast.
pub(crate) struct Tiered<D> {
    pub(crate) below: D,
    pub(crate) segment_len_bytes: u64,
    pub(crate) one_in: u64,
}

impl<D: Device> Device for Tiered<D> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.below.read_vectored_at(offset, parts)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.below.write_at(offset, bytes)
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.below.write_vectored_at(offset, parts)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.below.discard(offset, len_bytes)
    }

    fn part_at(&self, offset: u64) -> Option<Part> {
        let is_fast = (offset / self.segment_len_bytes).is_multiple_of(self.one_in);
        Some(Part { number: u32::from(is_fast), is_fast })
    }

    fn parts_version(&self) -> u64 {
        1
    }
}
