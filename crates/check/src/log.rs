//! Walking the log: the partial segments of one segment, and those behind a checkpoint.

use std::collections::BTreeSet;
use std::fmt;

use dendro_base::units::PAGE_SIZE;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::record::Records;
use dendro_format::{
    Addr, Checkpoint, Head, Malformed, PartialHeader, Record, SegmentNo, checksum,
};
use serde::Serialize;

use crate::{Volume, info};

/// A partial segment whose header and records are sound.
#[derive(Clone, Debug)]
pub struct Partial {
    /// Its header.
    pub header: PartialHeader,
    /// The checksum over header and records: the link to the next.
    pub crc32c: u32,
    records: Vec<u8>,
}

/// A record of a partial segment.
#[derive(Clone, Copy, Debug)]
pub struct PartialRecord<'a> {
    /// Where it starts, from the start of the records.
    pub offset_bytes: u32,
    /// Whether its recovery unit ends in this partial segment; else in a later one.
    pub is_complete: bool,
    /// What it says.
    pub record: Record<'a>,
}

impl Partial {
    /// Its records. The first that cannot be read is the last.
    pub fn records(&self) -> impl Iterator<Item = Result<PartialRecord<'_>, Malformed>> {
        let mut walk = Records::new(&self.records);
        std::iter::from_fn(move || {
            let offset_bytes = (self.records.len() - walk.rest().len()) as u32;
            let record = walk.next()?;
            let end = (self.records.len() - walk.rest().len()) as u32;
            let is_complete = end <= self.header.complete_len_bytes;
            if record.is_err() {
                walk = Records::new(&[]);
            }
            Some(record.map(|record| PartialRecord { offset_bytes, is_complete, record }))
        })
    }
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        info::PartialInfo::from(self).fmt(f)
    }
}

/// Why the log does not go on somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Break {
    /// There is no room for another partial segment.
    SegmentEnd,
    /// It is no segment of the log.
    NoSegment,
    /// The device failed to read.
    Unreadable {
        /// What it said.
        error: String,
    },
    /// There is no header, or it contradicts itself.
    NoHeader {
        /// What is wrong with it.
        problem: String,
    },
    /// The header is another volume's.
    OtherVolume,
    /// The header is for another place, or its length leaves the segment.
    Misplaced,
    /// The checksum over header and records is wrong: it was torn or damaged.
    Checksum,
    /// It is another head's.
    OtherHead,
    /// It is another one than should follow: left from an earlier use of the segment.
    OtherSequence {
        /// Its number.
        found: u64,
        /// The number that should follow.
        expected: u64,
    },
    /// It has the right number but follows another one.
    Chain,
    /// A record cannot be read, though the checksum is right.
    Record {
        /// What is wrong with it.
        problem: String,
    },
    /// A block that its records name is not what they say.
    Payload {
        /// Where the block lies, in bytes from the start of the device.
        offset: u64,
        /// How long it is.
        len_bytes: u32,
        /// What is wrong with it.
        problem: String,
    },
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SegmentEnd => f.write_str("the segment ends"),
            Self::NoSegment => f.write_str("there is no such segment of the log"),
            Self::Unreadable { error } => write!(f, "it cannot be read: {error}"),
            Self::NoHeader { problem } => write!(f, "no partial segment: {problem}"),
            Self::OtherVolume => f.write_str("a partial segment of another volume"),
            Self::Misplaced => f.write_str("a partial segment that belongs elsewhere"),
            Self::Checksum => f.write_str("a torn or damaged partial segment"),
            Self::OtherHead => f.write_str("a partial segment of another head"),
            Self::OtherSequence { found, expected } => {
                write!(f, "partial segment {found}, not {expected}")
            }
            Self::Chain => f.write_str("a partial segment that follows another one"),
            Self::Record { problem } => write!(f, "a partial segment with a bad record: {problem}"),
            Self::Payload { offset, len_bytes, problem } => {
                write!(
                    f,
                    "a partial segment whose block of {len_bytes} bytes at byte {offset} is bad: {problem}"
                )
            }
        }
    }
}

/// What a partial segment must continue.
#[derive(Clone, Copy, Debug)]
struct Link {
    head: Head,
    seq: u64,
    prev_crc32c: u32,
}

