//! Segments that are never filled again.

use dendro_format::{Head, SegmentNo};
use dendro_policy::Class;

use super::{SegmentState, Segments};

impl Segments {
    /// Takes a segment out of use: at once if it is clean, otherwise when it would become clean.
    pub(crate) fn retire(&mut self, segment: SegmentNo) {
        self.retired.insert(segment.0);
        if self.state(segment) == SegmentState::Clean {
            self.change(segment, |entry| entry.set_state(SegmentState::Retired));
        }
    }

    /// Whether the segment is out of use, or will be when nothing is live in it.
    pub(crate) fn is_retired(&self, segment: SegmentNo) -> bool {
        self.retired.contains(segment.0) || self.is_given_up(segment)
    }

    /// The number of the first `count` segments that cannot be used, because of the device, or will
    /// be when nothing is live in them.
    pub(crate) fn retired_count(&self, count: u32) -> u32 {
        self.retired.range_cardinality(..count) as u32
    }

    /// Opens a segment to which what another one cannot take is written, as long as more than
    /// `kept` segments are clean.
    pub(crate) fn open_spare(&mut self, kept: usize) -> Option<SegmentNo> {
        if self.has_free(kept) { self.open(Head::Map, Class::MAIN) } else { None }
    }

    /// Retires a spare in which something lies now.
    pub(crate) fn retire_spare(&mut self, spare: SegmentNo) {
        self.retired.insert(spare.0);
        self.change(spare, |entry| entry.set_state(SegmentState::Retired));
    }

    /// The state that a segment gets when nothing in it is needed any more.
    pub(super) fn state_when_clean(&self, segment: SegmentNo) -> SegmentState {
        let is_retired = self.retired.contains(segment.0);
        if is_retired { SegmentState::Retired } else { SegmentState::Clean }
    }
}
