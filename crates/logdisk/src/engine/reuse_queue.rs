//! The queue of reclaimable segments that wait to be filled again before the next checkpoint.

use std::collections::VecDeque;

use dendro_format::SegmentNo;

use crate::log::segments::Generation;

/// Reclaimable segments that wait to become clean without a checkpoint, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ReuseQueue {
    /// Segments that were emptied by the records up to this partial segment of the main log.
    pub(crate) waiting: VecDeque<(u64, Generation)>,
    /// Segments whose reuse record is in this partial segment of the main log.
    pub(crate) recorded: VecDeque<(u64, Generation)>,
    /// Segments whose reuse record is durable, which may be filled again at once (reuse invariant
    /// 2).
    pub(crate) safe: VecDeque<Generation>,
    /// The number of segments that became clean without a checkpoint.
    pub(crate) reused: u64,
}

impl ReuseQueue {
    /// The number of segments that became clean without a checkpoint.
    pub(crate) const fn reused(&self) -> u64 {
        self.reused
    }

    /// Notes the segments that the records up to partial segment `seq` have emptied.
    pub(crate) fn note_closed(&mut self, seq: u64, reclaimable: Vec<Generation>) {
        self.waiting.extend(reclaimable.into_iter().map(|generation| (seq, generation)));
    }

    /// Notes that the main log is durable up to partial segment `seq`.
    pub(crate) fn note_durable(&mut self, seq: u64) {
        let count = self.recorded.partition_point(|(recorded_in, _)| *recorded_in <= seq);
        self.safe.extend(self.recorded.drain(..count).map(|(_, generation)| generation));
    }

    pub(crate) fn withdraw(&mut self, segments: &[SegmentNo]) {
        let stays = |generation: &Generation| segments.binary_search(&generation.segment).is_err();
        self.waiting.retain(|(_, generation)| stays(generation));
        self.recorded.retain(|(_, generation)| stays(generation));
        self.safe.retain(stays);
    }
}
