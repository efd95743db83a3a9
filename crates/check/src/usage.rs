//! What is recorded of each segment.

use std::collections::BTreeMap;

use dendro_format::usage::USAGE_LIST;
use dendro_format::{Addr, Checkpoint, Key, SegmentNo, Space, Usage, Value};
use serde::Serialize;

use crate::{Error, Result, Volume, info};

/// Where a segment's usage is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    /// In the map.
    Map,
    /// In the checkpoint, whose own writing changed what the map says.
    Checkpoint,
}

/// What is recorded of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The segment.
    pub segment: SegmentNo,
    /// Its usage.
    pub usage: Usage,
    /// Where that stands.
    pub source: UsageSource,
}

/// The recorded usage of all segments of which there is any.
#[derive(Clone, Debug, Default)]
pub struct UsageTable {
    rows: BTreeMap<SegmentNo, (Usage, UsageSource)>,
}

impl UsageTable {
    pub(crate) fn read(volume: &Volume<'_>, checkpoint: &Checkpoint) -> Result<Self> {
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

    /// Enters a record of the map. Of several versions the last one counts.
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

    /// What is recorded of a segment.
    #[must_use]
    pub fn get(&self, segment: SegmentNo) -> Option<UsageRow> {
        self.rows.get(&segment).map(|&(usage, source)| UsageRow { segment, usage, source })
    }

    /// All that is recorded, by ascending segment.
    pub fn rows(&self) -> impl Iterator<Item = UsageRow> + '_ {
        self.rows.iter().map(|(&segment, &(usage, source))| UsageRow { segment, usage, source })
    }

    /// Live bytes of all segments.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.rows.values().map(|(usage, _)| u64::from(usage.live_bytes)).sum()
    }
}

impl std::fmt::Display for UsageRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        info::UsageInfo::from(*self).fmt(f)
    }
}
