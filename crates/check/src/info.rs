//! What was read, as plain structures: they print themselves for people and serialise for
//! programs. Numbers are in the units that their names tell; identities and checksums are
//! hexadecimal text.

use std::fmt;

use dendro_base::Timestamp;
use dendro_format::{
    Checkpoint, Entries, Head, Key, PageRef, PartialHeader, Record, Space, Superblock, Value,
};
use serde::Serialize;

use crate::{FoundSuperblock, Node, Partial, PartialRecord, UsageRow, UsageSource};

mod record;

pub use record::RecordInfo;

/// A time as RFC 3339 writes it, in UTC with nanoseconds.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    let (days, secs) = (time.secs().div_euclid(86_400), time.secs().rem_euclid(86_400));
    // The civil calendar repeats every 400 years of 146,097 days; years start in March, so that
    // the leap day is the last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    let nanos = time.subsec_nanos();
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex32(number: u32) -> String {
    format!("{number:08x}")
}

const fn head_name(head: Head) -> &'static str {
    match head {
        Head::Main => "main",
        Head::Map => "map",
        Head::Payload => "payload",
    }
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockInfo {
    /// Its slot, in bytes from the start of the device.
    pub offset: u64,
    /// Counts superblocks.
    pub seq: u64,
    /// The volume's identity.
    pub uuid: String,
    /// The volume's name.
    pub label: String,
    /// Feature flags that older software may ignore.
    pub compatible: u64,
    /// Feature flags that older software may read but not write.
    pub read_only: u64,
    /// Feature flags that older software must refuse.
    pub incompatible: u64,
    /// Bytes in a segment.
    pub segment_size_bytes: u64,
    /// All segments.
    pub segment_count: u32,
    /// Whether the volume was shut down cleanly.
    pub clean: bool,
    /// How new pages are compressed by default; 0: not.
    pub compression: u8,
    /// Where the checkpoint lies, in bytes from the start of the device.
    pub checkpoint_offset: u64,
    /// Its length.
    pub checkpoint_len_bytes: u32,
    /// Its checksum.
    pub checkpoint_crc32c: String,
    /// When the volume was made.
    pub created: String,
    /// When this superblock was written.
    pub written: String,
}

impl From<&FoundSuperblock> for SuperblockInfo {
    fn from(found: &FoundSuperblock) -> Self {
        let FoundSuperblock { offset, superblock } = found;
        let Superblock { layout, .. } = superblock;
        Self {
            offset: *offset,
            seq: superblock.seq,
            uuid: superblock.uuid.to_string(),
            label: superblock.label.clone(),
            compatible: superblock.compatible,
            read_only: superblock.read_only,
            incompatible: superblock.incompatible,
            segment_size_bytes: layout.segment_size_bytes(),
            segment_count: layout.segment_count(),
            clean: superblock.clean,
            compression: superblock.compression,
            checkpoint_offset: superblock.checkpoint_addr.bytes(),
            checkpoint_len_bytes: superblock.checkpoint_len_bytes,
            checkpoint_crc32c: hex32(superblock.checkpoint_crc32c),
            created: rfc3339(superblock.created),
            written: rfc3339(superblock.written),
        }
    }
}

impl fmt::Display for SuperblockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "superblock {} at byte {}", self.seq, self.offset)?;
        writeln!(f, "  uuid        {}", self.uuid)?;
        let plain = |one: char| match one.is_control() {
            true => one.escape_default().to_string(),
            false => one.to_string(),
        };
        writeln!(f, "  label       {}", self.label.chars().map(plain).collect::<String>())?;
        let Self { compatible, read_only, incompatible, .. } = self;
        writeln!(
            f,
            "  features    compatible {compatible:#x}, read-only {read_only:#x}, \
             incompatible {incompatible:#x}"
        )?;
        let (count, size) = (self.segment_count, self.segment_size_bytes);
        writeln!(f, "  segments    {count} of {size} bytes")?;
        writeln!(f, "  state       {}", if self.clean { "clean" } else { "in use" })?;
        writeln!(f, "  compression {}", self.compression)?;
        let (offset, len) = (self.checkpoint_offset, self.checkpoint_len_bytes);
        writeln!(
            f,
            "  checkpoint  byte {offset}, {len} bytes, checksum {}",
            self.checkpoint_crc32c
        )?;
        writeln!(f, "  created     {}", self.created)?;
        write!(f, "  written     {}", self.written)
    }
}

