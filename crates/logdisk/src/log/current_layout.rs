//! The layout of a volume that is open: it changes when the volume is resized.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU32, Ordering};
use dendro_format::Layout;

/// The layout that a volume has now. Clones of it change together.
#[derive(Clone, Debug)]
pub(crate) struct CurrentLayout {
    /// As it was at first.
    first: Layout,
    segment_count: Arc<AtomicU32>,
    usable_count: Arc<AtomicU32>,
}

impl CurrentLayout {
    pub(crate) fn new(layout: Layout) -> Self {
        let count = || Arc::new(AtomicU32::new(layout.segment_count()));
        Self { first: layout, segment_count: count(), usable_count: count() }
    }

    #[inline]
    pub(crate) fn get(&self) -> Layout {
        self.with(&self.segment_count)
    }

    /// The part of it that the volume keeps: all of it, unless the volume becomes shorter.
    #[inline]
    pub(crate) fn usable(&self) -> Layout {
        self.with(&self.usable_count)
    }

    #[inline]
    fn with(&self, count: &AtomicU32) -> Layout {
        self.first.with_segment_count(count.load(Ordering::Acquire))
    }

    /// Changes the number of segments to that of `layout`, whose segments have the same size.
    pub(crate) fn set(&self, layout: Layout) {
        self.set_usable(layout);
        self.segment_count.store(layout.segment_count(), Ordering::Release);
    }

    /// Changes the part that the volume keeps.
    pub(crate) fn set_usable(&self, layout: Layout) {
        debug_assert_eq!(layout.segment_size_log2(), self.first.segment_size_log2());
        self.usable_count.store(layout.segment_count(), Ordering::Release);
    }
}
