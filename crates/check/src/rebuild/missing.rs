//! Stretches of the main log that are missing, and what payload streams have of them.
//!
//! The records of a payload stream state once more which pages its blocks are. They have no place
//! in the log, but their header states the last unit that was complete, and the time when the main
//! log's partial segment was begun. Both lie between those of the neighbours of the stretch. So the
//! copies of one stretch are known, and those of another are never taken for them.
//!
//! A stretch in which numbers are skipped has a crash in it. What payload streams have from before
//! the crash may have been undone by it, so nothing of such a stretch is taken.

use std::ops::Range;

use dendro_base::Timestamp;

use super::gaps::Gaps;
use super::sweep::{CopyPlace, LogPlace, Sweep};

/// After a crash, and after a rebuild, the log continues so far behind all numbers that were found
/// that none of them comes again.
pub(super) const SEQ_SKIP: u64 = 1 << 20;

/// A state of the log that is known: what lies before number `seq` ends with unit `commit_seq`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seq: u64,
    commit_seq: u64,
    time: Timestamp,
    /// The place of the partial segment before it, if that is there.
    place: Option<usize>,
}

/// A stretch of the main log that is missing.
#[derive(Debug)]
pub(super) struct Missing {
    /// The first number that is missing.
    pub(super) from_seq: u64,
    /// What may be of it, among all copies.
    copies: Range<usize>,
    times: (Timestamp, Timestamp),
    /// The unit that was complete before, and the partial segments just before that end with it: a
    /// copy that states this unit may be of them.
    pub(super) before: (u64, Range<usize>),
}

/// All stretches that are missing, in their order.
#[derive(Debug, Default)]
pub(super) struct MissingLog {
    stretches: Vec<Missing>,
    /// In the order of their units.
    copies: Vec<CopyPlace>,
}

impl MissingLog {
    /// The stretches between `places`, the main log before number `end`.
    pub(super) fn new(sweep: &Sweep, places: &[LogPlace], end: Option<u64>) -> Self {
        let mut copies = sweep.copies.clone();
        copies.sort_by_key(|copy| (copy.commit_seq, copy.time, copy.seq));
        let is_before_end = |seq: u64| end.is_none_or(|end| seq <= end);
        let of_places = places.iter().enumerate().map(|(at, place)| Mark {
            seq: place.seq + 1,
            commit_seq: place.commit_seq,
            time: place.time,
            place: Some(at),
        });
        let of_checkpoints = sweep.checkpoints.iter().map(|of| Mark {
            seq: of.checkpoint.log_seq,
            commit_seq: of.checkpoint.commit_seq,
            time: of.checkpoint.time,
            place: None,
        });
        let mut marks: Vec<Mark> =
            of_places.chain(of_checkpoints).filter(|mark| is_before_end(mark.seq)).collect();
        marks.push(Mark { seq: 0, commit_seq: 0, time: Timestamp::default(), place: None });
        marks.sort_by_key(|mark| (mark.seq, mark.place.is_none()));
        marks.dedup_by_key(|mark| mark.seq);
        let stretch = |pair: &[Mark]| {
            let [from, to] = [pair[0], pair[1]];
            let end = to.seq - u64::from(to.place.is_some());
            if end <= from.seq || end - from.seq >= SEQ_SKIP {
                return None;
            }
            let first = copies.partition_point(|copy| copy.commit_seq < from.commit_seq);
            let behind = copies.partition_point(|copy| copy.commit_seq <= to.commit_seq);
            let upto = from.place.map_or(0, |at| at + 1);
            let is_earlier = |place: &LogPlace| place.commit_seq != from.commit_seq;
            let since = places[..upto].iter().rposition(is_earlier).map_or(0, |at| at + 1);
            Some(Missing {
                from_seq: from.seq,
                copies: first..behind.max(first),
                times: (from.time, to.time),
                before: (from.commit_seq, since..upto),
            })
        };
        Self { stretches: marks.windows(2).filter_map(stretch).collect(), copies }
    }

    /// The stretches from number `seq` on.
    pub(super) fn from(&self, seq: u64) -> &[Missing] {
        &self.stretches[self.stretches.partition_point(|stretch| stretch.from_seq < seq)..]
    }

    /// The copies that are of a stretch and may have pages in the gaps, in their order.
    pub(super) fn copies_of(&self, stretch: &Missing, gaps: Gaps<'_>) -> Vec<CopyPlace> {
        let (commit_seq, before) = &stretch.before;
        let (earliest, latest) = stretch.times;
        let is_of_it = |copy: &&CopyPlace| {
            (earliest..=latest).contains(&copy.time)
                && (copy.commit_seq > *commit_seq || !before.is_empty())
                && copy.pages.may_meet(gaps)
        };
        self.copies[stretch.copies.clone()].iter().filter(is_of_it).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use dendro_format::SegmentNo;

    use super::super::named::{NamedLists, NamedPages};
    use super::*;

    fn place(seq: u64, commit_seq: u64) -> LogPlace {
        LogPlace {
            seq,
            segment: SegmentNo(2),
            offset_bytes: 0,
            crc32c: 0,
            prev_crc32c: 0,
            durable_seq: 0,
            commit_seq,
            time: Timestamp(seq as i64),
            ends_unit: true,
            lists: NamedLists::default(),
        }
    }

    fn stretches(places: &[LogPlace], copies: &[(u64, i64)]) -> Vec<(u64, usize)> {
        let copy = |&(commit_seq, time): &(u64, i64)| CopyPlace {
            commit_seq,
            time: Timestamp(time),
            seq: 0,
            segment: SegmentNo(3),
            offset_bytes: 0,
            pages: NamedPages::default(),
        };
        let sweep = Sweep { copies: copies.iter().map(copy).collect(), ..Sweep::default() };
        let log = MissingLog::new(&sweep, places, None);
        log.stretches.iter().map(|of| (of.from_seq, of.copies.len())).collect()
    }

    #[test]
    fn copies_belong_to_the_stretch_between_the_units_of_its_neighbours() {
        let places = [place(0, 10), place(4, 20), place(5, 30)];
        let copies = [(9, 0), (12, 2), (20, 3), (25, 5)];
        assert_eq!(stretches(&places, &copies), [(1, 2)]);
    }

    #[test]
    fn nothing_is_taken_of_a_stretch_with_a_crash_in_it() {
        let places = [place(0, 10), place(1 + SEQ_SKIP, 20)];
        assert_eq!(stretches(&places, &[(12, 1)]), []);
    }
}
