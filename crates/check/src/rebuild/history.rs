//! The main log before a checkpoint: which partial segments are a part of it, and what is missing.

use std::collections::BTreeSet;

use dendro_format::Addr;

use super::blocks::blocks_of;
use super::gaps::Gaps;
use super::missing::{Missing, MissingLog};
use super::sweep::{CopyPlace, LogPlace, Sweep};
use crate::read::Volume;

/// The main log, in its order.
#[derive(Debug)]
pub(super) struct History {
    places: Vec<LogPlace>,
    /// From this number on, none is missing.
    pub(super) complete_from: u64,
    missing: MissingLog,
}

impl History {
    /// The log before `end`: the number of the next partial segment, and the checksum of the last
    /// one. Without `end`, all of the log.
    ///
    /// A crash may leave partial segments behind that recovery did not find. The one that continues
    /// the log afterwards names the one before it by its checksum, and what lies between them in
    /// number is left out. Where a partial segment is missing that cannot be decided, and what is
    /// older is all taken.
    ///
    /// Without `end`, nodes of the map tell where the log was at least. If it does not reach that
    /// far, its end is missing, and nothing is known to be complete.
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
        let newest_node = sweep.nodes.iter().map(|node| node.log_seq).max().unwrap_or(0);
        let lacks_end = end.is_none() && kept.first().is_none_or(|last| last.seq + 1 < newest_node);
        let complete_from = match wanted {
            _ if lacks_end => u64::MAX,
            None => 0,
            Some(_) => next_seq,
        };
        places.dedup_by_key(|place| place.seq);
        kept.reverse();
        places.extend(kept);
        let missing = MissingLog::new(sweep, &places, end.map(|(seq, _)| seq));
        Self { places, complete_from, missing }
    }

    /// The partial segments from number `seq` on.
    pub(super) fn from(&self, seq: u64) -> &[LogPlace] {
        &self.places[self.places.partition_point(|place| place.seq < seq)..]
    }

    /// What is missing from number `seq` on.
    pub(super) fn missing_from(&self, seq: u64) -> &[Missing] {
        self.missing.from(seq)
    }

    /// What payload streams have of what is missing, as far as it may be of pages in the gaps: the
    /// copies in their order, and the blocks in them that are not of it, because partial segments
    /// of the main log just before it name them.
    pub(super) fn copies_of(
        &self,
        volume: &Volume<'_>,
        missing: &Missing,
        gaps: Gaps<'_>,
    ) -> (Vec<CopyPlace>, BTreeSet<Addr>) {
        let (commit_seq, before) = (missing.before.0, &self.places[missing.before.1.clone()]);
        let copies = self.missing.copies_of(missing, gaps);
        let mut named = BTreeSet::new();
        if copies.iter().any(|copy| copy.commit_seq == commit_seq) {
            for place in before {
                let Ok(partial) = volume.partial_at(place.segment, place.offset_bytes) else {
                    continue;
                };
                for record in partial.records().flatten() {
                    named.extend(blocks_of(&record.record).into_iter().map(|(_, of)| of.addr));
                }
            }
        }
        (copies, named)
    }

    /// The number and the checksum behind its end.
    pub(super) fn end(&self) -> (u64, u32) {
        self.places.last().map_or((1, 0), |last| (last.seq + 1, last.crc32c))
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Timestamp;
    use dendro_format::{Addr, Key, NodePtr, SegmentNo};

    use super::super::named::NamedLists;
    use super::super::sweep::SweptNode;
    use super::*;

    fn complete_from(places: &[(u64, u32, u32)], nodes: &[u64]) -> u64 {
        let place = |&(seq, crc32c, prev_crc32c): &(u64, u32, u32)| LogPlace {
            seq,
            segment: SegmentNo(2),
            offset_bytes: 0,
            crc32c,
            prev_crc32c,
            durable_seq: 0,
            commit_seq: 0,
            time: Timestamp::default(),
            ends_unit: true,
            lists: NamedLists::default(),
        };
        let node = |&log_seq: &u64| SweptNode {
            place: NodePtr { addr: Addr(0), len_bytes: 64, crc32c: 0 },
            level: 0,
            checkpoint_seq: 1,
            log_seq,
            first: Key::MIN,
            last: Key::MIN,
        };
        let sweep = Sweep {
            log: places.iter().map(place).collect(),
            nodes: nodes.iter().map(node).collect(),
            ..Sweep::default()
        };
        History::new(&sweep, None).complete_from
    }

    #[test]
    fn a_log_without_its_start_is_complete_behind_the_gap_alone() {
        assert_eq!(complete_from(&[(1, 11, 0), (2, 12, 11)], &[3]), 0);
        assert_eq!(complete_from(&[(2, 12, 11), (3, 13, 12)], &[3]), 2);
    }

    #[test]
    fn a_log_that_ends_before_the_newest_node_proves_nothing_complete() {
        assert_eq!(complete_from(&[], &[3]), u64::MAX);
        assert_eq!(complete_from(&[], &[]), u64::MAX);
        assert_eq!(complete_from(&[(1, 11, 0)], &[3]), u64::MAX);
    }
}
