//! The content of a simulated device: a sparse map of blocks that is cheap to copy.
//!
//! Three levels of 64 children each, shared between copies and copied on write: a clone costs a
//! reference count per 16 MiB of device, a write after it copies two nodes.

use std::array;

use dendro_base::Rng;
use dendro_base::sync::Arc;

use crate::BLOCK_SIZE;

/// Children of a node.
const FANOUT: usize = 64;

/// Bytes that a device writes whole or not at all.
pub(super) const SECTOR_SIZE: usize = 512;

/// Sectors in a block.
pub(super) const SECTORS_PER_BLOCK: u64 = (BLOCK_SIZE / SECTOR_SIZE) as u64;

pub(super) type Content = [u8; BLOCK_SIZE];

/// What a block reads as.
#[derive(Clone, Default)]
pub(super) enum Cell {
    /// Junk that follows from the map's seed.
    #[default]
    Unwritten,
    /// Zeros.
    Zero,
    /// Junk that follows from this seed.
    Junk(u64),
    /// What was written.
    Data(Arc<Content>),
}

type Chunk = [Cell; FANOUT];
type Group = [Option<Arc<Chunk>>; FANOUT];

#[derive(Clone)]
pub(super) struct BlockMap {
    groups: Vec<Option<Arc<Group>>>,
    junk_seed: u64,
}

impl BlockMap {
    /// A map of `block_count` blocks that nobody has written.
    pub(super) fn new(block_count: u64, junk_seed: u64) -> Self {
        let groups = block_count.div_ceil((FANOUT * FANOUT) as u64) as usize;
        Self { groups: vec![None; groups], junk_seed }
    }

    /// Has room for `block_count` blocks at least.
    pub(super) fn make_room(&mut self, block_count: u64) {
        let groups = block_count.div_ceil((FANOUT * FANOUT) as u64) as usize;
        self.groups.resize(groups.max(self.groups.len()), None);
    }

    pub(super) fn get(&self, block: u64) -> &Cell {
        let (group, chunk, cell) = locate(block);
        let chunk = self.groups[group].as_ref().and_then(|group| group[chunk].as_ref());
        chunk.map_or(&Cell::Unwritten, |chunk| &chunk[cell])
    }

    pub(super) fn set(&mut self, block: u64, content: Cell) {
        let (group, chunk, cell) = locate(block);
        let group = self.groups[group].get_or_insert_with(|| Arc::new([const { None }; FANOUT]));
        let chunk = Arc::make_mut(group)[chunk]
            .get_or_insert_with(|| Arc::new(array::from_fn(|_| Cell::default())));
        Arc::make_mut(chunk)[cell] = content;
    }

    /// Copies what is at `at` in `block` to `out`.
    pub(super) fn read(&self, block: u64, at: usize, out: &mut [u8]) {
        match self.get(block) {
            Cell::Unwritten => fill_junk(mix(self.junk_seed ^ block), at, out),
            Cell::Zero => out.fill(0),
            Cell::Junk(seed) => fill_junk(*seed, at, out),
            Cell::Data(content) => out.copy_from_slice(&content[at..at + out.len()]),
        }
    }

    /// Fills `out` from `offset` in bytes.
    pub(super) fn read_bytes(&self, offset: u64, mut out: &mut [u8]) {
        let mut block = offset / BLOCK_SIZE as u64;
        let mut at = (offset % BLOCK_SIZE as u64) as usize;
        while !out.is_empty() {
            let (head, rest) = out.split_at_mut(out.len().min(BLOCK_SIZE - at));
            self.read(block, at, head);
            (block, at, out) = (block + 1, 0, rest);
        }
    }

    /// What `block` reads as.
    pub(super) fn content(&self, block: u64) -> Content {
        let mut content = [0; BLOCK_SIZE];
        self.read(block, 0, &mut content);
        content
    }
}

fn locate(block: u64) -> (usize, usize, usize) {
    let block = block as usize;
    (block / (FANOUT * FANOUT), block / FANOUT % FANOUT, block % FANOUT)
}

/// A number that follows from `seed` and looks random.
pub(super) const fn mix(seed: u64) -> u64 {
    Rng::new(seed).next_u64()
}

/// Bytes `at..at + out.len()` of the block of junk that `seed` names.
fn fill_junk(seed: u64, at: usize, out: &mut [u8]) {
    let word = |index: usize| mix(seed.wrapping_add(index as u64)).to_le_bytes();
    let (mut index, skip) = (at / 8, at % 8);
    let head_len = if skip == 0 { 0 } else { out.len().min(8 - skip) };
    let (head, rest) = out.split_at_mut(head_len);
    if head_len > 0 {
        head.copy_from_slice(&word(index)[skip..skip + head_len]);
        index += 1;
    }
    for (step, bytes) in rest.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&word(index + step)[..bytes.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junk_is_the_same_whichever_part_of_it_is_read() {
        let map = BlockMap::new(4, 9);
        let whole = map.content(3);
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let at = rng.below(4096) as usize;
            let mut part = vec![0; rng.below((4096 - at) as u64 + 1) as usize];
            map.read(3, at, &mut part);
            assert!(part == whole[at..at + part.len()]);
        }
        assert!(whole != map.content(2));
    }

    #[test]
    fn a_write_to_a_copy_leaves_the_original_alone() {
        let mut map = BlockMap::new(10_000, 0);
        map.set(9_999, Cell::Data(Arc::new([1; BLOCK_SIZE])));
        let copy = map.clone();
        map.set(9_999, Cell::Zero);
        assert_eq!(copy.content(9_999)[0], 1);
        assert_eq!(map.content(9_999)[0], 0);
    }
}
