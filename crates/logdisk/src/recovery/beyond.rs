//! What lies behind the place where the log does not continue: is that place the end, or is the log
//! damaged there?
//!
//! A power cut may leave partial segments behind one that was lost, because before a flush the
//! device may write in any order. So a later partial segment alone proves nothing. But each header
//! states up to which number the log was durable when it was written
//! ([`PartialHeader::durable_seq`], recovery 1). If the missing number is among these, the missing
//! partial segment was on the device and is damaged.
//!
//! A damaged header no longer states where the log continues. So later partial segments are looked
//! for in these places: behind the place itself; in the segment that the last sound header names;
//! and at the starts of the segments that were clean when the checkpoint was taken, from the lowest
//! on, which is the order in which they are filled. As many segments are searched as can have been
//! filled since the checkpoint, and all of them if there is any sign that the log continued.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dendro_base::units::{MIB, PAGE_SIZE};
use dendro_device::AlignedBuf;
use dendro_format::{Head, PartialHeader, SegmentNo};

use super::reader::SegmentReader;

/// About the most that all streams write between two checkpoints.
const WRITTEN_BETWEEN_CHECKPOINTS_BYTES: u64 = 512 * MIB;

/// The place where the log does not continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    /// The number of the missing partial segment.
    pub(super) seq: u64,
    /// The segment and the offset where it should be.
    pub(super) segment: SegmentNo,
    pub(super) offset_bytes: u64,
    /// The other place where it may be: the start of this segment.
    pub(super) next_segment: SegmentNo,
}

/// The segments that the log may continue in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Candidates<'a> {
    /// The segments that were clean at the checkpoint, the most likely first.
    Clean(&'a [SegmentNo]),
    /// Any segment: it is not known that the checkpoint is the newest.
    All,
}

/// The highest number of a partial segment of the main log in the segments that begin with one.
pub(super) fn highest_seq(reader: &mut SegmentReader<'_>) -> u64 {
    let mut block = AlignedBuf::zeroed(PAGE_SIZE);
    let mut highest = 0;
    for segment in reader.layout().log_segments() {
        let first = reader.first_header(segment, &mut block);
        if first.is_some_and(|header| header.head == Head::Main) {
            reader.load(segment);
            let main = reader.partials(segment, 0).filter(|(it, ..)| it.head == Head::Main);
            highest = main.map(|(header, ..)| header.seq).max().unwrap_or(0).max(highest);
        }
    }
    highest
}

/// A partial segment behind the damage.
pub(super) struct Later {
    pub(super) header: PartialHeader,
    pub(super) records: Vec<u8>,
}

/// What was found of the main log behind that place.
pub(super) struct Beyond {
    /// The number up to which the log was durable.
    pub(super) durable_seq: u64,
    /// The last header.
    pub(super) last: PartialHeader,
    /// All partial segments by number, if the caller wants to keep them.
    pub(super) later: BTreeMap<u64, Later>,
}

impl Beyond {
    /// Searches the segments that the log may continue in.
    pub(super) fn find(
        reader: &mut SegmentReader<'_>,
        end: &LogEnd,
        candidates: Candidates<'_>,
        reused: impl Iterator<Item = SegmentNo>,
        keeps_records: bool,
    ) -> Option<Self> {
        let mut search = LogSearch {
            end: *end,
            keeps_records,
            found: None,
            waiting: VecDeque::from([end.next_segment]),
            seen: BTreeSet::new(),
        };
        let is_damaged_header = search.looks_damaged(reader);
        search.look_through(reader, end.segment, end.offset_bytes);
        search.follow(reader);
        let segment_size = reader.layout().segment_size_bytes();
        let likely = (64 + WRITTEN_BETWEEN_CHECKPOINTS_BYTES / segment_size) as usize;
        let mut block = AlignedBuf::zeroed(PAGE_SIZE);
        let (clean, is_suspicious) = match candidates {
            Candidates::Clean(clean) => (clean, is_damaged_header),
            Candidates::All => (&[][..], true),
        };
        let all = reader.layout().log_segments().filter(|_| matches!(candidates, Candidates::All));
        for (index, segment) in reused.chain(clean.iter().copied()).chain(all).enumerate() {
            if index >= likely && search.found.is_none() && !is_suspicious {
                break;
            }
            let first = reader.first_header(segment, &mut block);
            if first.is_some_and(|header| header.head == Head::Main && header.seq >= end.seq) {
                search.waiting.push_back(segment);
                search.follow(reader);
            }
        }
        search.found
    }
}

struct LogSearch {
    end: LogEnd,
    keeps_records: bool,
    found: Option<Beyond>,
    waiting: VecDeque<SegmentNo>,
    seen: BTreeSet<SegmentNo>,
}

impl LogSearch {
    /// Whether the place where the log ends has a header like the missing one.
    fn looks_damaged(&self, reader: &mut SegmentReader<'_>) -> bool {
        let LogEnd { segment, offset_bytes, next_segment, seq } = self.end;
        [(segment, offset_bytes), (next_segment, 0)].into_iter().any(|(segment, offset_bytes)| {
            if !reader.layout().is_log_segment(segment)
                || offset_bytes >= reader.layout().segment_size_bytes()
            {
                return false;
            }
            reader.load(segment);
            let header = PartialHeader::decode(reader.rest(offset_bytes));
            header.is_ok_and(|(header, _)| header.seq == seq && header.segment == segment)
        })
    }

    /// Searches the queued segments, and those that the headers found there name next.
    fn follow(&mut self, reader: &mut SegmentReader<'_>) {
        while let Some(segment) = self.waiting.pop_front() {
            if reader.layout().is_log_segment(segment) && self.seen.insert(segment) {
                self.look_through(reader, segment, 0);
            }
        }
    }

    fn look_through(
        &mut self,
        reader: &mut SegmentReader<'_>,
        segment: SegmentNo,
        from_bytes: u64,
    ) {
        reader.load(segment);
        for (header, _, records) in reader.partials(segment, from_bytes) {
            if header.head != Head::Main || header.seq < self.end.seq {
                continue;
            }
            let durable_seq = header.durable_seq;
            let found = self.found.get_or_insert_with(|| Beyond {
                durable_seq,
                last: header,
                later: BTreeMap::new(),
            });
            if self.keeps_records {
                let records = records.to_vec();
                found.later.insert(header.seq, Later { header, records });
            }
            found.durable_seq = found.durable_seq.max(durable_seq);
            if header.seq > found.last.seq {
                found.last = header;
            }
            self.waiting.push_back(header.next_segment);
        }
    }
}
