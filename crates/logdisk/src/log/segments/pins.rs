//! Pins: a segment that somebody reads is not filled again (segments invariant 2).

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use dendro_format::SegmentNo;

/// The maximum number of counters. Segments that share a counter all count as pinned when one of
/// them is; a stream then continues in another segment.
const MAX_COUNTERS: u32 = 1 << 16;
/// The least number of counters, for the volume may get more segments.
const MIN_COUNTERS: u32 = 1 << 12;

#[derive(Clone, Debug)]
pub(super) struct Pins(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// The counters; their number is a power of two.
    counters: Box<[AtomicU32]>,
    /// At least the sum of all counters.
    all: AtomicUsize,
    /// The maximum number of segments that share a counter.
    segments_per_counter: AtomicUsize,
}

/// Keeps a segment from being filled again until it is dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Pins,
    segment: SegmentNo,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.counter_of(self.segment).fetch_sub(1, Ordering::AcqRel);
        self.pins.0.all.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pins {
    pub(super) fn new(segment_count: u32) -> Self {
        let count = segment_count.clamp(MIN_COUNTERS, MAX_COUNTERS).next_power_of_two();
        let pins = Self(Arc::new(Counts {
            counters: (0..count).map(|_| AtomicU32::new(0)).collect(),
            all: AtomicUsize::new(0),
            segments_per_counter: AtomicUsize::new(0),
        }));
        pins.cover(segment_count);
        pins
    }

    /// Counts for so many segments from now on.
    pub(super) fn cover(&self, segment_count: u32) {
        let per_counter = (segment_count as usize).div_ceil(self.0.counters.len());
        self.0.segments_per_counter.store(per_counter, Ordering::Release);
    }

    fn counter_of(&self, segment: SegmentNo) -> &AtomicU32 {
        &self.0.counters[segment.0 as usize & (self.0.counters.len() - 1)]
    }

    pub(super) fn pin(&self, segment: SegmentNo) -> Pin {
        self.0.all.fetch_add(1, Ordering::AcqRel);
        self.counter_of(segment).fetch_add(1, Ordering::AcqRel);
        Pin { pins: self.clone(), segment }
    }

    pub(super) fn is_pinned(&self, segment: SegmentNo) -> bool {
        self.counter_of(segment).load(Ordering::Acquire) != 0
    }

    /// An upper bound on the number of segments that count as pinned.
    pub(super) fn count_at_most(&self) -> usize {
        let per_counter = self.0.segments_per_counter.load(Ordering::Acquire);
        self.0.all.load(Ordering::Acquire).saturating_mul(per_counter)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.counters.len() * size_of::<AtomicU32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_pinned_until_its_last_reader_has_finished() {
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
    fn segments_that_are_added_share_counters() {
        let pins = Pins::new(100);
        pins.cover(3 * MIN_COUNTERS);
        let _pin = pins.pin(SegmentNo(5));
        let pinned = (0..3 * MIN_COUNTERS).filter(|number| pins.is_pinned(SegmentNo(*number)));
        assert_eq!(pinned.count(), pins.count_at_most());
    }

    #[test]
    fn segments_that_share_a_counter_all_count_as_pinned_when_one_is() {
        let pins = Pins::new(16 << 20);
        assert_eq!(pins.memory_bytes(), 256 << 10);
        let _pin = pins.pin(SegmentNo(5));
        let is_pinned = |number: &u32| pins.is_pinned(SegmentNo(*number));
        assert!(is_pinned(&5) && is_pinned(&(5 + MAX_COUNTERS)));
        assert_eq!((0..16 << 20).filter(is_pinned).count(), pins.count_at_most());
    }
}