impl Link {
    const fn behind(partial: &Partial) -> Self {
        Self {
            head: partial.header.head,
            seq: partial.header.seq.wrapping_add(1),
            prev_crc32c: partial.crc32c,
        }
    }

    fn check(&self, partial: &Partial) -> Result<(), Break> {
        let header = &partial.header;
        if header.head != self.head {
            return Err(Break::OtherHead);
        }
        if header.seq != self.seq {
            return Err(Break::OtherSequence { found: header.seq, expected: self.seq });
        }
        if header.prev_crc32c != self.prev_crc32c {
            return Err(Break::Chain);
        }
        Ok(())
    }
}

/// Reads the partial segment at a place and checks all but its payload.
fn read_partial(volume: &Volume<'_>, segment: SegmentNo, offset: u32) -> Result<Partial, Break> {
    let layout = volume.layout();
    if !layout.is_log_segment(segment) {
        return Err(Break::NoSegment);
    }
    let room = layout.segment_size_bytes().saturating_sub(offset.into());
    if room < PAGE_SIZE as u64 || !(offset as usize).is_multiple_of(PAGE_SIZE) {
        return Err(Break::SegmentEnd);
    }
    let read = |offset, buf: &mut [u8]| {
        let unreadable =
            |error: dendro_device::Error| Break::Unreadable { error: error.to_string() };
        volume.read_segment(segment, offset, buf).map_err(unreadable)
    };
    let mut header_bytes = [0; HEADER_LEN_BYTES];
    read(offset, &mut header_bytes)?;
    let (header, crc32c) = PartialHeader::decode(&header_bytes)
        .map_err(|malformed| Break::NoHeader { problem: malformed.problem.into() })?;
    if header.uuid != volume.superblock().uuid {
        return Err(Break::OtherVolume);
    }
    if header.segment != segment
        || header.offset_bytes != offset
        || u64::from(header.len_bytes) > room
    {
        return Err(Break::Misplaced);
    }
    let mut records = vec![0; header.records_len_bytes as usize];
    read(offset + header.records_offset_bytes, &mut records)?;
    if !PartialHeader::verify(&header_bytes, &records) {
        return Err(Break::Checksum);
    }
    Ok(Partial { header, crc32c, records })
}

/// The partial segments of one segment, from its start on; what an earlier use of the segment left
/// behind the last of them is not shown.
pub struct Partials<'v> {
    volume: &'v Volume<'v>,
    segment: SegmentNo,
    offset: u32,
    link: Option<Link>,
    /// Of the one before.
    commit_seq: u64,
    end: Option<Break>,
}

impl<'v> Partials<'v> {
    pub(crate) const fn new(volume: &'v Volume<'v>, segment: SegmentNo) -> Self {
        Self { volume, segment, offset: 0, link: None, commit_seq: 0, end: None }
    }

    /// Why there are no more; `None` while there may be.
    #[must_use]
    pub const fn end(&self) -> Option<&Break> {
        self.end.as_ref()
    }

    /// Where the next one would start, in bytes from the segment's start.
    #[must_use]
    pub const fn offset_bytes(&self) -> u32 {
        self.offset
    }

    /// Heads other than the main log count anew each time the volume is opened, and may go on in a
    /// segment that they began before.
    fn begins_anew(&self, partial: &Partial) -> Option<()> {
        let header = &partial.header;
        let is_first = header.seq == 0 && header.prev_crc32c == 0;
        (is_first && header.head != Head::Main && header.commit_seq >= self.commit_seq)
            .then_some(())
    }

    fn read(&self) -> Result<Partial, Break> {
        let partial = read_partial(self.volume, self.segment, self.offset)?;
        if let Some(link) = self.link {
            link.check(&partial).or_else(|reason| self.begins_anew(&partial).ok_or(reason))?;
        }
        Ok(partial)
    }
}

impl Iterator for Partials<'_> {
    type Item = Partial;

    fn next(&mut self) -> Option<Partial> {
        if self.end.is_some() {
            return None;
        }
        match self.read() {
            Ok(partial) => {
                self.offset += partial.header.len_bytes;
                self.link = Some(Link::behind(&partial));
                self.commit_seq = partial.header.commit_seq;
                Some(partial)
            }
            Err(reason) => {
                self.end = Some(reason);
                None
            }
        }
    }
}

