//! What lies behind the place where the main log breaks off.
//!
//! A crash may leave partial segments behind one that was never written. But each states up to
//! which number the log was durable when it was written: if the missing one is among these, it was
//! there, and is damaged. The log may go on behind that place, in the segment that the last header
//! names, and in segments that were clean at the checkpoint, which are filled from the lowest on.

use std::collections::{BTreeSet, VecDeque};

use dendro_base::units::{GIB, PAGE_SIZE};
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::{Checkpoint, Head, PartialHeader, SegmentNo};

use super::log::LogEnd;
use super::partials::read_partial;
use super::volume::Volume;

/// About the most that is written between two checkpoints, twice.
const MAX_WRITTEN_BYTES: u64 = GIB;

/// A search for the log behind the place where the partial segment with number `seq` is missing.
struct Search<'v> {
    volume: &'v Volume<'v>,
    seq: u64,
    /// Up to which number the log was durable, as those say that were found.
    durable_seq: Option<u64>,
    /// Where they lie.
    places: BTreeSet<(SegmentNo, u32)>,
    waiting: VecDeque<SegmentNo>,
    seen: BTreeSet<SegmentNo>,
}

/// What was found behind the end of the log.
pub(super) struct Beyond {
    /// Up to which number the log was durable, as the partial segments say that lie there; `None`
    /// if there are none.
    pub(super) durable_seq: Option<u64>,
    /// Where these lie.
    pub(super) places: BTreeSet<(SegmentNo, u32)>,
}

/// Looks for the log behind its end.
pub(super) fn find(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    end: &LogEnd,
    seq: u64,
    reused: &BTreeSet<u32>,
) -> Beyond {
    let next = end.next.as_ref().map(|next| SegmentNo(next.segment));
    let mut search = Search {
        volume,
        seq,
        durable_seq: None,
        places: BTreeSet::new(),
        waiting: next.into_iter().collect(),
        seen: BTreeSet::new(),
    };
    let is_damaged = search.has_header(SegmentNo(end.segment), end.offset_bytes)
        || next.is_some_and(|next| search.has_header(next, 0));
    search.look_through(SegmentNo(end.segment), end.offset_bytes);
    search.follow();
    let likely = 64 + MAX_WRITTEN_BYTES / volume.layout().segment_size_bytes();
    // Of a map that cannot be read it is not known which segments were clean.
    let usage = volume.usage(checkpoint).ok();
    let was_clean = |segment: &SegmentNo| {
        let row = usage.as_ref().and_then(|usage| usage.get(*segment));
        row.is_none_or(|row| row.usage.live_bytes == 0)
    };
    let layout = volume.layout();
    // A superblock may say that there are more segments than the device has room for.
    let end = volume.device().len_bytes();
    let clean = layout.log_segments().take_while(|of| layout.segment_offset(*of) < end);
    let clean = clean.filter(was_clean);
    let candidates = reused.iter().map(|segment| SegmentNo(*segment)).chain(clean);
    for (nth, segment) in (0_u64..).zip(candidates) {
        if nth >= likely && search.durable_seq.is_none() && !is_damaged {
            break;
        }
        if search.header(segment, 0).is_some_and(|header| header.seq >= seq) {
            search.waiting.push_back(segment);
            search.follow();
        }
    }
    Beyond { durable_seq: search.durable_seq, places: search.places }
}

impl Search<'_> {
    /// The header at a place, if it is one of this volume's main log. Its records are not looked
    /// at.
    fn header(&self, segment: SegmentNo, offset_bytes: u32) -> Option<PartialHeader> {
        let layout = self.volume.layout();
        let room = layout.segment_size_bytes().checked_sub(offset_bytes.into())?;
        if !layout.is_log_segment(segment) || room < HEADER_LEN_BYTES as u64 {
            return None;
        }
        let mut bytes = [0; HEADER_LEN_BYTES];
        self.volume.read_segment(segment, offset_bytes, &mut bytes).ok()?;
        let (header, _) = PartialHeader::decode(&bytes).ok()?;
        let is_here = header.segment == segment && header.offset_bytes == offset_bytes;
        let is_ours = header.uuid == self.volume.superblock().uuid && header.head == Head::Main;
        (is_here && is_ours).then_some(header)
    }

    /// Whether the header of the missing one is at this place, with other records.
    fn has_header(&self, segment: SegmentNo, offset_bytes: u32) -> bool {
        self.header(segment, offset_bytes).is_some_and(|header| header.seq == self.seq)
    }

    /// Looks through the segments that wait, and those that the headers there name.
    fn follow(&mut self) {
        while let Some(segment) = self.waiting.pop_front() {
            if self.seen.insert(segment) {
                self.look_through(segment, 0);
            }
        }
    }

    fn look_through(&mut self, segment: SegmentNo, mut offset_bytes: u32) {
        while u64::from(offset_bytes) < self.volume.layout().segment_size_bytes() {
            let Ok(partial) = read_partial(self.volume, segment, offset_bytes) else {
                offset_bytes = offset_bytes.saturating_add(PAGE_SIZE as u32);
                continue;
            };
            let header = &partial.header;
            if header.head == Head::Main && header.seq >= self.seq {
                self.durable_seq = self.durable_seq.max(Some(header.durable_seq));
                self.places.insert((segment, offset_bytes));
                self.waiting.push_back(header.next_segment);
            }
            offset_bytes = offset_bytes.saturating_add(header.len_bytes.max(PAGE_SIZE as u32));
        }
    }
}
