//! Buffers that direct I/O can use without copying.
//!
//! A transfer consists of pieces that are contiguous in physical memory. A MiB in pages of 4 KiB
//! has 256 pieces, which is more than one request to a device may have. So large buffers are in
//! huge pages, with which a device can be twice as fast.

mod huge_pages;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
use std::ops::{Deref, DerefMut, Range};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::device::BLOCK_SIZE;
use huge_pages::{HUGE_PAGE_BYTES, Mapping, Part};

#[cfg(all(target_arch = "x86_64", not(miri)))]
const CACHE_LINE_BYTES: usize = 64;

/// One block of memory at an address that is a multiple of its size.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_SIZE]);

/// Bytes whose address and number are multiples of [`BLOCK_SIZE`], as direct I/O requires.
pub struct AlignedBuf(Memory);

enum Memory {
    Blocks(Vec<Block>),
    Part(Part),
}

impl AlignedBuf {
    /// Zeroed memory for `len_bytes`, rounded up to whole blocks.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn zeroed(len_bytes: usize) -> Self {
        Self::several(1, len_bytes).pop().expect("as many as were asked for")
    }

    /// `count` buffers as [`Self::zeroed`] makes them, which share huge pages. Their memory is
    /// freed when the last of them is dropped.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn several(count: usize, len_bytes: usize) -> Vec<Self> {
        let len_bytes = len_bytes.next_multiple_of(BLOCK_SIZE);
        let all_bytes = count.saturating_mul(len_bytes);
        if all_bytes >= HUGE_PAGE_BYTES
            && let Some(mapping) = Mapping::new(all_bytes)
        {
            return mapping.split(count, len_bytes).map(|part| Self(Memory::Part(part))).collect();
        }
        let blocks = || {
            Block::new_vec_zeroed(len_bytes / BLOCK_SIZE)
                .unwrap_or_else(|_| panic!("no memory for {len_bytes} bytes"))
        };
        std::iter::repeat_with(|| Self(Memory::Blocks(blocks()))).take(count).collect()
    }

    /// Has the processor fetch those of these bytes that are there into its caches, because they
    /// are about to be written. Whoever writes page after page into a buffer that is longer than
    /// the caches waits for memory otherwise: the processor does not look ahead beyond a page.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in self.get(range).unwrap_or_default().chunks(CACHE_LINE_BYTES) {
            // SAFETY: a prefetch neither reads nor writes memory, whatever the address is.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = range;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Blocks(blocks) => blocks.as_bytes(),
            Memory::Part(part) => part,
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Blocks(blocks) => blocks.as_mut_bytes(),
            Memory::Part(part) => part,
        }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri is too slow to look at every byte.
    const STEP: usize = if cfg!(miri) { 4096 } else { 1 };

    #[test]
    fn memory_for_direct_io_is_aligned_and_made_of_whole_blocks() {
        for len_bytes in [0, 1, 4096, 4097, 1 << 20, (4 << 20) + 1] {
            let buf = AlignedBuf::zeroed(len_bytes);
            assert_eq!(buf.as_ptr().addr() % BLOCK_SIZE, 0);
            assert_eq!(buf.len(), len_bytes.next_multiple_of(BLOCK_SIZE));
            assert!(buf.iter().step_by(STEP).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn several_buffers_are_apart_from_each_other_however_long_they_are() {
        for (count, len_bytes) in [(0, 4096), (3, 5000), (5, 1 << 20), (8, (1 << 20) + 100)] {
            let mut bufs = AlignedBuf::several(count, len_bytes);
            assert_eq!(bufs.len(), count);
            for (index, buf) in bufs.iter_mut().enumerate() {
                assert_eq!(buf.as_ptr().addr() % BLOCK_SIZE, 0);
                assert_eq!(buf.len(), len_bytes.next_multiple_of(BLOCK_SIZE));
                assert!(buf.iter().step_by(STEP).all(|&byte| byte == 0));
                buf.fill(index as u8 + 1);
            }
            let is_own = |(index, buf): (usize, &AlignedBuf)| {
                buf.iter().step_by(STEP).all(|&byte| byte == index as u8 + 1)
            };
            assert!(bufs.iter().enumerate().all(is_own));
        }
    }
}
