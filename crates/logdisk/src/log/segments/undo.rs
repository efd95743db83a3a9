//! The usage of segments before a change, so that the change can be undone.

use std::mem;

use dendro_format::SegmentNo;

use super::entry::Entry;
use super::state::PageCounts;

/// The totals before a change, and the entries that it changed, each as it was before.
type Saved = (u64, PageCounts, Vec<(SegmentNo, Entry)>);

/// What [`super::Segments::roll_back`] needs.
#[derive(Debug, Default)]
pub(super) struct Undo {
    totals: Option<(u64, PageCounts)>,
    entries: Vec<(SegmentNo, Entry)>,
}

impl Undo {
    pub(super) fn begin(&mut self, live_bytes: u64, page_counts: PageCounts) {
        debug_assert!(self.totals.is_none(), "changes do not nest");
        self.totals = Some((live_bytes, page_counts));
    }

    /// Notes the entry of `segment`, which is about to change.
    pub(super) fn note(&mut self, segment: SegmentNo, entry: &Entry) {
        // The oldest state counts, so one note of a segment is enough. A unit that rewrites pages
        // frees blocks of one segment and adds blocks to another in turn.
        let mut newest = self.entries.iter().rev().take(2);
        if self.totals.is_some() && newest.all(|(noted, _)| *noted != segment) {
            self.entries.push((segment, *entry));
        }
    }

    pub(super) fn end(&mut self) {
        self.totals = None;
        self.entries.clear();
    }

    pub(super) fn take(&mut self) -> Option<Saved> {
        let (live_bytes, page_counts) = self.totals.take()?;
        Some((live_bytes, page_counts, mem::take(&mut self.entries)))
    }
}
