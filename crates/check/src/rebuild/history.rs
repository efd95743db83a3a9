//! The main log before a checkpoint: which partial segments are a part of it.

use super::sweep::{LogPlace, Sweep};

/// The main log, in its order.
#[derive(Debug)]
pub(super) struct History {
    places: Vec<LogPlace>,
    /// From this number on, none is missing.
    pub(super) complete_from: u64,
}

impl History {
    /// The log before `end`: the number of the next partial segment, and the checksum of the last
    /// one. Without `end`, all of the log.
    ///
    /// A crash may leave partial segments behind that recovery did not find. The one that continues
    /// the log afterwards names the one before it by its checksum, and what lies between them in
    /// number is left out. Where a partial segment is missing that cannot be decided, and what is
    /// older is all taken.
    pub(super) fn new(sweep: &Sweep, end: Option<(u64, u32)>) -> Self {
        let mut places: Vec<LogPlace> = sweep
            .log
            .iter()
            .filter(|place| end.is_none_or(|(seq, _)| place.seq < seq))
            .copied()
            .collect();
        places.sort_by_key(|place| (place.seq, place.segment, place.offset_bytes));
        let mut kept = Vec::new();
        let (mut next_seq, mut wanted) = match (end, places.last()) {
            (Some((seq, crc32c)), _) => (seq, Some(crc32c)),
            (None, last) => (last.map_or(0, |last| last.seq + 1), last.map(|last| last.crc32c)),
        };
        while let Some(crc32c) = wanted {
            let Some(at) = places.iter().rposition(|place| place.crc32c == crc32c) else { break };
            places.truncate(at + 1);
            kept.extend(places.pop());
            let last = kept[kept.len() - 1];
            next_seq = last.seq;
            wanted = (last.prev_crc32c != 0).then_some(last.prev_crc32c);
        }
        let complete_from = if wanted.is_none() { 0 } else { next_seq };
        places.dedup_by_key(|place| place.seq);
        kept.reverse();
        places.extend(kept);
        Self { places, complete_from }
    }

    /// The partial segments from number `seq` on.
    pub(super) fn from(&self, seq: u64) -> &[LogPlace] {
        &self.places[self.places.partition_point(|place| place.seq < seq)..]
    }

    /// The number and the checksum behind its end.
    pub(super) fn end(&self) -> (u64, u32) {
        self.places.last().map_or((1, 0), |last| (last.seq + 1, last.crc32c))
    }
}