/// A place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PositionInfo {
    /// The segment.
    pub segment: u32,
    /// Bytes from its start.
    pub offset_bytes: u32,
}

impl From<dendro_format::checkpoint::HeadPosition> for PositionInfo {
    fn from(at: dendro_format::checkpoint::HeadPosition) -> Self {
        Self { segment: at.segment.0, offset_bytes: at.offset_bytes }
    }
}

impl fmt::Display for PositionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, byte {}", self.segment, self.offset_bytes)
    }
}

/// Where a node of the map lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePlace {
    /// In bytes from the start of the device.
    pub offset: u64,
    /// Its length.
    pub len_bytes: u32,
    /// Its checksum.
    pub crc32c: String,
}

impl From<dendro_format::NodePtr> for NodePlace {
    fn from(place: dendro_format::NodePtr) -> Self {
        Self { offset: place.addr.bytes(), len_bytes: place.len_bytes, crc32c: hex32(place.crc32c) }
    }
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}, {} bytes, checksum {}", self.offset, self.len_bytes, self.crc32c)
    }
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointInfo {
    /// Counts checkpoints.
    pub seq: u64,
    /// When it was taken.
    pub time: String,
    /// The map's root; none for an empty map.
    pub root: Option<NodePlace>,
    /// Its level.
    pub root_level: u8,
    /// Where the main log goes on.
    pub log: PositionInfo,
    /// The number of the next partial segment there.
    pub log_seq: u64,
    /// The checksum of the one before it.
    pub log_prev_crc32c: String,
    /// Where the log goes on if not there.
    pub next_segment: u32,
    /// Where the map's head stood.
    pub map: PositionInfo,
    /// The next number for a list.
    pub next_list: u64,
    /// The last commit in it.
    pub commit_seq: u64,
    /// The epoch at the time.
    pub epoch: u64,
    /// The log clock: bytes of blocks that clients had written by then.
    pub log_clock: u64,
    /// Live bytes of all segments.
    pub live_bytes: u64,
    /// Usage that differs from what the map says.
    pub usage_overrides: Vec<UsageInfo>,
}

impl From<&Checkpoint> for CheckpointInfo {
    fn from(checkpoint: &Checkpoint) -> Self {
        let rows = checkpoint.usage_overrides.iter().map(|&(segment, usage)| {
            UsageInfo::from(UsageRow { segment, usage, source: UsageSource::Checkpoint })
        });
        Self {
            seq: checkpoint.seq,
            time: rfc3339(checkpoint.time),
            root: checkpoint.root.map(|(place, _)| place.into()),
            root_level: checkpoint.root.map_or(0, |(_, level)| level),
            log: checkpoint.log.into(),
            log_seq: checkpoint.log_seq,
            log_prev_crc32c: hex32(checkpoint.log_prev_crc32c),
            next_segment: checkpoint.next_segment.0,
            map: checkpoint.map.into(),
            next_list: checkpoint.next_list,
            commit_seq: checkpoint.commit_seq,
            epoch: checkpoint.epoch,
            log_clock: checkpoint.log_clock,
            live_bytes: checkpoint.live_bytes,
            usage_overrides: rows.collect(),
        }
    }
}

