//! A slice of a walk over a list: the part that is done while the lock is held once.

use std::ops::ControlFlow;

/// The maximum number of entries that are visited while the lock is held once: some hundred
/// microseconds.
pub(crate) const SLICE_LEN: usize = 2048;

/// The progress of a walk through the items of a list, by their index, and the number of entries
/// that may still be visited in this slice.
#[derive(Debug)]
pub(crate) struct Slice {
    /// All items with lower indexes were visited.
    next: u64,
    left: usize,
    is_cut: bool,
}

impl Slice {
    /// A slice that begins with the items at index `next`.
    pub(crate) const fn from(next: u64) -> Self {
        Self { next, left: SLICE_LEN, is_cut: false }
    }

    /// As [`Self::from`], without a limit, for a walk that is short.
    pub(crate) const fn whole(next: u64) -> Self {
        Self { next, left: usize::MAX, is_cut: false }
    }

    /// Counts an entry that was visited.
    pub(crate) const fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Notes that the walk reached the item with this index. It breaks if the slice is used up.
    pub(super) const fn come_to(&mut self, index: u64) -> ControlFlow<()> {
        self.next = index;
        self.is_cut = self.left == 0;
        if self.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// As [`Self::come_to`], for a walk that is short.
    pub(super) const fn pass_to(&mut self, index: u64) {
        self.next = index;
    }

    /// The index of the item where the walk continues.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether the walk has ended: its caller broke it, or nothing more follows.
    pub(crate) const fn is_done(&self) -> bool {
        !self.is_cut
    }
}
