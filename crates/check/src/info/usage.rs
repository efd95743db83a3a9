//! The usage of segments.

use std::fmt;

use serde::Serialize;

use super::text::head_name;
use crate::read::{UsageRow, UsageSource};

/// The recorded usage of a segment.
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
    /// The mean time at which its data was written, on the log clock.
    pub written_at: u64,
    /// Where it is recorded.
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

impl fmt::Display for UsageRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        UsageInfo::from(*self).fmt(f)
    }
}
