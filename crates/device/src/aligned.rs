//! Memory that direct I/O takes as it is.

use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_SIZE;

/// One block of memory at an address that is a multiple of its size.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_SIZE]);

/// Bytes whose address is a multiple of [`BLOCK_SIZE`], as direct I/O wants it; their number is
/// too.
pub struct AlignedBuf(Vec<Block>);

impl AlignedBuf {
    /// Zeroed memory for `len_bytes`, rounded up to whole blocks.
    #[must_use]
    pub fn zeroed(len_bytes: usize) -> Self {
        let blocks = len_bytes.div_ceil(BLOCK_SIZE);
        Self(
            Block::new_vec_zeroed(blocks)
                .unwrap_or_else(|_| panic!("no memory for {len_bytes} bytes")),
        )
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
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

    #[test]
    fn memory_for_direct_io_is_aligned_and_made_of_whole_blocks() {
        for len_bytes in [0, 1, 4096, 4097, 1 << 20] {
            let buf = AlignedBuf::zeroed(len_bytes);
            assert_eq!(buf.as_ptr().addr() % BLOCK_SIZE, 0);
            assert_eq!(buf.len(), len_bytes.next_multiple_of(BLOCK_SIZE));
            assert!(buf.iter().all(|&byte| byte == 0));
        }
    }
}
