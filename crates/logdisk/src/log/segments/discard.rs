//! Which clean segments are discarded or written ahead, and that they are not filled meanwhile.

use dendro_format::{Head, SegmentNo};
use dendro_policy::Class;
use roaring::RoaringBitmap;

use super::Segments;
use super::backed::{Discarding, Surplus, WANTED_FOR_ONE};
use super::pins::Pin;

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

    /// Notes that a client waits for a flush.
    pub(crate) const fn note_flush(&mut self) {
        self.backed.flush_count = self.backed.flush_count.saturating_add(1);
    }

    /// The number of backed segments that the log is likely to fill soon.
    pub(crate) const fn wanted_count(&self) -> u32 {
        self.backed.missed_count.saturating_mul(WANTED_FOR_ONE)
    }

    /// The most segments that were opened between two checkpoints in the last two times that
    /// segments take to age.
    pub(crate) fn most_opened_count(&self) -> u32 {
        self.backed.most_opened_count()
    }

    /// Withholds the lowest clean segment that is not backed, of those that the log prefers, so
    /// that it can be written ahead.
    pub(crate) fn begin_write_ahead(&mut self) -> Option<(SegmentNo, Pin)> {
        let is_free = |number: &u32| {
            !self.backed.all.contains(*number) && !self.pins.is_pinned(SegmentNo(*number))
        };
        let preferred = self.preferred(&self.clean, Head::Main, Class::MAIN);
        let segment = preferred.as_ref().unwrap_or(&self.clean).iter().find(is_free)?;
        let segment = SegmentNo(segment);
        self.withheld_count += 1;
        Some((segment, self.pins.pin(segment)))
    }

    /// Ends what [`Self::begin_write_ahead`] began. If the segment was not written, none is written
    /// for the time being.
    pub(crate) fn end_write_ahead(&mut self, segment: SegmentNo, is_written: bool) {
        self.withheld_count -= 1;
        if !is_written {
            self.backed.missed_count = 0;
        } else if self.clean.contains(segment.0) {
            self.backed.insert(segment.0);
        }
    }

    /// Withholds at most `count` clean segments of a surplus, so that they can be discarded. Those
    /// with high numbers are the first, unless they are to be from some number on.
    pub(crate) fn begin_discard(&mut self, surplus: Surplus, count: usize) -> Discarding {
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
        self.withheld_count += segments.len() as u32;
        Discarding { segments, _pins: pins }
    }

    /// Ends what [`Self::begin_discard`] began, and returns the segments. Those that were discarded
    /// are not backed any more.
    pub(crate) fn end_discard(
        &mut self,
        discarding: Discarding,
        was_discarded: impl Fn(&SegmentNo) -> bool,
    ) -> Vec<SegmentNo> {
        let Discarding { segments, _pins } = discarding;
        self.withheld_count -= segments.len() as u32;
        let discarded = segments.iter().filter(|segment| was_discarded(segment));
        discarded.for_each(|segment| self.backed.remove(segment.0));
        segments
    }
}
