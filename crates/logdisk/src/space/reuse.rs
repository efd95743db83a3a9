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
//! ([`crate::snapshots::collection`]), so segments that it emptied wait for a checkpoint.
//!
//! As long as there is room, all segments wait for a checkpoint. If the log behind the checkpoint
//! is damaged, what the checkpoint names is then still there.
//!
//! [`PartialHeader::durable_seq`]: dendro_format::PartialHeader::durable_seq

use dendro_disk::Result;
use dendro_format::record::{REUSE_LEN_BYTES, VERSION_LEN_BYTES};
use dendro_format::{Record, SegmentNo};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::engine::reuse_queue::ReuseQueue;
use crate::fault::Outcome;
use crate::log::partial::MIN_CAPACITY_BYTES;
use crate::log::segments::Generation;

/// The most segments that one partial segment releases for reuse.
const MAX_SEGMENTS_PER_PARTIAL: usize = 256;
/// The bytes that the records for these take.
const REUSE_RECORDS_LEN_BYTES: usize =
    VERSION_LEN_BYTES + MAX_SEGMENTS_PER_PARTIAL * REUSE_LEN_BYTES;

impl Engine {
    /// About how many segments can become clean without a checkpoint.
    pub(crate) fn reusable_count(&self) -> u32 {
        let ReuseQueue { waiting, recorded, safe, .. } = &self.reuse_queue;
        let count =
            self.state.segments.reclaimable_count() + waiting.len() + recorded.len() + safe.len();
        count as u32
    }

    /// Makes segments whose reuse record is durable clean, until `clean_count` segments are (reuse
    /// 2). Returns whether any became clean.
    fn reuse_up_to(&mut self, clean_count: u32) -> bool {
        let before = self.state.segments.clean_count();
        for _ in 0..self.reuse_queue.safe.len() {
            if self.state.segments.clean_count() >= clean_count {
                break;
            }
            let Some(generation) = self.reuse_queue.safe.pop_front() else { break };
            if self.state.segments.is_pinned(generation.segment) {
                self.reuse_queue.safe.push_back(generation);
            } else if self.state.segments.is_still_pending(generation) {
                self.state.segments.set_clean(generation.segment);
                self.reuse_queue.reused += 1;
            }
        }
        self.state.segments.clean_count() > before
    }

    /// Enters reuse records for the segments that durable records emptied (reuse 1). Returns
    /// whether there were any.
    fn enter_reuse_records(&mut self) -> Outcome<bool> {
        self.note_reclaimable();
        let durable_seq = self.durable_seq;
        let count = self.reuse_queue.waiting.partition_point(|(seq, _)| *seq <= durable_seq);
        let count = count.min(MAX_SEGMENTS_PER_PARTIAL);
        let mut generations: Vec<Generation> =
            self.reuse_queue.waiting.drain(..count).map(|(_, generation)| generation).collect();
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
        let seq = self.log.seq;
        self.reuse_queue
            .recorded
            .extend(generations.into_iter().map(|generation| (seq, generation)));
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

    /// Removes segments from the reuse queue that a checkpoint makes clean.
    pub(crate) fn withdraw_from_reuse(&mut self, segments: &[SegmentNo]) {
        self.state.segments.forget_reclaimable(segments);
        self.reuse_queue.withdraw(segments);
    }
}

impl LogDisk {
    /// If clean segments are few, makes some reclaimable segments clean or does the next step
    /// towards it. Returns whether it did.
    pub(crate) fn reuse_step(&self) -> Result<bool> {
        {
            let engine = self.volume.read();
            if !self.reuse_is_wanted(&engine) {
                return Ok(false);
            }
        }
        self.reuse()
    }

    /// Makes as many reclaimable segments clean as is possible without a checkpoint.
    pub(crate) fn reuse_all(&self) -> Result<()> {
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
            if self.volume.check_writable(&engine).is_err() {
                return Ok(false);
            }
            let enough = self.clean_after_reuse(&engine);
            if engine.reuse_up_to(enough) {
                return Ok(true);
            }
        }
        self.flusher.flush_if(|engine| {
            if !engine.has_room_for_reuse_records() {
                return Ok(false);
            }
            let has_entered = engine.enter_reuse_records()?;
            let ReuseQueue { waiting, recorded, .. } = &engine.reuse_queue;
            let is_waiting = !waiting.is_empty() || engine.state.segments.reclaimable_count() > 0;
            Ok(has_entered || !recorded.is_empty() || is_waiting)
        })
    }
}
