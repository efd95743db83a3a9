//! Damage that was found in use: the request, and the report.

use serde::{Deserialize, Serialize};

use super::check::{CheckInfo, VersionWithFile};

/// Asks for the damage that was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageRequest {
    /// Acknowledges the damage: it is reported once more, and then forgotten.
    #[serde(default)]
    pub clear: bool,
}

/// Damage that was found and that nobody has acknowledged yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageInfo {
    /// How many places on the device do not hold what was written there.
    pub place_count: u64,
    /// How often such a place was read.
    pub met_count: u64,
    /// When the first one was found, nanoseconds since 1970; `None` when none was.
    pub first_unix_ns: Option<i64>,
    /// When one was read last.
    pub last_unix_ns: Option<i64>,
    /// The places, as many as are kept, in the order in which they were found; empty in the reply
    /// to [`Info`](crate::Command::Info).
    #[serde(default)]
    pub places: Vec<DamagedPlace>,
    /// The last check of the mounted volume, which looks for damage by itself; `None` where there
    /// was none, and in the reply to [`Info`](crate::Command::Info).
    #[serde(default)]
    pub last_check: Option<CheckInfo>,
}

/// What a damaged place holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A page of a file.
    #[default]
    Page,
    /// A part of the map.
    Map,
    /// The header or the records of a partial segment. No file is damaged by it; recovery, cleaning
    /// and repair may need it.
    Log,
    /// The checkpoint that a mount begins with.
    Checkpoint,
    /// The newest superblock.
    Superblock,
    /// One of two copies of a part of the map. The other is sound, so nothing is lost.
    MapCopy,
}

/// A place on the device that did not hold what was written there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedPlace {
    /// The path of the file from the root of the volume, as in [`crate::versions`]; `None` where no
    /// file was found.
    pub path: Option<String>,
    /// A version that has it, as `:BRANCH` or `@SNAPSHOT`; `None` where none was found.
    pub version: Option<String>,
    /// The offset in the file at which the place begins.
    pub offset_bytes: Option<u64>,
    /// What lies there.
    #[serde(default)]
    pub part: Part,
    /// The i-node; `None` if it is not a page of a file.
    pub inode: Option<u64>,
    /// The address on the device.
    pub addr_bytes: u64,
    /// What is wrong.
    pub problem: String,
    /// When it was found, nanoseconds since 1970.
    pub first_unix_ns: i64,
    /// When it was read last.
    pub last_unix_ns: i64,
    /// How often it was read.
    pub met_count: u64,
    /// How many versions have it; 0 where that is not known.
    #[serde(default)]
    pub version_count: u64,
    /// The first version that has it, and a path of the file there.
    #[serde(default)]
    pub first: Option<VersionWithFile>,
    /// The last one; if the head of a branch has it, the last of those.
    #[serde(default)]
    pub last: Option<VersionWithFile>,
}
