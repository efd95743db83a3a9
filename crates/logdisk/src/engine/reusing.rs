//! Filling segments again without a checkpoint: their records, and when they become clean
//! ([`crate::space::reuse`]).

use dendro_format::Record;
use dendro_format::record::{REUSE_LEN_BYTES, VERSION_LEN_BYTES};

use crate::engine::Engine;
use crate::engine::reuse_queue::Reused;
use crate::fault::Outcome;
use crate::log::partial::MIN_CAPACITY_BYTES;

/// The most segments that one partial segment releases for reuse.
const MAX_SEGMENTS_PER_PARTIAL: usize = 256;
/// The bytes that the records for these take.
const REUSE_RECORDS_LEN_BYTES: usize =
    VERSION_LEN_BYTES + MAX_SEGMENTS_PER_PARTIAL * REUSE_LEN_BYTES;

impl Engine {
    /// Makes segments whose reuse record is durable clean, until `clean_count` segments are (reuse
    /// 2). Returns whether any became clean.
    pub(crate) fn reuse_up_to(&mut self, clean_count: u32) -> bool {
        let before = self.state.segments().clean_count();
        let segments = self.state.segments_mut();
        self.reuse_queue.drain_safe(|generation| {
            if segments.clean_count() >= clean_count {
                return Reused::Enough;
            }
            if segments.is_pinned(generation.segment()) {
                return Reused::InUse;
            }
            if !segments.is_still_pending(generation) {
                return Reused::Gone;
            }
            segments.set_clean(generation.segment());
            Reused::Clean
        });
        self.state.segments().clean_count() > before
    }

    /// Enters reuse records for the segments that durable records emptied (reuse 1). Returns
    /// whether there were any.
    pub(crate) fn enter_reuse_records(&mut self) -> Outcome<bool> {
        self.note_reclaimable();
        let mut generations =
            self.reuse_queue.take_emptied(self.durable_seq, MAX_SEGMENTS_PER_PARTIAL);
        generations.retain(|generation| self.state.segments().is_still_pending(*generation));
        if generations.is_empty() {
            return Ok(false);
        }
        let record_bytes = VERSION_LEN_BYTES + generations.len() * REUSE_LEN_BYTES;
        let unit = self.begin_unit(self.head_context(0), 0, 0, record_bytes)?;
        for generation in &generations {
            self.partial().push(&Record::Reuse { segment: generation.segment() });
        }
        self.end_unit(unit);
        self.reuse_queue.note_recorded(self.log.seq, generations);
        Ok(true)
    }

    /// Whether the records fit into the open partial segment, or the log has a segment to continue
    /// in and another after that.
    pub(crate) fn has_room_for_reuse_records(&self) -> bool {
        let size = self.state.segments().layout().segment_size_bytes();
        let fits_here = match &self.log.open {
            Some(open) => open.fits(0, 0, REUSE_RECORDS_LEN_BYTES),
            None => size - u64::from(self.log.offset_bytes) >= MIN_CAPACITY_BYTES as u64,
        };
        fits_here || (self.log.next_segment.is_some() && self.state.segments().has_free(0))
    }
}
