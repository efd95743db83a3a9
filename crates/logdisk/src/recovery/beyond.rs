//! What lies behind the place where the log does not go on: is it the end, or is the log damaged there?
//!
//! A power cut may leave partial segments behind one that was lost, for until a flush the device keeps
//! what it likes. So that a later one is there proves nothing. But each says up to which number the log
//! was durable when it was written ([`PartialHeader::durable_seq`]): if the missing one is among these,
//! it was on the device, and is damaged.
//!
//! A damaged header has lost the place at which the log goes on. So what may come later is looked for
//! behind the place itself, in the segment that the last sound header names, and at the starts of those
//! that were clean when the checkpoint was taken, which are filled from the lowest on. As many are looked
//! at as can have been filled since; all of them if there is any sign that the log went on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dendro_base::units::{MIB, PAGE_SIZE};
use dendro_device::AlignedBuf;
use dendro_format::{Head, PartialHeader, SegmentNo};

use super::reader::SegmentReader;
use super::salvage::Later;

/// Between two checkpoints so much is written, about, by all heads.
const WRITTEN_BETWEEN_CHECKPOINTS_BYTES: u64 = 512 * MIB;

/// Where the log does not go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    /// The number of the partial segment that is not there.
    pub(super) seq: u64,
    /// Where it would be.
    pub(super) segment: SegmentNo,
    pub(super) offset_bytes: u64,
    /// Or at the start of this.
    pub(super) next_segment: SegmentNo,
}

/// Which segments the log can have gone on in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Candidates<'a> {
    /// Those that were clean at the checkpoint, the likeliest first.
    Clean(&'a [SegmentNo]),
    /// Any: it is not known that the checkpoint is the newest.
    All,
}

/// The highest number of a partial segment of the main log, wherever it lies.
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

/// What was found of the main log behind that.
pub(super) struct Beyond {
    /// The log was durable up to this number.
    pub(super) durable_seq: u64,
    /// The header of the last.
    pub(super) last: PartialHeader,
    /// All of it, by number, if that was asked for.
    pub(super) later: BTreeMap<u64, Later>,
}

impl Beyond {
    /// Looks for it in the segments that the log can have gone on in.
    pub(super) fn find(
        reader: &mut SegmentReader<'_>,
        end: &LogEnd,
        candidates: Candidates<'_>,
        reused: impl Iterator<Item = SegmentNo>,
        keeps_records: bool,
    ) -> Option<Self> {
        let mut search = Search {
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

struct Search {
    end: LogEnd,
    keeps_records: bool,
    found: Option<Beyond>,
    waiting: VecDeque<SegmentNo>,
    seen: BTreeSet<SegmentNo>,
}

impl Search {
    /// Whether the place where the log ends has a header that looks like the one that should be there.
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

    /// Looks through the segments that wait for it, and those that what is found there names next.
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