impl fmt::Display for CheckpointInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checkpoint {} of {}", self.seq, self.time)?;
        match &self.root {
            Some(root) => writeln!(f, "  map         level {}, root at {root}", self.root_level)?,
            None => writeln!(f, "  map         empty")?,
        }
        let (log, seq, prev) = (&self.log, self.log_seq, &self.log_prev_crc32c);
        writeln!(f, "  log         goes on at {log}, or in segment {}", self.next_segment)?;
        writeln!(f, "              with partial segment {seq}, after checksum {prev}")?;
        writeln!(f, "  map head    {}", self.map)?;
        writeln!(f, "  next list   {}", self.next_list)?;
        writeln!(f, "  commit      {}", self.commit_seq)?;
        writeln!(f, "  epoch       {}", self.epoch)?;
        writeln!(f, "  log clock   {} bytes", self.log_clock)?;
        write!(f, "  live        {} bytes", self.live_bytes)?;
        for row in &self.usage_overrides {
            write!(f, "\n  override    {row}")?;
        }
        Ok(())
    }
}

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
    /// Where the head goes on when the segment ends.
    pub next_segment: u32,
    /// Where its records lie in it.
    pub records_offset_bytes: u32,
    /// Their length.
    pub records_len_bytes: u32,
    /// How much of them ends its recovery units.
    pub complete_len_bytes: u32,
    /// The last unit that is complete.
    pub commit_seq: u64,
    /// The last of the head's partial segments known to be durable when it was written.
    pub durable_seq: u64,
    /// When it was written.
    pub time: String,
    /// Of the changes in it.
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
            time: rfc3339(header.time),
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

/// A key of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// The list.
    pub list: u64,
    /// "list", "record" or "chunk".
    pub space: &'static str,
    /// Which record or chunk.
    pub index: u64,
    /// The branch that it was written in.
    pub branch: u32,
    /// The epoch that it was written in.
    pub epoch: u64,
}

impl From<Key> for KeyInfo {
    fn from(key: Key) -> Self {
        let space = match key.space {
            Space::List => "list",
            Space::Records => "record",
            Space::Chunks => "chunk",
        };
        let Key { list, index, branch, epoch, .. } = key;
        Self { list, space, index, branch, epoch }
    }
}

impl fmt::Display for KeyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, space, index, branch, epoch } = self;
        write!(f, "{list}/{space}/{index}@{branch}:{epoch}")
    }
}

/// Where a page lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageInfo {
    /// In bytes from the start of the device; meaningless for a page of zeros.
    pub offset: u64,
    /// Bytes stored; 0 for a page of zeros.
    pub len_bytes: u16,
    /// The checksum of the stored bytes.
    pub crc32c: String,
    /// How it is compressed; 0: not.
    pub compression: u8,
    /// Reserved.
    pub flags: u8,
}

impl From<PageRef> for PageInfo {
    fn from(page: PageRef) -> Self {
        Self {
            offset: page.addr.bytes(),
            len_bytes: page.len_bytes,
            crc32c: hex32(page.crc32c),
            compression: page.compression,
            flags: page.flags,
        }
    }
}

impl fmt::Display for PageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len_bytes == 0 {
            return f.write_str("zeros");
        }
        write!(f, "byte {}, {} bytes, checksum {}", self.offset, self.len_bytes, self.crc32c)?;
        if self.compression != 0 || self.flags != 0 {
            write!(f, ", compression {}, flags {:#x}", self.compression, self.flags)?;
        }
        Ok(())
    }
}

/// What the map holds under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ValueInfo {
    /// A list.
    List {
        /// Its hints.
        hints: u16,
    },
    /// A record.
    Record {
        /// Its bytes, hexadecimal.
        value: String,
    },
    /// Pages.
    Chunk {
        /// The pages that the entry owns, with their indexes in the list.
        pages: Vec<(u64, PageInfo)>,
        /// Pages that are holes in this version, whatever older ones have.
        holes: Vec<u64>,
    },
    /// It was deleted in this version.
    Tombstone,
}

/// An entry of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryInfo {
    /// Its key.
    pub key: KeyInfo,
    /// Its value.
    pub value: ValueInfo,
}

impl From<(&Key, &Value)> for EntryInfo {
    fn from((key, value): (&Key, &Value)) -> Self {
        let value = match value {
            Value::List(hints) => ValueInfo::List { hints: *hints },
            Value::Record(bytes) => ValueInfo::Record { value: hex(bytes) },
            Value::Chunk(chunk) => {
                let first = key.index.saturating_mul(dendro_format::CHUNK_PAGES);
                let pages = chunk.iter().map(|(slot, page)| (first | u64::from(slot), page.into()));
                let holes = (0..dendro_format::CHUNK_PAGES)
                    .filter(|slot| chunk.holes() >> slot & 1 == 1)
                    .map(|slot| first | slot);
                ValueInfo::Chunk { pages: pages.collect(), holes: holes.collect() }
            }
            Value::Tombstone => ValueInfo::Tombstone,
        };
        Self { key: (*key).into(), value }
    }
}

