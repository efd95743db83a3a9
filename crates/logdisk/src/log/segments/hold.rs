//! A hold on the state at the freeze of one checkpoint (segments invariant 3).

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_format::SegmentNo;
use dendro_format::checkpoint::HeadPosition;
use roaring::RoaringBitmap;

/// Keeps everything on the device that the checkpoint needs, until it is ended: by the one who
/// looks at that state, or because writers need the segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hold(Arc<AtomicBool>);

impl Hold {
    /// Whether the state is still on the device.
    pub(crate) fn is_held(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What of the device belongs to the state at a freeze.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrozenSegments {
    /// The segments in which nothing does: they were clean, or empty, or about to be filled.
    unneeded: RoaringBitmap,
    /// Segments that a stream went on filling, and from where on.
    filled_from: Vec<HeadPosition>,
}

impl FrozenSegments {
    pub(super) const fn new(unneeded: RoaringBitmap) -> Self {
        Self { unneeded, filled_from: Vec::new() }
    }

    /// Nothing in the segment belongs to it.
    pub(crate) fn leave_out(&mut self, segment: SegmentNo) {
        self.unneeded.insert(segment.0);
    }

    /// What lies in the segment belongs to it: the checkpoint has written it.
    pub(crate) fn add(&mut self, segment: SegmentNo) {
        self.unneeded.remove(segment.0);
    }

    /// What lies from this place on in its segment does not belong to it.
    pub(crate) fn end_at(&mut self, place: HeadPosition) {
        self.filled_from.push(place);
    }

    /// How many bytes at the beginning of the segment belong to it; `None`: all.
    pub(crate) fn end_of(&self, segment: SegmentNo) -> Option<u64> {
        if self.unneeded.contains(segment.0) {
            return Some(0);
        }
        let place = self.filled_from.iter().find(|place| place.segment == segment)?;
        Some(place.offset_bytes.into())
    }
}
