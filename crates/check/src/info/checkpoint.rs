//! Checkpoints.

use std::fmt;

use dendro_format::Checkpoint;
use serde::Serialize;

use super::place::{NodePlace, PositionInfo};
use super::text::hex32;
use super::usage::UsageInfo;
use crate::read::{UsageRow, UsageSource};

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
    /// Where the main log continues.
    pub log: PositionInfo,
    /// The number of the next partial segment there.
    pub log_seq: u64,
    /// The checksum of the one before it.
    pub log_prev_crc32c: String,
    /// The segment in which the log continues if not there.
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
    /// Usage that differs from what the map records.
    pub usage_overrides: Vec<UsageInfo>,
    /// Segments of the map that have a mirror.
    pub mirrors: Vec<MirrorInfo>,
}

/// A segment of the map, and the segment that mirrors it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MirrorInfo {
    /// The segment.
    pub segment: u32,
    /// The segment in which the same bytes lie at the same offsets.
    pub mirror: u32,
}

impl From<&Checkpoint> for CheckpointInfo {
    fn from(checkpoint: &Checkpoint) -> Self {
        let rows = checkpoint.usage_overrides.iter().map(|&(segment, usage)| {
            UsageInfo::from(UsageRow { segment, usage, source: UsageSource::Checkpoint })
        });
        Self {
            seq: checkpoint.seq,
            time: checkpoint.time.rfc3339(),
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
            mirrors: (checkpoint.mirrors.iter())
                .map(|(of, mirror)| MirrorInfo { segment: of.0, mirror: mirror.0 })
                .collect(),
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
        for MirrorInfo { segment, mirror } in &self.mirrors {
            write!(f, "\n  mirror      segment {segment} is mirrored in segment {mirror}")?;
        }
        Ok(())
    }
}
