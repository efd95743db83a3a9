//! Fewer segments: those from some number on are given up. They are filled no more, and what is in
//! them is moved elsewhere; then the volume ends before them.

use dendro_format::{Layout, SegmentNo};
use roaring::RoaringBitmap;

use super::{SegmentState, Segments};

impl Segments {
    /// Whether the segment is given up.
    pub(crate) const fn is_given_up(&self, segment: SegmentNo) -> bool {
        segment.0 >= self.end
    }

    /// Segments from this one on are given up.
    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    /// Gives up as many of the last segments as is possible while `kept` clean ones are left, down
    /// to segment `target`.
    pub(crate) fn lower_end(&mut self, target: u32, kept: u32) {
        let kept = kept.saturating_add(self.withheld_count);
        let last_kept = kept.checked_sub(1).map_or(Some(0), |before| self.clean.select(before));
        let Some(end) = last_kept.map(|last| target.max(last + 1)).filter(|end| *end < self.end)
        else {
            return;
        };
        let given_up = end..self.end;
        self.end = end;
        self.leaving.insert_range(given_up.clone());
        let clean = self.clean.range(given_up.clone()).collect::<RoaringBitmap>();
        self.clean.remove_range(given_up.clone());
        self.backed.remove_range(given_up.clone());
        self.counts.clean -= clean.len() as u32;
        self.counts.retired += clean.len() as u32;
        self.leaving -= clean;
        for number in self.retired.range(given_up) {
            if self.table[number as usize].state() == SegmentState::Retired {
                self.leaving.remove(number);
            }
        }
    }

    /// The segments that are given up and in which something is needed, from `first` on.
    pub(crate) fn leaving(&self, first: u32) -> impl Iterator<Item = SegmentNo> {
        self.leaving.range(first..).map(SegmentNo)
    }

    /// How many these are in all.
    pub(crate) fn leaving_count(&self) -> u32 {
        self.leaving.len() as u32
    }

    /// Gives up no segments any more: what was clean is clean again.
    pub(crate) fn take_back(&mut self) {
        let count = self.layout.segment_count();
        let given_up = self.end..count;
        self.end = count;
        self.leaving.clear();
        let mut clean = RoaringBitmap::new();
        clean.insert_range(given_up.clone());
        for number in self.retired.range(given_up.clone()) {
            let entry = &mut self.table[number as usize];
            if entry.state() == SegmentState::Clean {
                entry.set_state(SegmentState::Retired);
            }
            self.used_end = self.used_end.max(number + 1);
        }
        for number in given_up.start..self.used_end.min(count) {
            if self.table[number as usize].state() != SegmentState::Clean {
                clean.remove(number);
            }
        }
        self.counts.retired -= clean.len() as u32;
        self.counts.clean += clean.len() as u32;
        self.backed.add(clean.range(..self.used_end).collect());
        self.clean |= clean;
    }

    /// Ends the volume as `layout` says, before the segments that were given up. Nothing in them is
    /// needed. Their entries stay for those who know them by their numbers.
    ///
    /// # Panics
    /// If something in one of them is needed, or others were given up.
    pub(crate) fn cut_off(&mut self, layout: Layout) {
        let (before, count) = (self.layout.segment_count(), layout.segment_count());
        assert!(self.end == count && self.leaving.is_empty(), "segments are still needed");
        for number in self.retired.range(count..) {
            self.table[number as usize].set_state(SegmentState::Clean);
        }
        self.retired.remove_range(count..);
        self.counts.retired -= before - count;
        self.layout = layout;
    }
}
