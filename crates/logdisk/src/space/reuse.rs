//! Generation emptied segments anew before the next checkpoint, when clean ones are few (DESIGN §8).
//!
//! The checkpoint before may name blocks in a segment that is empty by now. Rolling forward from it
//! passes over them, if it gets to the records that say what became of them, and if it never looks at
//! those blocks on its way. So a segment may be filled anew in two steps:
//! 1. The records that emptied it are flushed.
//! 2. A partial segment behind them says that they were ([`PartialHeader::durable_seq`]: recovery
//!    checks no payload up to there) and which segments are meant ([`Record::Reuse`]). Once that is
//!    durable too, they are clean.
//!
//! This is for segments of payload streams alone. The main log's are read by recovery, the map's are
//! needed by the checkpoint before. And what a collection frees no record tells ([`crate::snapshots::collection`]): what it
//! touched waits for a checkpoint.
//!
//! As long as there is room, all wait for a checkpoint: should the log behind it be damaged, what the
//! checkpoint names is still there.
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

/// So many segments a partial segment tells of at most.
const MAX_TOLD_AT_ONCE: usize = 256;
/// What that takes.
const TOLD_LEN_BYTES: usize = VERSION_LEN_BYTES + MAX_TOLD_AT_ONCE * REUSE_LEN_BYTES;

impl Engine {
    /// How many segments can become clean without a checkpoint, about.
    pub(crate) fn reusable_count(&self) -> u32 {
        let ReuseQueue { waiting, recorded, safe, .. } = &self.reuse_queue;
        let count =
            self.state.segments.reclaimable_count() + waiting.len() + recorded.len() + safe.len();
        count as u32
    }

    /// Makes emptied segments clean that may be, until so many are.
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

    /// Tells of those segments that were emptied by what is durable; says whether there were any.
    fn tell_of_emptied(&mut self) -> Outcome<bool> {
        self.note_reclaimable();
        let durable_seq = self.durable_seq;
        let count = self.reuse_queue.waiting.partition_point(|(seq, _)| *seq <= durable_seq);
        let count = count.min(MAX_TOLD_AT_ONCE);
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

    /// Whether so much fits into the open partial segment, or the log has where to go on and a place
    /// behind it.
    fn has_room_to_tell(&self) -> bool {
        let size = self.state.segments.layout().segment_size_bytes();
        let fits_here = match &self.log.open {
            Some(open) => open.fits(0, 0, TOLD_LEN_BYTES),
            None => size - u64::from(self.log.offset_bytes) >= MIN_CAPACITY_BYTES as u64,
        };
        fits_here || (self.log.next_segment.is_some() && self.state.segments.has_free(0))
    }

    /// A checkpoint makes these clean.
    pub(crate) fn withdraw_emptied(&mut self, segments: &[SegmentNo]) {
        self.state.segments.forget_reclaimable(segments);
        self.reuse_queue.withdraw(segments);
    }
}

impl LogDisk {
    /// Makes some of the emptied segments clean, or does the next step for it, if clean ones are few;
    /// says whether it did.
    pub(crate) fn reuse_step(&self) -> Result<bool> {
        {
            let engine = self.engine.read();
            if !self.reuse_is_wanted(&engine) {
                return Ok(false);
            }
        }
        self.reuse()
    }

    /// Makes as many of the emptied segments clean as can be without a checkpoint.
    pub(crate) fn reuse_all(&self) -> Result<()> {
        // Two flushes at most: the first is of what emptied them.
        for _ in 0..3 {
            if !self.reuse()? {
                break;
            }
        }
        Ok(())
    }

    /// Makes emptied segments clean, or flushes the log so that the next call can; says whether it did
    /// either.
    fn reuse(&self) -> Result<bool> {
        {
            let mut engine = self.engine.write();
            if self.check_writable(&engine).is_err() {
                return Ok(false);
            }
            let enough = self.clean_after_reuse(&engine);
            if engine.reuse_up_to(enough) {
                return Ok(true);
            }
        }
        self.flush_if(|engine| {
            if !engine.has_room_to_tell() {
                return Ok(false);
            }
            let has_told = engine.tell_of_emptied()?;
            let ReuseQueue { waiting, recorded, .. } = &engine.reuse_queue;
            let is_waiting = !waiting.is_empty() || engine.state.segments.reclaimable_count() > 0;
            Ok(has_told || !recorded.is_empty() || is_waiting)
        })
    }
}
