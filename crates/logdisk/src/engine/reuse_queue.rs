//! The queue of reclaimable segments that wait to be filled again before the next checkpoint.

use std::collections::VecDeque;

use dendro_format::SegmentNo;

use crate::log::segments::Generation;

/// What became of a segment that may be filled again.
pub(super) enum Reused {
    /// No more segments are wanted.
    Enough,
    /// A thread reads it.
    InUse,
    /// It was made clean in another way.
    Gone,
    /// It is clean now.
    Clean,
}

/// Reclaimable segments that wait to become clean without a checkpoint, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ReuseQueue {
    /// Segments that were emptied by the records up to this partial segment of the main log.
    waiting: VecDeque<(u64, Generation)>,
    /// Segments whose reuse record is in this partial segment of the main log.
    recorded: VecDeque<(u64, Generation)>,
    /// Segments whose reuse record is durable, which may be filled again at once (reuse invariant
    /// 2).
    safe: VecDeque<Generation>,
    /// The number of segments that became clean without a checkpoint.
    reused: u64,
}

impl ReuseQueue {
    /// The number of segments that became clean without a checkpoint.
    pub(crate) const fn reused(&self) -> u64 {
        self.reused
    }

    /// The number of segments in the queue.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.recorded.len() + self.safe.len()
    }

    /// Notes the segments that the records up to partial segment `seq` have emptied.
    pub(super) fn note_closed(&mut self, seq: u64, reclaimable: Vec<Generation>) {
        self.waiting.extend(reclaimable.into_iter().map(|generation| (seq, generation)));
    }

    /// Takes the oldest segments that records up to partial segment `durable_seq` have emptied, at
    /// most `max` of them.
    pub(super) fn take_emptied(&mut self, durable_seq: u64, max: usize) -> Vec<Generation> {
        let count = self.waiting.partition_point(|(seq, _)| *seq <= durable_seq).min(max);
        self.waiting.drain(..count).map(|(_, generation)| generation).collect()
    }

    /// Notes the segments whose reuse record is in partial segment `seq`.
    pub(crate) fn note_recorded(&mut self, seq: u64, generations: Vec<Generation>) {
        self.recorded.extend(generations.into_iter().map(|generation| (seq, generation)));
    }

    /// Whether a flush brings some segment closer to being filled again.
    pub(crate) fn gains_from_flush(&self) -> bool {
        !self.waiting.is_empty() || !self.recorded.is_empty()
    }

    /// Calls `reuse` with each segment that may be filled again, the oldest first, until enough are
    /// clean. Segments that are in use wait further.
    pub(super) fn drain_safe(&mut self, mut reuse: impl FnMut(Generation) -> Reused) {
        for _ in 0..self.safe.len() {
            let Some(generation) = self.safe.pop_front() else { break };
            match reuse(generation) {
                Reused::Enough => {
                    self.safe.push_front(generation);
                    break;
                }
                Reused::InUse => self.safe.push_back(generation),
                Reused::Gone => {}
                Reused::Clean => self.reused += 1,
            }
        }
    }

    /// Notes that the main log is durable up to partial segment `seq`.
    pub(crate) fn note_durable(&mut self, seq: u64) {
        let count = self.recorded.partition_point(|(recorded_in, _)| *recorded_in <= seq);
        self.safe.extend(self.recorded.drain(..count).map(|(_, generation)| generation));
    }

    pub(super) fn withdraw(&mut self, segments: &[SegmentNo]) {
        let stays =
            |generation: &Generation| segments.binary_search(&generation.segment()).is_err();
        self.waiting.retain(|(_, generation)| stays(generation));
        self.recorded.retain(|(_, generation)| stays(generation));
        self.safe.retain(stays);
    }
}
