//! Which member each block came from that was read before the first write (invariant 3).

use std::collections::BTreeMap;

use dendro_device::BLOCK_SIZE;

/// The most blocks of a run.
pub(crate) const RUN_BLOCKS: u64 = 64;

pub(crate) const BLOCK: u64 = BLOCK_SIZE as u64;

/// Which member each block came from that was read.
#[derive(Default)]
pub(crate) struct Sources {
    blocks: BTreeMap<u64, usize>,
    /// Which of the members in sync is asked first.
    pub(crate) preferred: usize,
}

impl Sources {
    /// Nothing was read; this one of the members in sync is asked first.
    pub(crate) fn preferring(preferred: usize) -> Self {
        Self { blocks: BTreeMap::new(), preferred }
    }

    fn blocks_of(offset: u64, len_bytes: u64) -> std::ops::Range<u64> {
        offset / BLOCK..(offset + len_bytes).div_ceil(BLOCK)
    }

    /// States that a range comes from a member.
    pub(crate) fn set(&mut self, offset: u64, len_bytes: u64, member: usize) {
        self.blocks.extend(Self::blocks_of(offset, len_bytes).map(|block| (block, member)));
    }

    /// The part of a range up to which the blocks came from the same member, or from none.
    pub(crate) fn first_part(&self, offset: u64, len_bytes: u64) -> (u64, Option<usize>) {
        let blocks = Self::blocks_of(offset, len_bytes);
        let source = self.blocks.get(&blocks.start).copied();
        let end = blocks.clone().find(|block| self.blocks.get(block).copied() != source);
        let end = end.map_or(offset + len_bytes, |block| block * BLOCK);
        (end - offset, source)
    }

    /// Blocks that lie one after the other and came from the same member.
    pub(crate) fn runs(&self) -> Vec<(u64, u64, usize)> {
        let mut runs: Vec<(u64, u64, usize)> = Vec::new();
        for (&block, &source) in &self.blocks {
            match runs.last_mut() {
                Some((start, count, of))
                    if *of == source && *start + *count == block && *count < RUN_BLOCKS =>
                {
                    *count += 1;
                }
                _ => runs.push((block, 1, source)),
            }
        }
        runs
    }
}
