//! The usage of each segment, as it is recorded.

use std::collections::BTreeMap;

use dendro_format::usage::USAGE_LIST;
use dendro_format::{Addr, Checkpoint, Key, SegmentNo, Space, Usage, Value};
use serde::Serialize;

use super::volume::Volume;
use crate::error::{Error, Result};

/// Where a segment's usage is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    /// In the map.
    Map,
    /// In the checkpoint: writing it has changed the usage that the map records.
    Checkpoint,
}

/// The recorded usage of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The segment.
    pub segment: SegmentNo,
    /// Its usage.
    pub usage: Usage,
    /// Where it is recorded.
    pub source: UsageSource,
}

/// The usage of all segments for which one is recorded.
#[derive(Clone, Debug, Default)]
pub struct UsageTable {
    rows: BTreeMap<SegmentNo, (Usage, UsageSource)>,
}

impl UsageTable {
    fn read(volume: &Volume<'_>, checkpoint: &Checkpoint) -> Result<Self> {
        let mut table = Self::default();
        let from = Key::first(USAGE_LIST, Space::Records, 0);
        let to = Key::first(USAGE_LIST, Space::Chunks, 0);
        for entry in volume.entries(checkpoint, Some(from), Some(to)) {
            let (key, value) = entry?;
            let Value::Record(bytes) = value else { continue };
            table.insert_record(&key, &bytes).map_err(|problem| Error::Damaged {
                addr: Addr(checkpoint.root.map_or(0, |(root, _)| root.addr.0)),
                problem,
            })?;
        }
        table.insert_overrides(checkpoint);
        Ok(table)
    }

    /// Adds a record of the map. A later version of a record replaces an earlier one.
    pub(crate) fn insert_record(
        &mut self,
        key: &Key,
        bytes: &[u8],
    ) -> std::result::Result<(), dendro_format::Malformed> {
        let usage = Usage::decode(bytes)?;
        let segment = u32::try_from(key.index).map(SegmentNo).map_err(|_| {
            dendro_format::Malformed { structure: "segment usage", problem: "no such segment" }
        })?;
        self.rows.insert(segment, (usage, UsageSource::Map));
        Ok(())
    }

    pub(crate) fn insert_overrides(&mut self, checkpoint: &Checkpoint) {
        for &(segment, usage) in &checkpoint.usage_overrides {
            self.rows.insert(segment, (usage, UsageSource::Checkpoint));
        }
    }

    /// The recorded usage of a segment.
    #[must_use]
    pub fn get(&self, segment: SegmentNo) -> Option<UsageRow> {
        self.rows.get(&segment).map(|&(usage, source)| UsageRow { segment, usage, source })
    }

    /// All rows, by ascending segment.
    pub fn rows(&self) -> impl Iterator<Item = UsageRow> + '_ {
        self.rows.iter().map(|(&segment, &(usage, source))| UsageRow { segment, usage, source })
    }

    /// Live bytes of all segments.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.rows.values().map(|(usage, _)| u64::from(usage.live_bytes)).sum()
    }
}

impl Volume<'_> {
    /// The usage of segments, as the map and the checkpoint record it.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn usage(&self, checkpoint: &Checkpoint) -> Result<UsageTable> {
        UsageTable::read(self, checkpoint)
    }
}
