//! What a part of the map had that cannot be read, as far as what leads to it tells.

use std::fmt;

use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::{Key, Space};

/// Keys below a node: from one on and below another one, as far as they are limited.
#[derive(Clone, Copy)]
pub(super) struct Below {
    from: Option<Key>,
    to: Option<Key>,
}

impl Below {
    pub(super) const fn new((from, to): (Option<Key>, Option<Key>)) -> Self {
        Self { from, to }
    }

    pub(super) fn first_list(&self) -> u64 {
        self.from.map_or(0, |from| from.list)
    }

    fn last_list(&self) -> u64 {
        let is_begun = |to: &Key| Key::first(to.list, Space::List, 0) < *to;
        self.to
            .map_or(u64::MAX, |to| if is_begun(&to) { to.list } else { to.list.saturating_sub(1) })
    }

    /// The list, if it is one.
    pub(super) fn list(&self) -> Option<u64> {
        Some(self.first_list()).filter(|list| *list == self.last_list())
    }
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first_list(), self.last_list());
        match self.list() {
            _ if first >= FIRST_SYSTEM_LIST => write!(f, "the disk's own lists"),
            Some(list) => write!(f, "a part of list {list}"),
            None if last >= FIRST_SYSTEM_LIST => write!(f, "the lists from {first} on"),
            None => write!(f, "lists {first} to {last}"),
        }
    }
}
