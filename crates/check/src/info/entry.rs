//! Nodes of the map and their entries.

use std::fmt;

use dendro_format::{Entries, Hints, Key, Value};
use serde::Serialize;

use super::key::KeyInfo;
use super::place::{NodePlace, PageInfo};
use super::text::hex;
use crate::read::Node;

/// The hints of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HintsInfo {
    /// Their bits.
    pub hints: u16,
    /// The list that it is near.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<u64>,
}

impl From<Hints> for HintsInfo {
    fn from(hints: Hints) -> Self {
        Self { hints: hints.bits, near: (hints.near != 0).then_some(hints.near) }
    }
}

impl fmt::Display for HintsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.hints)?;
        self.near.map_or(Ok(()), |near| write!(f, ", near list {near}"))
    }
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ValueInfo {
    /// A list.
    List(HintsInfo),
    /// A record.
    Record {
        /// Its bytes, hexadecimal.
        value: String,
    },
    /// Pages.
    Chunk {
        /// The pages that the entry owns, with their indexes in the list.
        pages: Vec<(u64, PageInfo)>,
        /// Pages that are holes in this version, even where older versions have pages.
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
            Value::List(hints) => ValueInfo::List((*hints).into()),
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
            ValueInfo::List(hints) => write!(f, ": hints {hints}"),
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

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NodeInfo::from(self).fmt(f)
    }
}
