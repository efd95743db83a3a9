//! Partial segments, and their records with their places.

use std::fmt;

use dendro_format::{PartialHeader, Record};
use serde::Serialize;

use super::record::RecordInfo;
use super::text::{head_name, hex32};
use crate::read::{Partial, PartialRecord};

/// A partial segment's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartialInfo {
    /// The segment.
    pub segment: u32,
    /// Where in it, in bytes.
    pub offset_bytes: u32,
    /// Its length.
    pub len_bytes: u32,
    /// The head that wrote it.
    pub head: &'static str,
    /// Counts the head's partial segments.
    pub seq: u64,
    /// Its checksum.
    pub crc32c: String,
    /// The checksum of the one before.
    pub prev_crc32c: String,
    /// The segment in which the head continues when this one ends.
    pub next_segment: u32,
    /// Where its records lie in it.
    pub records_offset_bytes: u32,
    /// Their length.
    pub records_len_bytes: u32,
    /// How many bytes of them belong to recovery units that end in it.
    pub complete_len_bytes: u32,
    /// The last unit that is complete.
    pub commit_seq: u64,
    /// The last of the head's partial segments known to be durable when it was written.
    pub durable_seq: u64,
    /// When it was written.
    pub time: String,
    /// The epoch of the changes in it.
    pub epoch: u64,
    /// The temperature of what it was filled with, by the policy's classes.
    pub class: u8,
}

impl From<&Partial> for PartialInfo {
    fn from(partial: &Partial) -> Self {
        let header: &PartialHeader = &partial.header;
        Self {
            segment: header.segment.0,
            offset_bytes: header.offset_bytes,
            len_bytes: header.len_bytes,
            head: head_name(header.head),
            seq: header.seq,
            crc32c: hex32(partial.crc32c),
            prev_crc32c: hex32(header.prev_crc32c),
            next_segment: header.next_segment.0,
            records_offset_bytes: header.records_offset_bytes,
            records_len_bytes: header.records_len_bytes,
            complete_len_bytes: header.complete_len_bytes,
            commit_seq: header.commit_seq,
            durable_seq: header.durable_seq,
            time: header.time.rfc3339(),
            epoch: header.epoch,
            class: header.class,
        }
    }
}

impl fmt::Display for PartialInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "partial segment {} {} at segment {}, byte {}: {} bytes, {} of records ({} complete), \
             commit {}, durable {}, epoch {}, checksum {} after {}, next segment {}, class {}, {}",
            self.head,
            self.seq,
            self.segment,
            self.offset_bytes,
            self.len_bytes,
            self.records_len_bytes,
            self.complete_len_bytes,
            self.commit_seq,
            self.durable_seq,
            self.epoch,
            self.crc32c,
            self.prev_crc32c,
            self.next_segment,
            self.class,
            self.time,
        )
    }
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PartialInfo::from(self).fmt(f)
    }
}

/// A record of a partial segment, with its place in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartialRecordInfo {
    /// Where it starts, from the start of the records.
    pub offset_bytes: u32,
    /// Whether its recovery unit ends in this partial segment.
    pub is_complete: bool,
    /// The record.
    #[serde(flatten)]
    pub record: RecordInfo,
}

impl From<PartialRecord<'_>> for PartialRecordInfo {
    fn from(at: PartialRecord<'_>) -> Self {
        let record: Record<'_> = at.record;
        Self {
            offset_bytes: at.offset_bytes,
            is_complete: at.is_complete,
            record: RecordInfo::from(record),
        }
    }
}

impl fmt::Display for PartialRecordInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_complete { ' ' } else { '+' };
        write!(f, "{:>8}{mark} {}", self.offset_bytes, self.record)
    }
}
