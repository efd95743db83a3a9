//! The keys of what the map holds.

use dendro_format::{Key, Space};

/// The key of an item: what the map keeps versions of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemKey {
    pub(super) list: u64,
    pub(super) space: Space,
    pub(super) index: u64,
}

impl ItemKey {
    pub(crate) const fn of(key: &Key) -> Self {
        Self { list: key.list, space: key.space, index: key.index }
    }

    pub(crate) const fn list(list: u64) -> Self {
        Self { list, space: Space::List, index: 0 }
    }

    pub(crate) const fn record(list: u64, index: u64) -> Self {
        Self { list, space: Space::Records, index }
    }

    pub(crate) const fn chunk(list: u64, index: u64) -> Self {
        Self { list, space: Space::Chunks, index }
    }

    pub(crate) const fn key(self, branch: u32, epoch: u64) -> Key {
        Key { list: self.list, space: self.space, index: self.index, branch, epoch }
    }
}

/// The key of record `index` of one of the disk's own lists, which have no versions.
pub(crate) const fn system_key(list: u64, index: u64) -> Key {
    ItemKey::record(list, index).key(0, 1)
}

/// The first key behind all of a list's keys in `space`.
pub(crate) const fn space_end(list: u64, space: Space) -> Key {
    match space {
        Space::List => Key::first(list, Space::Records, 0),
        Space::Records => Key::first(list, Space::Chunks, 0),
        Space::Chunks => Key::first(list + 1, Space::List, 0),
    }
}