/// Where and why the main log ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEnd {
    /// The segment in which it would go on.
    pub segment: u32,
    /// Where in it, in bytes.
    pub offset_bytes: u32,
    /// What is there instead.
    pub here: Break,
    /// The start of the next segment, where it would go on otherwise.
    pub next: Option<NextSegment>,
}

/// The start of a segment at which the log does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextSegment {
    /// The segment.
    pub segment: u32,
    /// What is there instead.
    pub there: Break,
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ends in segment {} at {}: {}", self.segment, self.offset_bytes, self.here)?;
        if let Some(next) = &self.next {
            write!(f, "; at the start of segment {}: {}", next.segment, next.there)?;
        }
        Ok(())
    }
}

/// The partial segments of the main log behind a checkpoint. Headers and records are checked,
/// payload is not.
pub struct Log<'v> {
    volume: &'v Volume<'v>,
    segment: SegmentNo,
    offset: u32,
    next_segment: SegmentNo,
    link: Link,
    end: Option<LogEnd>,
}

impl<'v> Log<'v> {
    pub(crate) const fn new(volume: &'v Volume<'v>, checkpoint: &Checkpoint) -> Self {
        Self {
            volume,
            segment: checkpoint.log.segment,
            offset: checkpoint.log.offset_bytes,
            next_segment: checkpoint.next_segment,
            link: Link {
                head: Head::Main,
                seq: checkpoint.log_seq,
                prev_crc32c: checkpoint.log_prev_crc32c,
            },
            end: None,
        }
    }

    /// Where and why it ends; `None` while it may go on.
    #[must_use]
    pub const fn end(&self) -> Option<&LogEnd> {
        self.end.as_ref()
    }

    fn read(&self, segment: SegmentNo, offset: u32) -> Result<Partial, Break> {
        let partial = read_partial(self.volume, segment, offset)?;
        self.link.check(&partial)?;
        // A number never comes again, nor does one lie behind the highest: no log is endless.
        partial.header.seq.checked_add(1).ok_or(Break::Misplaced)?;
        Ok(partial)
    }

    fn stop(&mut self, here: Break, there: Break) {
        self.end = Some(LogEnd {
            segment: self.segment.0,
            offset_bytes: self.offset,
            here,
            next: Some(NextSegment { segment: self.next_segment.0, there }),
        });
    }
}

impl Iterator for Log<'_> {
    type Item = Partial;

    fn next(&mut self) -> Option<Partial> {
        if self.end.is_some() {
            return None;
        }
        let found = self
            .read(self.segment, self.offset)
            .or_else(|here| self.read(self.next_segment, 0).map_err(|there| (here, there)));
        match found {
            Ok(partial) => {
                let header = &partial.header;
                self.segment = header.segment;
                self.offset = header.offset_bytes + header.len_bytes;
                self.next_segment = header.next_segment;
                self.link = Link::behind(&partial);
                Some(partial)
            }
            Err((here, there)) => {
                self.stop(here, there);
                None
            }
        }
    }
}

/// What recovery would find behind a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogSummary {
    /// Partial segments whose headers hold together.
    pub partial_count: u64,
    /// Those of them that are rolled forward.
    pub replayed_count: u64,
    /// Their bytes on the device.
    pub replayed_bytes: u64,
    /// Their records.
    pub record_count: u64,
    /// Bytes of records at the end that belong to a recovery unit whose end is missing.
    pub dropped_record_bytes: u64,
    /// The highest number of a partial segment known to be durable.
    pub durable_seq: u64,
    /// The last recovery unit that is there as a whole.
    pub commit_seq: u64,
    /// Segments that may have been filled anew since the checkpoint: blocks of before are gone.
    pub reused_segments: BTreeSet<u32>,
    /// A durable partial segment is damaged: the medium failed, and what was promised is lost.
    pub lost: Option<Break>,
    /// Where and why the log ends.
    pub end: LogEnd,
}

impl LogSummary {
    /// Whether the log tells that the segment was empty, and may have been filled anew since.
    pub(crate) fn may_have_reused(&self, segment: SegmentNo) -> bool {
        self.reused_segments.contains(&segment.0)
    }
}

