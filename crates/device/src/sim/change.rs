//! One change to a device, and the ways it can reach the medium or fail to.

use std::ops::Range;

use dendro_base::Rng;
use dendro_base::sync::Arc;

use super::blocks::{BlockMap, Cell, Content, SECTOR_SIZE, SECTORS_PER_BLOCK, mix};
use crate::BLOCK_SIZE;

/// A write or discard.
pub(super) enum Change {
    Write {
        first_block: u64,
        blocks: Vec<Arc<Content>>,
    },
    Discard {
        first_block: u64,
        block_count: u64,
        /// What the blocks read as afterwards follows from it.
        seed: u64,
    },
}

impl Change {
    pub(super) fn write(offset: u64, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_SIZE>();
        debug_assert!(rest.is_empty(), "the range was checked to be made of whole blocks");
        Self::Write {
            first_block: offset / BLOCK_SIZE as u64,
            blocks: blocks.iter().map(|block| Arc::new(*block)).collect(),
        }
    }

    pub(super) fn discard(offset: u64, len_bytes: u64, seed: u64) -> Self {
        Self::Discard {
            first_block: offset / BLOCK_SIZE as u64,
            block_count: len_bytes / BLOCK_SIZE as u64,
            seed,
        }
    }

    /// Whether it starts in a range of the device.
    pub(super) fn starts_in(&self, range: &Range<u64>) -> bool {
        let (Self::Write { first_block, .. } | Self::Discard { first_block, .. }) = self;
        range.contains(&(first_block * BLOCK_SIZE as u64))
    }

    /// Does all of it.
    pub(super) fn apply(&self, map: &mut BlockMap) {
        match self {
            Self::Write { first_block, blocks } => {
                for (block, content) in (*first_block..).zip(blocks) {
                    map.set(block, Cell::Data(Arc::clone(content)));
                }
            }
            Self::Discard { first_block, block_count, seed } => {
                for block in *first_block..first_block + block_count {
                    discard_block(map, block, *seed);
                }
            }
        }
    }

    /// Does a part of it: any of its sectors, the others stay what they were.
    pub(super) fn apply_torn(&self, map: &mut BlockMap, rng: &mut Rng) {
        match self {
            Self::Write { first_block, blocks } => {
                let tear = Tear::draw(blocks.len() as u64 * SECTORS_PER_BLOCK, rng);
                for (index, content) in blocks.iter().enumerate() {
                    let first_sector = index as u64 * SECTORS_PER_BLOCK;
                    let mask = tear.mask(first_sector, rng);
                    merge(map, first_block + index as u64, content, mask);
                }
            }
            Self::Discard { first_block, block_count, seed } => {
                for block in *first_block..first_block + block_count {
                    if rng.chance(50) {
                        discard_block(map, block, *seed);
                    }
                }
            }
        }
    }
}

/// A discarded block is what it was, zeros, or junk.
fn discard_block(map: &mut BlockMap, block: u64, seed: u64) {
    let junk = mix(seed ^ block);
    match junk % 4 {
        0 => {}
        1 => map.set(block, Cell::Zero),
        _ => map.set(block, Cell::Junk(junk)),
    }
}

/// Puts the sectors of `content` that are set in `mask` into `block`.
fn merge(map: &mut BlockMap, block: u64, content: &Arc<Content>, mask: u8) {
    match mask {
        0 => {}
        u8::MAX => map.set(block, Cell::Data(Arc::clone(content))),
        _ => {
            let mut merged = map.content(block);
            for sector in (0..SECTORS_PER_BLOCK as usize).filter(|sector| mask >> sector & 1 == 1) {
                let range = sector * SECTOR_SIZE..(sector + 1) * SECTOR_SIZE;
                merged[range.clone()].copy_from_slice(&content[range]);
            }
            map.set(block, Cell::Data(Arc::new(merged)));
        }
    }
}

/// Which sectors of a write arrive. Uniform subsets alone would hardly ever try the nearly complete
/// writes that a weak checksum takes for whole.
enum Tear {
    /// Each with the same chance.
    Any,
    /// Each block whole or not at all.
    Blocks,
    /// Those before one.
    Before(u64),
    /// Those from one on.
    From(u64),
    /// All but one.
    AllBut(u64),
}

impl Tear {
    fn draw(sector_count: u64, rng: &mut Rng) -> Self {
        let sector = rng.below(sector_count.max(1));
        match rng.below(5) {
            0 => Self::Any,
            1 => Self::Blocks,
            2 => Self::Before(sector),
            3 => Self::From(sector),
            _ => Self::AllBut(sector),
        }
    }

    /// A bit for each sector of the block that starts with `first_sector`.
    fn mask(&self, first_sector: u64, rng: &mut Rng) -> u8 {
        // How many sectors of this block lie before `sector`.
        let before = |sector: u64| sector.saturating_sub(first_sector).min(SECTORS_PER_BLOCK);
        let low_bits = |count: u64| ((1u16 << count) - 1) as u8;
        match *self {
            Self::Any => rng.next_u64() as u8,
            Self::Blocks => {
                if rng.chance(50) {
                    u8::MAX
                } else {
                    0
                }
            }
            Self::Before(sector) => low_bits(before(sector)),
            Self::From(sector) => !low_bits(before(sector)),
            Self::AllBut(sector) => !(low_bits(before(sector + 1)) ^ low_bits(before(sector))),
        }
    }
}
