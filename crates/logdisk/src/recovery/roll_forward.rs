//! The log behind a checkpoint, followed one partial segment after the other.

use std::collections::{BTreeSet, VecDeque};

use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, Device};
use dendro_disk::{Error, Result};
use dendro_format::record::Records;
use dendro_format::{
    Checkpoint, Head, Layout, PageRef, PartialHeader, Record, SegmentNo, checksum, checksum_append,
};

use super::beyond::{Beyond, Candidates, LogEnd};
use super::reader::SegmentReader;
use super::start::LogPosition;
use crate::log::partial::MIN_CAPACITY_BYTES;

/// A partial segment of the chain.
pub(super) struct Scanned {
    pub(super) header: PartialHeader,
    pub(super) records: Vec<u8>,
    crc32c: u32,
    payload: Payload,
}

#[cfg(test)]
impl Scanned {
    /// A partial segment behind `before` that holds one unit with these records.
    pub(super) fn behind(before: &Self, records: Vec<u8>) -> Self {
        let mut header = before.header;
        (header.seq, header.commit_seq) = (header.seq + 1, header.commit_seq + 1);
        header.complete_len_bytes = records.len() as u32;
        Self { header, records, crc32c: 0, payload: Payload::Sound }
    }
}

/// Whether the blocks in a partial segment that its own records name are sound.
enum Payload {
    Sound,
    Wrong,
    /// The device fails to read some of them.
    Unreadable(String),
}

/// The log behind a checkpoint.
pub(super) struct Chain {
    pub(super) partials: Vec<Scanned>,
    /// The segments of other streams that hold blocks which the records name.
    pub(super) payload_segments: BTreeSet<SegmentNo>,
    /// The first number behind all partial segments that were found, whether they were applied or
    /// not.
    pub(super) next_seq: u64,
    pub(super) prev_crc32c: u32,
    /// The place where the chain of headers ends.
    pub(super) end: LogEnd,
    /// What was found of the log behind that place.
    pub(super) beyond: Option<Beyond>,
    /// Why the log cannot be read at some place, so that it is unknown whether it continues.
    pub(super) unreadable: Option<String>,
    start: LogPosition,
}

impl Chain {
    /// Whether the log surely leads to a place. A checkpoint that was taken after a crash has a
    /// number that was skipped to, and the checksum of the last partial segment that was seen. That
    /// one may not have been applied, so such a place does not count as reached.
    pub(super) fn reaches(&self, position: LogPosition) -> bool {
        let LogPosition { seq, prev_crc32c } = position;
        let is_before = |partial: &Scanned| {
            partial.crc32c == prev_crc32c && partial.header.seq.checked_add(1) == Some(seq)
        };
        self.partials.iter().any(is_before)
            || (self.start.prev_crc32c == prev_crc32c
                && (self.start.seq == seq || self.partials.is_empty()))
    }

    /// Segments that the log releases for reuse and has not filled since. Once the chain is durable
    /// they may become clean, as they could before the crash ([`crate::space::reuse`], reuse 2).
    pub(super) fn left_to_fill(&self, layout: Layout) -> BTreeSet<SegmentNo> {
        let mut left = BTreeSet::new();
        for partial in &self.partials {
            left.remove(&partial.header.segment);
            for record in Records::new(&partial.records).flatten() {
                match record {
                    Record::Reuse { segment } => drop(left.insert(segment)),
                    Record::WriteRun { addr, .. } => drop(left.remove(&layout.segment_of(addr))),
                    Record::WriteBlock { block, .. } => {
                        left.remove(&layout.segment_of(block.addr));
                    }
                    _ => {}
                }
            }
            left.remove(&partial.header.next_segment);
        }
        left
    }

    /// Every segment that the chain starts from, lies in, or names blocks in. None of them may be
    /// filled before a new checkpoint is durable (recovery 2), or a crash until then would find a
    /// shorter log.
    pub(super) fn segments(&self, checkpoint: &Checkpoint) -> BTreeSet<SegmentNo> {
        let mut segments = self.payload_segments.clone();
        segments.insert(checkpoint.log.segment);
        segments.extend(self.partials.iter().map(|partial| partial.header.segment));
        segments
    }

