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
        self.retired.contains(segment.0)
    }

    /// The number of segments that are out of use, or will be when nothing is live in them.
    pub(crate) fn retired_count(&self) -> u32 {
        self.retired.len() as u32
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
        if self.is_retired(segment) { SegmentState::Retired } else { SegmentState::Clean }
    }
}