impl fmt::Display for LogSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replayed_count, replayed_bytes, record_count, end, .. } = self;
        writeln!(
            f,
            "{replayed_count} partial segments to roll forward, {record_count} records, \
             {replayed_bytes} bytes"
        )?;
        if self.dropped_record_bytes > 0 {
            writeln!(f, "an unfinished unit of {} bytes of records", self.dropped_record_bytes)?;
        }
        if let Some(lost) = &self.lost {
            writeln!(f, "what was durable is lost: {lost}")?;
        }
        write!(f, "the log {end}")
    }
}

pub(crate) fn summarize(volume: &Volume<'_>, checkpoint: &Checkpoint) -> LogSummary {
    let mut log = Log::new(volume, checkpoint);
    let mut partial_count = 0;
    let mut durable_seq = checkpoint.log_seq.saturating_sub(1);
    let mut reused_segments = BTreeSet::new();
    for partial in &mut log {
        partial_count += 1;
        durable_seq = durable_seq.max(partial.header.durable_seq);
        reused_segments.extend(partial.records().flatten().filter_map(
            |record| match record.record {
                Record::Reuse { segment } => Some(segment.0),
                _ => None,
            },
        ));
    }
    let end = log.end.unwrap_or_else(|| unreachable!("the walk has ended"));
    let mut summary = LogSummary {
        partial_count,
        replayed_count: 0,
        replayed_bytes: 0,
        record_count: 0,
        dropped_record_bytes: 0,
        durable_seq,
        commit_seq: checkpoint.commit_seq,
        reused_segments,
        lost: None,
        end,
    };
    let mut log = Log::new(volume, checkpoint);
    loop {
        let Some(partial) = log.next() else { return summary };
        let is_durable = partial.header.seq <= durable_seq;
        let bad = count_records(&mut summary, &partial)
            .and_then(|()| {
                verify_payload(volume, &partial, &|addr| {
                    let segment = volume.layout().segment_of(addr);
                    is_durable && summary.may_have_reused(segment)
                })
            })
            .err();
        if let Some(reason) = bad {
            if is_durable {
                // It was flushed: it is rolled forward, and reading the block will tell.
                summary.lost.get_or_insert(reason);
            } else {
                summary.end = LogEnd {
                    segment: partial.header.segment.0,
                    offset_bytes: partial.header.offset_bytes,
                    here: reason,
                    next: None,
                };
                return summary;
            }
        }
        summary.replayed_count += 1;
        summary.replayed_bytes += u64::from(partial.header.len_bytes);
        summary.commit_seq = partial.header.commit_seq;
        let open = partial.header.records_len_bytes - partial.header.complete_len_bytes;
        if partial.header.complete_len_bytes > 0 {
            summary.dropped_record_bytes = 0;
        }
        summary.dropped_record_bytes += u64::from(open);
    }
}

fn count_records(summary: &mut LogSummary, partial: &Partial) -> Result<(), Break> {
    let mut count = 0;
    for record in partial.records() {
        record.map_err(|malformed| Break::Record { problem: malformed.problem.into() })?;
        count += 1;
    }
    summary.record_count += count;
    Ok(())
}

/// Checks each block that the records name, but for those that may be gone.
fn verify_payload(
    volume: &Volume<'_>,
    partial: &Partial,
    may_be_gone: &dyn Fn(Addr) -> bool,
) -> Result<(), Break> {
    for record in partial.records().flatten() {
        match record.record {
            Record::WriteRun { addr, crcs, .. } if !may_be_gone(addr) => {
                for (index, crc32c) in crcs.iter().enumerate() {
                    let addr = addr.plus_bytes((index * PAGE_SIZE) as u64);
                    verify_block(volume, addr, PAGE_SIZE as u32, crc32c.get())?;
                }
            }
            Record::WriteBlock { block, .. } if !may_be_gone(block.addr) => {
                verify_block(volume, block.addr, block.len_bytes.into(), block.crc32c)?;
            }
            _ => (),
        }
    }
    Ok(())
}

fn verify_block(
    volume: &Volume<'_>,
    addr: Addr,
    len_bytes: u32,
    expected: u32,
) -> Result<(), Break> {
    let bad = |problem| Break::Payload { offset: addr.bytes(), len_bytes, problem };
    let bytes =
        volume.read("block", addr, len_bytes.into()).map_err(|error| bad(error.to_string()))?;
    let found = checksum(&bytes[..len_bytes as usize]);
    if found != expected {
        return Err(bad(format!("its checksum is {found:08x}, not {expected:08x}")));
    }
    Ok(())
}
