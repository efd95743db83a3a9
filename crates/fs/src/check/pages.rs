//! What there is of a file's pages.

use dendro_disk::{GROUP_PAGES, MAX_PAGE_COUNT};

use crate::layout::inode::{Inode, InodeState};
use crate::types::FileKind;

/// What a file has of pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Pages {
    /// How many there are, up to [`Self::end`].
    pub(super) count: u64,
    /// The first one behind the file's size.
    pub(super) past_end: Option<u64>,
}

impl Pages {
    pub(super) fn may_have(inode: &Inode) -> bool {
        matches!(inode.kind, FileKind::Regular | FileKind::Symlink)
    }

    /// The pages that the file's size takes.
    pub(super) fn size(inode: &Inode) -> u64 {
        if Self::may_have(inode) { inode.size_pages() } else { 0 }
    }

    /// Pages below this one count: while a file is being truncated, only those of its size.
    pub(super) fn end(inode: &Inode) -> u64 {
        let is_truncating = inode.state.contains(InodeState::TRUNCATING);
        if Self::may_have(inode) && is_truncating { inode.size_pages() } else { MAX_PAGE_COUNT }
    }

    /// Adds those of a group. Pages of a range that is being freed do not count.
    pub(super) fn add(&mut self, inode: &Inode, first_page: u64, present: u32) {
        let below = |end: u64| match end.saturating_sub(first_page) {
            slots @ 0..GROUP_PAGES => present & !(u32::MAX << slots),
            _ => present,
        };
        let punched = inode.punched_pages();
        let is_freed = below(punched.end) & !below(punched.start);
        self.count += u64::from((below(Self::end(inode)) & !is_freed).count_ones());
        let past_end = present & !below(Self::size(inode));
        if self.past_end.is_none() && past_end != 0 {
            self.past_end = Some(first_page + u64::from(past_end.trailing_zeros()));
        }
    }
}
