//! Emptied segments on their way to be filled anew before the next checkpoint.

use std::collections::VecDeque;

use dendro_format::SegmentNo;

use crate::log::segments::Generation;

/// Emptied segments on their way to be clean without a checkpoint, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ReuseQueue {
    /// By the records up to this partial segment of the main log.
    pub(crate) waiting: VecDeque<(u64, Generation)>,
    /// Told of in this partial segment.
    pub(crate) told: VecDeque<(u64, Generation)>,
    /// That may be filled anew at once.
    pub(crate) safe: VecDeque<Generation>,
    /// How many have been made clean so.
    pub(crate) reused: u64,
}

impl ReuseQueue {
    /// How many segments have been made clean without a checkpoint.
    pub(crate) const fn reused(&self) -> u64 {
        self.reused
    }

    /// Notes what the records up to partial segment `seq` have emptied.
    pub(crate) fn note_closed(&mut self, seq: u64, emptied: Vec<Generation>) {
        self.waiting.extend(emptied.into_iter().map(|generation| (seq, generation)));
    }

    /// The main log is durable up to partial segment `seq`.
    pub(crate) fn note_durable(&mut self, seq: u64) {
        let count = self.told.partition_point(|(told_in, _)| *told_in <= seq);
        self.safe.extend(self.told.drain(..count).map(|(_, generation)| generation));
    }

    pub(crate) fn withdraw(&mut self, segments: &[SegmentNo]) {
        let stays = |generation: &Generation| segments.binary_search(&generation.segment).is_err();
        self.waiting.retain(|(_, generation)| stays(generation));
        self.told.retain(|(_, generation)| stays(generation));
        self.safe.retain(stays);
    }
}
