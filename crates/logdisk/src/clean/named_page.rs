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