impl fmt::Display for EntryInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        match &self.value {
            ValueInfo::List { hints } => write!(f, ": hints {hints:#06x}"),
            ValueInfo::Record { value } => write!(f, ": {} bytes {value}", value.len() / 2),
            ValueInfo::Chunk { pages, holes } => {
                write!(f, ": {} pages", pages.len())?;
                for (index, page) in pages {
                    write!(f, "\n    page {index}: {page}")?;
                }
                holes.iter().try_for_each(|index| write!(f, "\n    page {index}: a hole"))
            }
            ValueInfo::Tombstone => f.write_str(": deleted"),
        }
    }
}

/// A node of the map, without its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeInfo {
    /// Where it lies.
    pub place: NodePlace,
    /// 0 for a leaf.
    pub level: u8,
    /// How many entries it has.
    pub entry_count: usize,
    /// Its first key.
    pub first_key: Option<KeyInfo>,
    /// Its last key.
    pub last_key: Option<KeyInfo>,
    /// The checkpoint that wrote it.
    pub checkpoint_seq: u64,
    /// The main log's next partial segment at the time.
    pub log_seq: u64,
}

impl From<&Node> for NodeInfo {
    fn from(node: &Node) -> Self {
        let keys: Vec<Key> = match &node.entries {
            Entries::Leaf(entries) => entries.iter().map(|(key, _)| *key).collect(),
            Entries::Inner(entries) => entries.iter().map(|(key, _)| *key).collect(),
        };
        Self {
            place: node.place.into(),
            level: node.info.level,
            entry_count: keys.len(),
            first_key: keys.first().copied().map(Into::into),
            last_key: keys.last().copied().map(Into::into),
            checkpoint_seq: node.info.checkpoint_seq,
            log_seq: node.info.log_seq,
        }
    }
}

impl fmt::Display for NodeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, level, entry_count, checkpoint_seq, log_seq, .. } = self;
        write!(f, "node of level {level} at {place}: {entry_count} entries")?;
        if let (Some(first), Some(last)) = (&self.first_key, &self.last_key) {
            write!(f, " from {first} to {last}")?;
        }
        write!(f, ", checkpoint {checkpoint_seq}, log {log_seq}")
    }
}

/// What is recorded of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageInfo {
    /// The segment.
    pub segment: u32,
    /// Live bytes in it.
    pub live_bytes: u32,
    /// The head that filled it.
    pub head: &'static str,
    /// What it was filled with: 0 the main log or the map, 1 to 31 what clients wrote, the hottest
    /// first, from 32 on what survived cleaning, the youngest first.
    pub class: u8,
    /// When its data was written, in the mean: bytes of blocks that clients had written by then.
    pub written_at: u64,
    /// Where this stands.
    pub source: UsageSource,
}

impl From<UsageRow> for UsageInfo {
    fn from(row: UsageRow) -> Self {
        Self {
            segment: row.segment.0,
            live_bytes: row.usage.live_bytes,
            head: head_name(row.usage.head),
            class: row.usage.class,
            written_at: row.usage.written_at,
            source: row.source,
        }
    }
}

impl fmt::Display for UsageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, live_bytes, head, class, written_at, .. } = self;
        write!(
            f,
            "segment {segment}: {live_bytes} bytes live, {head} {class}, written at {written_at}"
        )
    }
}

/// A record of a partial segment, with its place in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartialRecordInfo {
    /// Where it starts, from the start of the records.
    pub offset_bytes: u32,
    /// Whether its recovery unit ends in this partial segment.
    pub is_complete: bool,
    /// What it says.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_the_calendar_has_them() {
        let at = |secs: i64| rfc3339(Timestamp(secs * 1_000_000_000));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59.000000000Z");
        assert_eq!(rfc3339(Timestamp(-1)), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(at(-2_203_977_600), "1900-02-28T00:00:00.000000000Z");
        assert_eq!(rfc3339(Timestamp(i64::MAX)), "2262-04-11T23:47:16.854775807Z");
        assert_eq!(rfc3339(Timestamp(i64::MIN)), "1677-09-21T00:12:43.145224192Z");
    }
}
