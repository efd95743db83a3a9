//! Scrubbing: reading everything on the device and comparing it with its checksums.

use serde::{Deserialize, Serialize};

/// What is to be done about the scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubAction {
    /// Nothing: report it.
    #[default]
    Status,
    /// Begin a pass.
    Start,
    /// Let the pass wait until it is resumed.
    Pause,
    /// Continue the pass.
    Resume,
    /// End the pass.
    Cancel,
}

/// A request about the scrub. The reply describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRequest {
    /// What is to be done.
    #[serde(default)]
    pub action: ScrubAction,
    /// With [`ScrubAction::Start`] and [`ScrubAction::Resume`]: the most bytes to read in a second.
    /// `None`: what the use of the volume leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// With these two: the memory for what is read next, about. `None`: 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// How a scrub stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// There has been none.
    #[default]
    Never,
    /// It runs.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// It has reached the end.
    Finished,
    /// It was ended.
    Cancelled,
}

/// The newest pass, and the last one that has reached the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubInfo {
    /// How the newest pass stands.
    pub state: ScrubState,
    /// The most bytes that it reads in a second; `None`: what the use of the volume leaves.
    pub rate_bytes_per_sec: Option<u64>,
    /// The memory for what it reads next, about; `None`: 16 MiB.
    pub memory_bytes: Option<u64>,
    /// When it began, nanoseconds since 1970.
    pub started_unix_ns: Option<i64>,
    /// Bytes that it has read and compared.
    pub checked_bytes: u64,
    /// The live bytes of the volume now, which is about what a pass reads.
    pub live_bytes: u64,
    /// Damaged places that it has found.
    pub found_count: u64,
    /// Why it cannot continue at the moment.
    pub problem: Option<String>,
    /// The last pass that has reached the end.
    pub last_complete: Option<ScrubPass>,
}

/// A pass that has reached the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// When it began, nanoseconds since 1970.
    pub started_unix_ns: i64,
    /// When it ended.
    pub ended_unix_ns: i64,
    /// Bytes that it read and compared.
    pub checked_bytes: u64,
    /// Damaged places that it found.
    pub found_count: u64,
}
