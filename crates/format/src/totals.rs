//! What is counted of the whole volume, as the map records it.

use std::mem::size_of;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::usage::FIRST_SYSTEM_LIST;
use crate::{Malformed, PageRef, Result};

/// The list of the disk's own that has totals.
pub const TOTALS_LIST: u64 = FIRST_SYSTEM_LIST + 3;

/// The index of the record that counts compressed pages.
pub const COMPRESSED_INDEX: u64 = 0;

/// The compressed pages, version 1.
///
/// | offset | size | field          | meaning                                             |
/// |-------:|-----:|----------------|-----------------------------------------------------|
/// |      0 |    8 | `page_count`   | compressed pages that can be reached                |
/// |      8 |    8 | `stored_bytes` | what their blocks take, each in whole grains        |
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CompressedV1 {
    page_count: U64,
    stored_bytes: U64,
}

const _: () = assert!(size_of::<CompressedV1>() == 16);

/// Compressed pages, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressedPages {
    page_count: u64,
    stored_bytes: u64,
}

impl CompressedPages {
    /// So many pages, whose blocks take so much, each in whole grains.
    #[must_use]
    pub const fn new(page_count: u64, stored_bytes: u64) -> Self {
        Self { page_count, stored_bytes }
    }

    /// How many they are.
    #[must_use]
    pub const fn page_count(&self) -> u64 {
        self.page_count
    }

    /// What their blocks take, each in whole grains.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Counts a page, if it is compressed; its block takes `block_bytes`, or 0 if that is a frame
    /// which was counted with another page.
    #[inline]
    pub const fn add(&mut self, page: &PageRef, block_bytes: u32) {
        if page.compression != 0 {
            self.page_count = self.page_count.saturating_add(1);
            self.stored_bytes = self.stored_bytes.saturating_add(block_bytes as u64);
        }
    }

    /// Takes a page out of the count, if it is compressed, as [`Self::add`] counts it.
    #[inline]
    pub const fn subtract(&mut self, page: &PageRef, block_bytes: u32) {
        if page.compression != 0 {
            self.page_count = self.page_count.saturating_sub(1);
            self.stored_bytes = self.stored_bytes.saturating_sub(block_bytes as u64);
        }
    }

    /// The bytes of the record; `None` if there are no such pages, and no record.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let Self { page_count, stored_bytes } = *self;
        let raw = CompressedV1 { page_count: page_count.into(), stored_bytes: stored_bytes.into() };
        (*self != Self::default()).then(|| raw.as_bytes().to_vec())
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When it has another length.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let raw = CompressedV1::ref_from_bytes(bytes)
            .map_err(|_| Malformed::new("count of compressed pages", "is not 16 bytes"))?;
        Ok(Self { page_count: raw.page_count.get(), stored_bytes: raw.stored_bytes.get() })
    }
}
