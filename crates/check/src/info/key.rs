//! Keys of the map.

use std::fmt;

use dendro_format::{Key, Space};
use serde::Serialize;

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