    /// Whether the log has filled the segment anew that held the map's end at the checkpoint. That
    /// can be if the checkpoint is not the newest one (recovery 2).
    pub(super) fn fills_map_segment(&self, checkpoint: &Checkpoint) -> bool {
        self.segments(checkpoint).contains(&checkpoint.map.segment)
    }
}

/// How a log is followed.
pub(super) struct Rules<'a> {
    /// A place that is known to have been durable from elsewhere than the log.
    pub(super) durable_position: Option<LogPosition>,
    /// Where the log is looked for behind its end; `None` means nowhere.
    pub(super) beyond: Option<Candidates<'a>>,
    /// Whether the records that lie there are kept, so that they can be applied.
    pub(super) keeps_later: bool,
    pub(super) skip_payload_checks: bool,
}

/// The state of following the chain.
pub(super) struct Scan<'a> {
    reader: SegmentReader<'a>,
    start: LogPosition,
    segment: SegmentNo,
    offset_bytes: u64,
    next_segment: SegmentNo,
    seq: u64,
    prev_crc32c: u32,
    unreadable: Option<String>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(reader: SegmentReader<'a>, checkpoint: &Checkpoint) -> Self {
        Self {
            reader,
            start: LogPosition::of(checkpoint),
            segment: checkpoint.log.segment,
            offset_bytes: u64::from(checkpoint.log.offset_bytes),
            next_segment: checkpoint.next_segment,
            seq: checkpoint.log_seq,
            prev_crc32c: checkpoint.log_prev_crc32c,
            unreadable: None,
        }
    }

    pub(super) fn run(mut self, rules: &Rules<'_>) -> Result<Chain> {
        let mut partials: Vec<Scanned> = Vec::new();
        while let Some(partial) = self.next() {
            partials.push(partial);
        }
        let end = LogEnd {
            seq: self.seq,
            segment: self.segment,
            offset_bytes: self.offset_bytes,
            next_segment: self.next_segment,
        };
        let beyond = rules.beyond.and_then(|candidates| {
            let reused = reused_segments(&partials);
            Beyond::find(&mut self.reader, &end, candidates, reused, rules.keeps_later)
        });
        let mut chain = Chain {
            partials,
            payload_segments: BTreeSet::new(),
            next_seq: beyond
                .as_ref()
                .map_or(self.seq, |beyond| self.seq.max(beyond.last.seq.saturating_add(1))),
            prev_crc32c: self.prev_crc32c,
            end,
            beyond,
            unreadable: self.unreadable.take(),
            start: self.start,
        };
        if !rules.skip_payload_checks {
            let durable = chain.durable_seq(rules.durable_position);
            self.end_at_wrong_payload(&mut chain, durable)?;
        }
        let layout = self.layout();
        chain.payload_segments = (chain.partials.iter())
            .flat_map(|partial| self.others(partial))
            .map(|block| layout.segment_of(block.addr))
            .filter(|segment| layout.is_log_segment(*segment))
            .collect();
        Ok(chain)
    }

    /// Ends the chain at the first partial segment that is not known to have been durable and has
    /// wrong payload, or names blocks behind the volume's end: the device was longer once.
    fn end_at_wrong_payload(&self, chain: &mut Chain, durable_seq: u64) -> Result<()> {
        let mut windows = Windows::new(self.reader.device());
        for at in 0..chain.partials.len() {
            let partial = &chain.partials[at];
            let is_held = |block: PageRef| {
                self.layout().holds(block.addr, u64::from(block.footprint_bytes()))
            };
            if partial.header.seq <= durable_seq {
                let missing = self.others(partial).find(|block| !is_held(*block));
                if let Some(block) = missing {
                    let (seq, at_byte) = (partial.header.seq, block.addr.bytes());
                    chain.unreadable.get_or_insert_with(|| {
                        format!("partial segment {seq} names a block at byte {at_byte}")
                    });
                    chain.partials.truncate(at);
                    return Ok(());
                }
                continue;
            }
            let is_sound = match &partial.payload {
                Payload::Sound => self.others_are_sound(partial, &mut windows)?,
                Payload::Wrong => false,
                Payload::Unreadable(why) => {
                    chain.unreadable.get_or_insert_with(|| why.clone());
                    false
                }
            };
            if !is_sound {
                chain.partials.truncate(at);
                return Ok(());
            }
        }
        Ok(())
    }

    const fn layout(&self) -> Layout {
        self.reader.layout()
    }

    /// The blocks that the records name outside their own partial segment, where other streams put
    /// them.
    fn others<'b>(&self, partial: &'b Scanned) -> impl Iterator<Item = PageRef> + use<'b> {
        let base = self.layout().segment_offset(partial.header.segment)
            + u64::from(partial.header.offset_bytes);
        let own = base..base + u64::from(partial.header.len_bytes);
        named_blocks(&partial.records)
            .flatten()
            .filter(move |block| !own.contains(&block.addr.bytes()))
    }

    /// Whether all those blocks have the checksums that the records state. A block that cannot be
    /// read now may still be there, so a read error is returned as an error and does not end the
    /// log.
    fn others_are_sound(&self, partial: &Scanned, windows: &mut Windows<'_>) -> Result<bool> {
        for block in self.others(partial) {
            let is_sound = self.layout().holds(block.addr, u64::from(block.footprint_bytes()))
                && windows.checksum_of(&block)? == block.crc32c;
            if !is_sound {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next(&mut self) -> Option<Scanned> {
        let size = self.layout().segment_size_bytes();
        let has_room = size - self.offset_bytes >= MIN_CAPACITY_BYTES as u64;
        if has_room && let Some(found) = self.look(self.segment, self.offset_bytes) {
            return Some(found);
        }
        if !self.layout().is_log_segment(self.next_segment) {
            return None;
        }
        let unreadable = self.unreadable.take();
        let found = self.look(self.next_segment, 0);
        if found.is_none() && has_room {
            // The log fills a segment before it continues in the next one.
            self.unreadable = unreadable;
        }
        found
    }

    /// Returns the continuation of the chain at this place, if it is there.
    fn look(&mut self, segment: SegmentNo, offset_bytes: u64) -> Option<Scanned> {
        self.reader.load(segment);
        let at = offset_bytes as usize;
        let Some((header, crc32c, records)) = self.reader.partial_at(segment, offset_bytes) else {
            let upto = match PartialHeader::decode(self.reader.rest(offset_bytes)) {
                // If the header has the right number, only the records can be missing.
                Ok((header, _)) if header.seq == self.seq => at + header.len_bytes as usize,
                _ => at + PAGE_SIZE,
            };
            if let Some(error) = self.reader.error_in(at..upto) {
                let place = format!("byte {offset_bytes} of segment {segment}");
                self.unreadable.get_or_insert(format!("{place} cannot be read: {error}"));
            }
            return None;
        };
        let continues = header.head == Head::Main
            && header.seq == self.seq
            && header.prev_crc32c == self.prev_crc32c;
        if !continues {
            return None;
        }
        let len = header.len_bytes as usize;
        let base = self.layout().segment_offset(segment) + offset_bytes;
        let payload = match self.reader.error_in(at..at + len) {
            _ if payload_is_sound(records, &self.reader.rest(offset_bytes)[..len], base) => {
                Payload::Sound
            }
            None => Payload::Wrong,
            Some(error) => {
                let place = format!("byte {offset_bytes} of segment {segment}");
                Payload::Unreadable(format!("the partial segment at {place}: {error}"))
            }
        };
        let scanned = Scanned { header, records: records.to_vec(), crc32c, payload };
        self.segment = segment;
        self.offset_bytes = offset_bytes + u64::from(header.len_bytes);
        self.next_segment = header.next_segment;
        self.seq += 1;
        self.prev_crc32c = crc32c;
        self.unreadable = None;
        Some(scanned)
    }
}

impl Chain {
    /// The number up to which the log is known to have been durable (recovery 1).
    fn durable_seq(&self, position: Option<LogPosition>) -> u64 {
        let stated = self.partials.iter().map(|partial| partial.header.durable_seq).max();
        let stated_beyond = self.beyond.as_ref().map(|beyond| beyond.durable_seq);
        let position = position.filter(|position| self.reaches(*position));
        let before = position.map(|position| position.seq.saturating_sub(1));
        stated.max(stated_beyond).max(before).unwrap_or(0)
    }
}

/// Segments that the log releases for reuse; it may continue in them.
fn reused_segments(partials: &[Scanned]) -> impl Iterator<Item = SegmentNo> {
    let records = partials.iter().flat_map(|partial| Records::new(&partial.records).flatten());
    records.filter_map(|record| match record {
        Record::Reuse { segment } => Some(segment),
        _ => None,
    })
}

/// Parts of the device that are kept while blocks in them are verified. Each payload stream fills
/// its segments from front to back, and the records name blocks of several streams in turn.
struct Windows<'a> {
    device: &'a dyn Device,
    loaded: VecDeque<(u64, AlignedBuf)>,
}

impl<'a> Windows<'a> {
    const LEN_BYTES: u64 = 256 << 10;
    /// More windows than there are streams.
    const MAX_COUNT: usize = 32;

    const fn new(device: &'a dyn Device) -> Self {
        Self { device, loaded: VecDeque::new() }
    }

    /// Returns the checksum of a block's present bytes on the device.
    fn checksum_of(&mut self, block: &PageRef) -> Result<u32> {
        let mut crc32c = checksum(&[]);
        let (mut at, end) = (block.addr.bytes(), block.addr.bytes() + u64::from(block.len_bytes));
        while at < end {
            let base = at - at % Self::LEN_BYTES;
            let upto = end.min(base + Self::LEN_BYTES);
            let window = self.window(base)?;
            crc32c = checksum_append(crc32c, &window[(at - base) as usize..(upto - base) as usize]);
            at = upto;
        }
        Ok(crc32c)
    }

    fn window(&mut self, base: u64) -> Result<&AlignedBuf> {
        if let Some(at) = self.loaded.iter().position(|(known, _)| *known == base) {
            return Ok(&self.loaded[at].1);
        }
        let oldest =
            if self.loaded.len() >= Self::MAX_COUNT { self.loaded.pop_front() } else { None };
        let mut buf =
            oldest.map_or_else(|| AlignedBuf::zeroed(Self::LEN_BYTES as usize), |(_, buf)| buf);
        let len = Self::LEN_BYTES.min(self.device.len_bytes().saturating_sub(base)) as usize;
        self.device
            .read_at(base, &mut buf[..len])
            .map_err(|error| Error::Io(format!("rolling the log forward: {error}")))?;
        self.loaded.push_back((base, buf));
        Ok(&self.loaded[self.loaded.len() - 1].1)
    }
}

/// The blocks that records name, each with its checksum; `None` where a record is malformed.
fn named_blocks(records: &[u8]) -> impl Iterator<Item = Option<PageRef>> {
    Records::new(records).flat_map(|record| {
        let (run, single) = match record {
            Ok(Record::WriteRun { addr, crcs, .. }) => (Some((addr, crcs)), None),
            Ok(Record::WriteBlock { block, .. }) => (None, Some(Some(block))),
            Ok(_) => (None, None),
            Err(_) => (None, Some(None)),
        };
        let of_run = run.into_iter().flat_map(|(addr, crcs)| {
            (0_u64..).zip(crcs).map(move |(index, crc)| {
                Some(PageRef {
                    addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                    crc32c: crc.get(),
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                })
            })
        });
        of_run.chain(single)
    })
}

/// Whether every block that the records name in this partial segment has its checksum.
/// [`Scan::others_are_sound`] verifies the blocks of other streams.
fn payload_is_sound(records: &[u8], partial: &[u8], base: u64) -> bool {
    named_blocks(records).all(|block| {
        let Some(block) = block else { return false };
        let start = block.addr.bytes().checked_sub(base).and_then(|at| usize::try_from(at).ok());
        let Some(start) = start.filter(|&start| start < partial.len()) else { return true };
        let stored = partial.get(start..start + usize::from(block.len_bytes));
        stored.is_some_and(|stored| checksum(stored) == block.crc32c)
    })
}
