//! A slice of a walk over a list: how far it has come, and how much further it may go.

use std::ops::ControlFlow;

/// Entries visited with the lock held once: some hundred microseconds.
pub(crate) const SLICE_LEN: usize = 2048;

/// How far a walk has come through the items of a list, by their index, and how much further it may go
/// before it lets others in.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Everything before was visited.
    pub(crate) next: u64,
    left: usize,
    is_cut: bool,
}

impl Slice {
    /// From the items with index `next` on.
    pub(crate) const fn from(next: u64) -> Self {
        Self { next, left: SLICE_LEN, is_cut: false }
    }

    /// As [`Self::from`], of a walk that is short.
    pub(crate) const fn whole(next: u64) -> Self {
        Self { next, left: usize::MAX, is_cut: false }
    }

    /// An entry was visited.
    pub(crate) const fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The walk comes to the item with this index. It ends here when the slice is used up.
    pub(crate) const fn come_to(&mut self, index: u64) -> ControlFlow<()> {
        self.next = index;
        self.is_cut = self.left == 0;
        if self.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// As [`Self::come_to`], of a walk that is short.
    pub(crate) const fn pass_to(&mut self, index: u64) {
        self.next = index;
    }

    /// The caller has seen enough, or there is nothing more.
    pub(crate) const fn is_done(&self) -> bool {
        !self.is_cut
    }
}
