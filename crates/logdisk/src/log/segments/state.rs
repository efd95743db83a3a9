//! The states of a segment, and what is counted of all.

use dendro_format::CompressedPages;

/// What may be done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The segment holds nothing that is needed, and may be filled.
    Clean,
    /// A stream fills the segment, or will fill it next.
    Open,
    /// The segment was filled. If nothing in it is live it is *pending*: it becomes clean when a
    /// checkpoint that no longer needs it is durable, or when the log states that it may be filled
    /// again.
    Dirty,
    /// The device could not write the segment, or a part of such a segment lies in it. It is never
    /// filled again.
    Retired,
    /// The segment mirrors a segment of the map, and becomes clean with that.
    Mirror,
}

/// Counts of the live pages that are not whole blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageCounts {
    /// Pages whose blocks are shorter than a page.
    pub(crate) short: u64,
    /// Pages that have no block because they are zeros.
    pub(crate) zero: u64,
    /// Whether these two have been kept since the volume was made.
    pub(crate) are_exact: bool,
    /// Pages whose blocks are compressed.
    pub(crate) compressed: CompressedPages,
    /// Whether these have been counted since the first page was compressed.
    pub(crate) compressed_are_exact: bool,
}

impl PageCounts {
    /// The counts in a volume without pages.
    pub(crate) fn of_new_volume() -> Self {
        Self { are_exact: true, compressed_are_exact: true, ..Self::default() }
    }
}
