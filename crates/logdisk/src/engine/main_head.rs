//! The end of the main log: where it continues, and the partial segment that is being filled.

use dendro_format::SegmentNo;
use dendro_format::checkpoint::HeadPosition;

use crate::log::partial::Partial;

/// The end of the main log.
#[derive(Debug)]
pub(crate) struct MainHead {
    pub(super) segment: SegmentNo,
    /// The start of the open partial segment, or of the next one.
    pub(super) offset_bytes: u32,
    /// The number of that partial segment.
    pub(super) seq: u64,
    pub(super) prev_crc32c: u32,
    /// The segment in which the log continues. It is chosen ahead, because every header names it.
    pub(super) next_segment: Option<SegmentNo>,
    pub(super) open: Option<Partial>,
    /// The last commit of which nothing lies in the open partial segment.
    pub(super) closed_commit_seq: u64,
}

impl MainHead {
    /// The log that continues at `at` with partial segment `seq`, and then in `next_segment`.
    pub(crate) const fn new(
        at: HeadPosition,
        seq: u64,
        prev_crc32c: u32,
        next_segment: Option<SegmentNo>,
    ) -> Self {
        let HeadPosition { segment, offset_bytes } = at;
        Self {
            segment,
            offset_bytes,
            seq,
            prev_crc32c,
            next_segment,
            open: None,
            closed_commit_seq: 0,
        }
    }

    /// Where the open partial segment starts, or the next one.
    pub(crate) const fn position(&self) -> HeadPosition {
        HeadPosition { segment: self.segment, offset_bytes: self.offset_bytes }
    }

    /// The number of that partial segment.
    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    /// The last commit that does not need this partial segment.
    pub(crate) const fn closed_commit_seq(&self) -> u64 {
        self.closed_commit_seq
    }

    /// The checksum of the partial segment before it.
    pub(crate) const fn prev_crc32c(&self) -> u32 {
        self.prev_crc32c
    }

    /// The segment in which the log continues.
    pub(crate) const fn next_segment(&self) -> Option<SegmentNo> {
        self.next_segment
    }

    /// The partial segment that is being filled.
    pub(crate) const fn open(&self) -> Option<&Partial> {
        self.open.as_ref()
    }
}
