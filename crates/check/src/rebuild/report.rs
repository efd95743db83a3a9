//! The result of a rebuild.

use std::fmt;

use dendro_format::{Key, Space};
use serde::{Serialize, Serializer};

/// What keys were restored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "checkpoint", rename_all = "kebab-case")]
pub enum Source {
    /// The node of a checkpoint, and what the log has since.
    Checkpoint(u64),
    /// The log alone: there is no node.
    Log,
}

/// A part of the map that was lost and made anew: the keys from one on and below another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The first key.
    #[serde(serialize_with = "key")]
    pub from: Key,
    /// The key behind the last one.
    #[serde(serialize_with = "key")]
    pub to: Key,
    /// What it was restored from.
    pub source: Source,
    /// Whether the log has all changes since, so that nothing is lost.
    pub is_complete: bool,
}

impl Restored {
    /// Whether no node was found for it.
    pub(super) fn is_of_log(&self) -> bool {
        self.source == Source::Log
    }
}

fn key<S: Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
    let space = match key.space {
        Space::List => "list",
        Space::Records => "records",
        Space::Chunks => "chunks",
    };
    KeyInfo { list: key.list, space, index: key.index, branch: key.branch, epoch: key.epoch }
        .serialize(serializer)
}

#[derive(Serialize)]
struct KeyInfo {
    list: u64,
    space: &'static str,
    index: u64,
    branch: u32,
    epoch: u64,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the map of lists {} to {}", self.from.list, self.to.list)?;
        match self.source {
            Source::Checkpoint(seq) => write!(f, " was lost, restored from checkpoint {seq}")?,
            Source::Log => write!(f, " was lost, restored from the log")?,
        }
        match self.is_complete {
            true => write!(f, " with all later changes"),
            false => write!(f, "; changes since may be lost"),
        }
    }
}

/// Pages that follow each other and of which the blocks cannot be told, or are lost with the end of
/// the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LostPages {
    /// The list.
    pub list: u64,
    /// The index of the first one.
    pub page_index: u64,
    /// How many there are.
    pub page_count: u64,
    /// The branch that they were written in.
    pub branch: u32,
    /// The epoch that they were written in.
    pub epoch: u64,
}

/// What had to be done, or would have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// Nothing: superblock, checkpoint and map can be read.
    Nothing,
    /// A superblock that names a checkpoint whose map is whole.
    Superblock,
    /// The parts of the map that a checkpoint's map lacks.
    Parts,
    /// All of the map: no checkpoint is left that could be used.
    Map,
}

/// The result of a rebuild.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildReport {
    /// What was rebuilt, or would be.
    pub extent: Extent,
    /// The checkpoint that is the base, if there is one.
    pub checkpoint: Option<u64>,
    /// No superblock was left.
    pub superblocks_lost: bool,
    /// The key of directories is lost too: names cannot be looked up.
    pub hash_key_lost: bool,
    /// Nodes of the base that cannot be used, in words.
    pub bad_nodes: Vec<String>,
    /// The parts of the map that were lost, in the order of their keys.
    pub restored: Vec<Restored>,
    /// Between the nodes that were found there may have been others, of which neither an older one
    /// nor all of the log is left.
    pub may_lack_nodes: bool,
    /// How many entries these have now.
    pub restored_entry_count: u64,
    /// Pages of which the blocks cannot be told, or are lost with the end of the device.
    pub lost_pages: Vec<LostPages>,
    /// So many bytes of segments the device has lost with its end.
    pub lost_end_bytes: u64,
    /// Whether the log may have gone on there.
    pub may_lack_log: bool,
    /// Records of the log that could not be applied, because what they moved is not known.
    pub unknown_move_count: u64,
    /// Above all lists that are known.
    pub next_list: u64,
    /// By how much the volume has grown, because its segments were too few for the new map.
    pub grown_bytes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
}

impl RebuildReport {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.hash_key_lost
            && !self.may_lack_nodes
            && !self.may_lack_log
            && self.unknown_move_count == 0
            && self.lost_pages.is_empty()
            && self.restored.iter().all(|part| part.is_complete)
    }
}
