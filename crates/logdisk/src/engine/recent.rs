//! Pages that clients are likely to change in part again, as they were written last.
//!
//! Changing a part of a page takes the rest of the page, and a kernel that has the page in its
//! cache passes on the changed part alone. A log has just written what is needed, so it stays in
//! memory for a while after its partial segment was written.
//!
//! A block stays what it is until its segment is filled again. So what is kept of it need not be
//! dropped when the page changes. A block that another one of its kind replaces is dropped to make
//! room: each change moves a page, so what is no longer named would soon fill the memory.
//!
//! Invariants:
//! 1. (recent 1) What is kept of a block is used only in the generation of the segment in which the
//!    block was written. A block that is changed in place, before its partial segment is written,
//!    is another block: its checksum differs.

use dendro_base::sync::Arc;
use dendro_format::{Addr, PageRef};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustc_hash::FxBuildHasher;

use crate::log::segments::Generation;

/// What an entry takes beside its bytes.
const ENTRY_BYTES: u64 = 128;

/// A block as it was stored; zeros at its end may be missing.
#[derive(Clone, Debug)]
struct Block {
    generation: Generation,
    len_bytes: u16,
    crc32c: u32,
    bytes: Arc<[u8]>,
}

#[derive(Clone, Debug)]
struct ByLength;

impl Weighter<Addr, Block> for ByLength {
    fn weight(&self, _: &Addr, block: &Block) -> u64 {
        block.bytes.len() as u64 + ENTRY_BYTES
    }
}

/// The blocks that are kept, within a limit of memory.
pub(super) struct RecentBlocks(Cache<Addr, Block, ByLength, FxBuildHasher>);

impl RecentBlocks {
    /// Keeps up to `capacity_bytes` of blocks.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let items = (capacity_bytes / 4096).max(16) as usize;
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(items, capacity_bytes, ByLength, FxBuildHasher, lifecycle))
    }

    /// What the blocks take in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.weight()
    }

    /// Keeps `bytes` as the content of `block`, in this generation of its segment.
    pub(crate) fn keep(&self, block: &PageRef, generation: Generation, bytes: Arc<[u8]>) {
        let PageRef { len_bytes, crc32c, .. } = *block;
        self.0.insert(block.addr, Block { generation, len_bytes, crc32c, bytes });
    }

    /// Gives up the room of a block that another one replaces.
    pub(crate) fn forget(&self, addr: Addr) {
        self.0.remove(&addr);
    }

    /// The content of `block` in this generation of its segment, if it is kept. Zeros at its end
    /// may be missing.
    pub(crate) fn get(&self, block: &PageRef, generation: Generation) -> Option<Arc<[u8]>> {
        let kept = self.0.get(&block.addr)?;
        let is_it = kept.generation == generation
            && kept.len_bytes == block.len_bytes
            && kept.crc32c == block.crc32c;
        is_it.then_some(kept.bytes)
    }
}

#[cfg(test)]
mod tests {
    use dendro_format::{Head, Layout, SegmentNo};

    use super::*;
    use crate::log::segments::Segments;

    fn block(addr: u64, crc32c: u32) -> PageRef {
        PageRef { addr: Addr::from_bytes(addr), len_bytes: 100, crc32c, ..PageRef::ZERO }
    }

    #[test]
    fn a_block_is_found_until_its_segment_is_filled_again_or_another_is_meant() {
        let layout = Layout::new(17, 32).expect("it is a layout");
        let mut segments = Segments::new(layout);
        let addr = layout.segment_offset(SegmentNo(3));
        let recent = RecentBlocks::new(1 << 20);
        let before = segments.generation_at(Addr::from_bytes(addr));
        recent.keep(&block(addr, 5), before, Arc::from([1; 100]));
        assert_eq!(recent.get(&block(addr, 5), before).as_deref(), Some(&[1; 100][..]));
        assert_eq!(recent.get(&block(addr, 6), before), None);
        assert_eq!(recent.get(&block(addr + 512, 5), before), None);
        segments.take(SegmentNo(3), Head::Payload);
        let after = segments.generation_at(Addr::from_bytes(addr));
        assert_eq!(recent.get(&block(addr, 5), after), None);
    }

    #[test]
    fn memory_stays_within_the_limit() {
        let recent = RecentBlocks::new(64 << 10);
        let segments = Segments::new(Layout::new(17, 32).expect("it is a layout"));
        for at in 0..1000 {
            let block = block((1 << 20) + at * 1024, 1);
            recent.keep(&block, segments.generation_at(block.addr), Arc::from([0; 4096]));
        }
        let kept_bytes = recent.memory_bytes();
        assert!((32 << 10..=64 << 10).contains(&kept_bytes), "{kept_bytes} bytes");
    }
}
