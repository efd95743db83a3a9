//! Pages as the records of a segment, or the map, name them.

use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Key, PageRef};

use crate::state::item::ItemKey;

/// A page that a segment's records name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedPage {
    pub(super) list: u64,
    pub(super) page_index: u64,
    /// The branch and the epoch that it was written in.
    pub(super) version: (u32, u64),
    pub(super) page: PageRef,
}

/// The bytes that blocks take on the device, in an order as for [`frame_before`]. A frame counts
/// once.
pub(super) fn len_bytes(blocks: &[NamedPage]) -> u64 {
    distinct(blocks).map(|block| u64::from(block.page.footprint_bytes())).sum()
}

/// One of the pages of each block, as [`frame_before`] finds them.
pub(super) fn distinct(blocks: &[NamedPage]) -> impl Iterator<Item = &NamedPage> {
    blocks.iter().enumerate().filter(|(at, _)| frame_before(blocks, *at).is_none()).map(|it| it.1)
}

/// The last of `blocks` before the one at `at` that lies in the same frame. The blocks are in the
/// order of addresses, or of entries and pages.
pub(super) fn frame_before(blocks: &[NamedPage], at: usize) -> Option<usize> {
    let page = blocks[at].page;
    if !page.is_in_frame() {
        return None;
    }
    // All pages of a frame are of one chunk, so others are near in either order.
    let nearest = at.saturating_sub(CHUNK_PAGES as usize - 1);
    let shares = |other: &NamedPage| other.page.shares_frame_with(&page);
    blocks[nearest..at].iter().rposition(shares).map(|before| nearest + before)
}

impl NamedPage {
    /// Whether one entry of the map names both pages.
    pub(super) fn is_in_chunk_of(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// The key of the map entry that names the page.
    pub(crate) fn key(&self) -> Key {
        let (branch, epoch) = self.version;
        ItemKey::chunk(self.list, self.page_index / CHUNK_PAGES).key(branch, epoch)
    }
}
