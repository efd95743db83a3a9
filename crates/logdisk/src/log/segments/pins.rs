//! Who reads a segment now: it is not filled anew as long as anyone does.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use dendro_format::SegmentNo;

/// Readers are counted in so many places at most. Segments that share one are taken for read when one
/// of them is: then a head goes on in another.
const MAX_PLACES: u32 = 1 << 16;

#[derive(Clone, Debug)]
pub(super) struct Pins(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// A power of two of them.
    places: Box<[AtomicU32]>,
    /// No fewer than all together.
    all: AtomicUsize,
    /// How many segments share a place at most.
    sharing: usize,
}

/// Keeps a segment as it is.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Pins,
    segment: SegmentNo,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.place_of(self.segment).fetch_sub(1, Ordering::AcqRel);
        self.pins.0.all.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pins {
    pub(super) fn new(segment_count: u32) -> Self {
        let count = segment_count.clamp(1, MAX_PLACES).next_power_of_two();
        Self(Arc::new(Counts {
            places: (0..count).map(|_| AtomicU32::new(0)).collect(),
            all: AtomicUsize::new(0),
            sharing: segment_count.div_ceil(count) as usize,
        }))
    }

    fn place_of(&self, segment: SegmentNo) -> &AtomicU32 {
        &self.0.places[segment.0 as usize & (self.0.places.len() - 1)]
    }

    pub(super) fn pin(&self, segment: SegmentNo) -> Pin {
        self.0.all.fetch_add(1, Ordering::AcqRel);
        self.place_of(segment).fetch_add(1, Ordering::AcqRel);
        Pin { pins: self.clone(), segment }
    }

    pub(super) fn is_pinned(&self, segment: SegmentNo) -> bool {
        self.place_of(segment).load(Ordering::Acquire) != 0
    }

    /// As many segments are taken for read at most.
    pub(super) fn count_at_most(&self) -> usize {
        self.0.all.load(Ordering::Acquire).saturating_mul(self.0.sharing)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.places.len() * size_of::<AtomicU32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_pinned_until_its_last_reader_has_done() {
        let pins = Pins::new(100);
        let first = pins.pin(SegmentNo(7));
        let second = pins.pin(SegmentNo(7));
        assert!(pins.is_pinned(SegmentNo(7)) && !pins.is_pinned(SegmentNo(8)));
        assert_eq!(pins.count_at_most(), 2);
        drop(first);
        assert!(pins.is_pinned(SegmentNo(7)));
        drop(second);
        assert!(!pins.is_pinned(SegmentNo(7)));
        assert_eq!(pins.count_at_most(), 0);
    }

    #[test]
    fn millions_of_segments_share_some_places_and_those_sharing_one_are_taken_for_read() {
        let pins = Pins::new(16 << 20);
        assert_eq!(pins.memory_bytes(), 256 << 10);
        let _pin = pins.pin(SegmentNo(5));
        let is_pinned = |number: &u32| pins.is_pinned(SegmentNo(*number));
        assert!(is_pinned(&5) && is_pinned(&(5 + MAX_PLACES)));
        assert_eq!((0..16 << 20).filter(is_pinned).count(), pins.count_at_most());
    }
}
