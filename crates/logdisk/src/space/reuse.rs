//! Reuse of reclaimable segments without a checkpoint, when clean segments are few (DESIGN §8).
//!
//! The checkpoint before may name blocks in a segment that is empty now. Roll-forward from that
//! checkpoint never needs those blocks, if it reaches the records that freed them and does not read
//! the blocks before. Two invariants ensure both.
//!
//! Invariants:
//! 1. (reuse 1) A reuse record is written only after the records that emptied the segment were
//!    flushed. The header of its partial segment states that they were
//!    ([`PartialHeader::durable_seq`]; recovery checks no payload up to there), and the records
//!    ([`Record::Reuse`]) name the segments.
//! 2. (reuse 2) A segment is filled again only after the partial segment with its reuse record is
//!    durable.
//!
//! Only segments of payload streams are reused in this way. Recovery reads the main log's segments,
//! and the checkpoint before needs the map's. What a collection frees has no record in the log
//! (collection 1), so segments that it emptied wait for a checkpoint.
//!
//! As long as there is room, all segments wait for a checkpoint. If the log behind the checkpoint
//! is damaged, what the checkpoint names is then still there.
//!
//! [`PartialHeader::durable_seq`]: dendro_format::PartialHeader::durable_seq

use dendro_base::sync::Arc;
use dendro_disk::Result;
use dendro_format::Record;
use dendro_format::record::{REUSE_LEN_BYTES, VERSION_LEN_BYTES};

use crate::engine::Engine;
use crate::engine::reuse_queue::Reused;
use crate::fault::Outcome;
use crate::flush::Flusher;
use crate::log::partial::MIN_CAPACITY_BYTES;
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// The most segments that one partial segment releases for reuse.
const MAX_SEGMENTS_PER_PARTIAL: usize = 256;
/// The bytes that the records for these take.
const REUSE_RECORDS_LEN_BYTES: usize =
    VERSION_LEN_BYTES + MAX_SEGMENTS_PER_PARTIAL * REUSE_LEN_BYTES;

impl Engine {
    /// Makes segments whose reuse record is durable clean, until `clean_count` segments are (reuse
    /// 2). Returns whether any became clean.
    fn reuse_up_to(&mut self, clean_count: u32) -> bool {
        let before = self.state.segments.clean_count();
        let segments = &mut self.state.segments;
        self.reuse_queue.drain_safe(|generation| {
            if segments.clean_count() >= clean_count {
                return Reused::Enough;
            }
            if segments.is_pinned(generation.segment) {
                return Reused::InUse;
            }
            if !segments.is_still_pending(generation) {
                return Reused::Gone;
            }
            segments.set_clean(generation.segment);
            Reused::Clean
        });
        self.state.segments.clean_count() > before
    }

    /// Enters reuse records for the segments that durable records emptied (reuse 1). Returns
    /// whether there were any.
    fn enter_reuse_records(&mut self) -> Outcome<bool> {
        self.note_reclaimable();
        let mut generations =
            self.reuse_queue.take_emptied(self.durable_seq, MAX_SEGMENTS_PER_PARTIAL);
        generations.retain(|generation| self.state.segments.is_still_pending(*generation));
        if generations.is_empty() {
            return Ok(false);
        }
        self.set_context(0);
        self.begin_unit(0, VERSION_LEN_BYTES + generations.len() * REUSE_LEN_BYTES)?;
        for generation in &generations {
            self.partial().push(&Record::Reuse { segment: generation.segment });
        }
        self.end_unit();
        self.reuse_queue.note_recorded(self.log.seq, generations);
        Ok(true)
    }

    /// Whether the records fit into the open partial segment, or the log has a segment to continue
    /// in and another after that.
    fn has_room_for_reuse_records(&self) -> bool {
        let size = self.state.segments.layout().segment_size_bytes();
        let fits_here = match &self.log.open {
            Some(open) => open.fits(0, 0, REUSE_RECORDS_LEN_BYTES),
            None => size - u64::from(self.log.offset_bytes) >= MIN_CAPACITY_BYTES as u64,
        };
        fits_here || (self.log.next_segment.is_some() && self.state.segments.has_free(0))
    }
}

/// Makes reclaimable segments clean.
pub(crate) struct Reuse {
    volume: Arc<Volume>,
    flusher: Arc<Flusher>,
    accounts: Arc<Accounts>,
}

impl Reuse {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        flusher: Arc<Flusher>,
        accounts: Arc<Accounts>,
    ) -> Self {
        Self { volume, flusher, accounts }
    }

    /// If clean segments are few, makes some reclaimable segments clean or does the next step
    /// towards it. Returns whether it did.
    pub(crate) fn step(&self) -> Result<bool> {
        {
            let engine = self.volume.read();
            if !self.accounts.reuse_is_wanted(&engine) {
                return Ok(false);
            }
        }
        self.reuse()
    }

    /// Makes as many reclaimable segments clean as is possible without a checkpoint.
    pub(crate) fn all(&self) -> Result<()> {
        // It takes two flushes at most: one of the records that emptied the segments, one of the
        // reuse records.
        for _ in 0..3 {
            if !self.reuse()? {
                break;
            }
        }
        Ok(())
    }

    /// Makes reclaimable segments clean, or flushes the log so that the next call can. Returns
    /// whether it did either.
    fn reuse(&self) -> Result<bool> {
        {
            let mut engine = self.volume.write();
            // What is held is not filled again (segments 3).
            if self.volume.check_writable(&engine).is_err() || engine.state.segments.is_held() {
                return Ok(false);
            }
            let enough = self.accounts.clean_after_reuse(&engine);
            if engine.reuse_up_to(enough) {
                return Ok(true);
            }
        }
        self.flusher.flush_if(|engine| {
            if !engine.has_room_for_reuse_records() {
                return Ok(false);
            }
            let has_entered = engine.enter_reuse_records()?;
            Ok(has_entered
                || engine.reuse_queue.gains_from_flush()
                || engine.state.segments.reclaimable_count() > 0)
        })
    }
}
