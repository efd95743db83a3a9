//! Which tier a segment is taken from.
//!
//! What somebody waits for is written to fast segments first: the main log, pages that clients
//! write, and the map as long as it takes but a part of them. What cleaning moves goes to the
//! others first. If a tier has no clean segment, the other one serves, so nothing is ever stuck
//! because of a tier: all accounts are of the volume as a whole.

use std::ops::Range;

use dendro_format::{Head, SegmentNo};
use dendro_policy::Class;
use roaring::RoaringBitmap;

use super::Segments;
use super::tiers::{FastCounts, Tiers};

/// The map goes to fast segments as long as its nodes take no more than one in so many of their
/// bytes.
const MAP_SHARE: u64 = 4;
/// One in so many fast segments is to be clean.
const WANTED_SHARE: u32 = 4;

impl Segments {
    /// Whether the tiers are those of this [`Device::parts_version`] and number of segments.
    pub(crate) fn knows_tiers(&self, version: u64) -> bool {
        self.tiers.of == (version, self.layout.segment_count())
    }

    pub(crate) fn set_tiers(&mut self, tiers: Tiers) {
        self.tiers = tiers;
    }

    /// Whether the segment is a fast one, and others are not.
    pub(crate) fn is_fast(&self, segment: SegmentNo) -> bool {
        self.tiers.fast.contains(segment.0)
    }

    /// Where fast segments lie.
    pub(crate) fn fast_range(&self) -> Range<u32> {
        let fast = &self.tiers.fast;
        let end = fast.max().map_or(0, |last| last + 1);
        fast.min().unwrap_or(0)..end.min(self.layout.segment_count())
    }

    /// `None`: there are no tiers.
    pub(crate) fn fast_counts(&self) -> Option<FastCounts> {
        let fast = &self.tiers.fast;
        let count = |of: &RoaringBitmap| of.intersection_len(fast) as u32;
        (!fast.is_empty()).then(|| FastCounts {
            clean: count(&self.clean),
            pending: count(&self.pending),
            wanted: fast.len() as u32 / WANTED_SHARE,
        })
    }

    /// Whether what is written to segments of this stream and class goes to fast ones first.
    pub(crate) fn prefers_fast(&self, head: Head, class: Class) -> bool {
        let all_bytes = self.tiers.fast.len() << self.layout.segment_size_log2();
        match head {
            Head::Map => self.node_bytes.saturating_mul(MAP_SHARE) <= all_bytes,
            Head::Main | Head::Payload => class.survivor_index().is_none(),
        }
    }

    /// Of these segments, those of the tier that is preferred. `None`: there are no tiers.
    pub(super) fn preferred(
        &self,
        of: &RoaringBitmap,
        head: Head,
        class: Class,
    ) -> Option<RoaringBitmap> {
        let fast = &self.tiers.fast;
        let fast_first = || if self.prefers_fast(head, class) { of & fast } else { of - fast };
        (!fast.is_empty()).then(fast_first)
    }
}
