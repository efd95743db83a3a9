//! Which clean segments are discarded, and that they are not filled meanwhile.

use dendro_format::SegmentNo;
use roaring::RoaringBitmap;

use super::Segments;
use super::backed::{Discarding, Surplus};

impl Segments {
    /// The number of clean segments that are backed.
    pub(crate) fn backed_count(&self) -> u32 {
        self.backed.all.len() as u32
    }

    /// Notes that these segments are backed, those of them that are clean.
    pub(crate) fn note_backed(&mut self, segments: RoaringBitmap) {
        self.backed.add(&self.clean & segments);
    }

    /// The clean segments.
    pub(crate) const fn clean(&self) -> &RoaringBitmap {
        &self.clean
    }

    /// What has been clean and backed since the last call is to be discarded.
    pub(crate) fn age_backed(&mut self) {
        self.backed.age();
    }

    /// Pins at most `count` clean segments of a surplus, so that they can be discarded. Those with
    /// high numbers are the first, unless they are to be from some number on.
    pub(crate) fn begin_discard(&self, surplus: Surplus, count: usize) -> Discarding {
        let is_free = |number: &u32| !self.pins.is_pinned(SegmentNo(*number));
        let mut segments: Vec<_> = match surplus {
            Surplus::Beyond(kept) => {
                let beyond = self.backed_count().saturating_sub(kept) as usize;
                let stale = self.backed.stale.iter().rev().filter(is_free);
                let others = self.backed.all.iter().rev().filter(is_free).take(beyond);
                if self.backed.stale.is_empty() {
                    others.take(count).collect()
                } else {
                    stale.take(count).collect()
                }
            }
            Surplus::From(first) => self.clean.range(first..).filter(is_free).take(count).collect(),
        };
        segments.sort_unstable();
        let segments: Vec<_> = segments.into_iter().map(SegmentNo).collect();
        let pins = segments.iter().map(|segment| self.pins.pin(*segment)).collect();
        Discarding { segments, _pins: pins }
    }

    /// Notes that these segments were discarded and have not been written since.
    pub(crate) fn note_discarded(&mut self, segments: &[SegmentNo]) {
        segments.iter().for_each(|segment| self.backed.remove(segment.0));
    }
}
