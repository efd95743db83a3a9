//! Reading partial segments: one, and those of one segment.

use std::fmt;
use std::sync::Arc;

use dendro_base::units::PAGE_SIZE;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::{Head, PartialHeader, SegmentNo};
use serde::Serialize;

use super::partial::Partial;
use super::volume::Volume;

/// Why the log does not continue at some place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Break {
    /// There is no room for another partial segment.
    SegmentEnd,
    /// It is no segment of the log.
    NoSegment,
    /// The device failed to read.
    Unreadable {
        /// The device's error.
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
    /// The checksum over header and records is wrong: writing was interrupted, or it is damaged.
    Checksum,
    /// It is another head's.
    OtherHead,
    /// It does not have the number that should follow: it was left by an earlier use of the
    /// segment.
    OtherSequence {
        /// Its number.
        found: u64,
        /// The number that should follow.
        expected: u64,
    },
    /// It has the right number but continues another partial segment.
    Chain,
    /// A record cannot be read, though the checksum is right.
    Record {
        /// What is wrong with it.
        problem: String,
    },
    /// A unit of records ends in the middle of one, though the checksum is right.
    Unit,
    /// It is missing, and those behind it say that it was durable.
    Missing {
        /// Its number.
        seq: u64,
        /// The number up to which the log was durable.
        durable_seq: u64,
    },
    /// A block that its records name does not have the checksum that they say, or cannot be read.
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
            Self::Unit => {
                f.write_str("a partial segment whose units end in the middle of a record")
            }
            Self::Missing { seq, durable_seq } => {
                write!(
                    f,
                    "partial segment {seq} is missing, and up to {durable_seq} all were durable"
                )
            }
            Self::Payload { offset, len_bytes, problem } => {
                write!(
                    f,
                    "a partial segment whose block of {len_bytes} bytes at byte {offset} is bad: {problem}"
                )
            }
        }
    }
}

/// What the next partial segment must continue: its head, its number, and the checksum of the one
/// before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) head: Head,
    pub(super) seq: u64,
    pub(super) prev_crc32c: u32,
}

impl Link {
    pub(super) const fn behind(partial: &Partial) -> Self {
        Self {
            head: partial.header.head,
            seq: partial.header.seq.wrapping_add(1),
            prev_crc32c: partial.crc32c,
        }
    }

    pub(super) fn check(&self, partial: &Partial) -> Result<(), Break> {
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

/// Reads the partial segment at a place, and checks everything but its payload.
pub(crate) fn read_partial(
    volume: &Volume<'_>,
    segment: SegmentNo,
    offset: u32,
) -> Result<Partial, Break> {
    if let Some(partial) = volume.kept().and_then(|kept| kept.partial(segment, offset)) {
        return Ok((*partial).clone());
    }
    read_partial_with(volume, segment, offset, |offset, buf| {
        let unreadable =
            |error: dendro_device::Error| Break::Unreadable { error: error.to_string() };
        volume.read_segment(segment, offset, buf).map_err(unreadable)
    })
}

/// As [`read_partial`], where `read` fills a buffer from an offset in the segment.
pub(crate) fn read_partial_with(
    volume: &Volume<'_>,
    segment: SegmentNo,
    offset: u32,
    mut read: impl FnMut(u32, &mut [u8]) -> Result<(), Break>,
) -> Result<Partial, Break> {
    let layout = volume.layout();
    if !layout.is_log_segment(segment) {
        return Err(Break::NoSegment);
    }
    let room = layout.segment_size_bytes().saturating_sub(offset.into());
    if room < PAGE_SIZE as u64 || !(offset as usize).is_multiple_of(PAGE_SIZE) {
        return Err(Break::SegmentEnd);
    }
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

/// The partial segments of one segment, from its start on. Those that an earlier use of the segment
/// has left behind the last of them are not included.
pub struct Partials<'v> {
    volume: &'v Volume<'v>,
    segment: SegmentNo,
    offset: u32,
    link: Option<Link>,
    /// The last commit in the one before.
    commit_seq: u64,
    end: Option<Break>,
}

impl<'v> Partials<'v> {
    const fn new(volume: &'v Volume<'v>, segment: SegmentNo) -> Self {
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

    /// Heads other than the main log number their partial segments from 0 each time the volume is
    /// opened, and may continue in a segment that they had begun before.
    fn restarts(&self, partial: &Partial) -> Option<()> {
        let header = &partial.header;
        let is_first = header.seq == 0 && header.prev_crc32c == 0;
        (is_first && header.head != Head::Main && header.commit_seq >= self.commit_seq)
            .then_some(())
    }

    fn read(&self) -> Result<Partial, Break> {
        let partial = read_partial(self.volume, self.segment, self.offset)?;
        if let Some(link) = self.link {
            link.check(&partial).or_else(|reason| self.restarts(&partial).ok_or(reason))?;
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

impl Volume<'_> {
    /// The partial segment at a place, which stays in memory if the volume keeps what it reads and
    /// there is room for it.
    pub(crate) fn partial_at(
        &self,
        segment: SegmentNo,
        offset: u32,
    ) -> Result<Arc<Partial>, Break> {
        if let Some(partial) = self.kept().and_then(|kept| kept.partial(segment, offset)) {
            return Ok(partial);
        }
        let partial = Arc::new(read_partial(self, segment, offset)?);
        if let Some(kept) = self.kept() {
            kept.keep_partial(&partial);
        }
        Ok(partial)
    }

    /// The partial segments of a segment, from its start on.
    #[must_use]
    pub fn partials(&self, segment: SegmentNo) -> Partials<'_> {
        Partials::new(self, segment)
    }
}
