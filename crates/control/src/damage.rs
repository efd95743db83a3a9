//! What is said about damage that was met.

use serde::{Deserialize, Serialize};

/// Asks what damage was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageRequest {
    /// Somebody has taken note of it: it is told once more, and forgotten.
    #[serde(default)]
    pub clear: bool,
}

/// Damage that was met, and that nobody has taken note of yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageInfo {
    /// How many places on the device do not hold what was written there.
    pub place_count: u64,
    /// How often one was met.
    pub met_count: u64,
    /// When one was met first, nanoseconds since 1970; nothing when none was.
    pub first_unix_ns: Option<i64>,
    /// When one was met last.
    pub last_unix_ns: Option<i64>,
    /// The places, as many as are kept, in the order in which they were met; none in the answer to
    /// [`Info`](crate::Command::Info).
    #[serde(default)]
    pub places: Vec<DamagedPlace>,
}

/// A place on the device that did not hold what was written there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedPlace {
    /// The path of the file from the root of the volume, as in [`crate::versions`]; nothing where it was not
    /// found, or no file has it.
    pub path: Option<String>,
    /// A version that has it, as `:BRANCH` or `@SNAPSHOT`; nothing where none was found.
    pub version: Option<String>,
    /// Where in the file it begins.
    pub offset_bytes: Option<u64>,
    /// The i-node; nothing for a part of the map.
    pub inode: Option<u64>,
    /// Where on the device it lies.
    pub addr_bytes: u64,
    /// What is wrong.
    pub problem: String,
    /// When it was met first, nanoseconds since 1970.
    pub first_unix_ns: i64,
    /// When it was met last.
    pub last_unix_ns: i64,
    /// How often it was met.
    pub met_count: u64,
}
