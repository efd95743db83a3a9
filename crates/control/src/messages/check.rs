//! A check of the volume: the request, its progress, and the report.

use serde::{Deserialize, Serialize};

/// Asks for a check of the volume as it is at one moment. Replies of progress come before the
/// report; a client that closes its end ends the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRequest {
    /// Contents of all files are read, too.
    #[serde(default)]
    pub data: bool,
    /// The memory that it may take; `None`: what suits the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// How far a check is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckProgress {
    /// What it looks at, from 1 to 5: the map; the files of the first version; those of the
    /// others; the map with the log rolled forward, and contents; names of what was found.
    pub pass: u32,
    /// How much of it was looked at, in a unit of its own.
    pub done: u64,
    /// How much there is, in that unit; about.
    pub of: u64,
    /// The same in words.
    pub text: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; nothing is wrong.
    Note,
    /// Something is wrong that does not affect data, such as a wrong count.
    Warning,
    /// Something cannot be read, or will be lost.
    Error,
}

/// A version that has something, and the file there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionWithFile {
    /// The version, as `:BRANCH` or `@SNAPSHOT`.
    pub version: String,
    /// A path of the file there; `None` if it has none there, or if that was not looked for.
    pub path: Option<String>,
}

/// Something that a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// The number of its kind, which never changes.
    pub number: u16,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in a few words.
    pub title: String,
    /// What a repair does about it; `None`: nothing.
    pub repair: Option<String>,
    /// The details.
    pub detail: String,
    /// The list that it is about, which is the number of an i-node.
    pub list: Option<u64>,
    /// All paths of the file in the last version that has it; `@VERSION/…` if only the past does.
    pub paths: Vec<String>,
    /// The first versions that have it; none if it is not about versions.
    pub found_in: Vec<String>,
    /// How many versions have it.
    pub version_count: usize,
    /// The first version that has it; `None` if it is not about versions.
    pub first: Option<VersionWithFile>,
    /// The last one; if the head of a branch has it, the last of those.
    pub last: Option<VersionWithFile>,
    /// It was mended.
    pub mended: bool,
    /// Snapshots alone have it, which stay as they are.
    pub in_past: bool,
}

impl CheckFinding {
    /// Whether something is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.severity != Severity::Note && !self.mended
    }

    /// Whether something is wrong in a branch, or in the volume itself.
    #[must_use]
    pub fn is_wrong_in_branches(&self) -> bool {
        self.is_wrong() && !self.in_past
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckCounts {
    /// Nodes of the map.
    pub node_count: u64,
    /// Those that are kept once although the volume asks for two copies.
    #[serde(default)]
    pub unmirrored_node_count: u64,
    /// Entries in its leaves.
    pub entry_count: u64,
    /// The entries of the disk's own lists among them.
    pub system_entry_count: u64,
    /// Lists.
    pub list_count: u64,
    /// Records.
    pub record_count: u64,
    /// Pages, pages of zeros included.
    pub page_count: u64,
    /// Pages of zeros.
    pub zero_page_count: u64,
    /// Pages whose blocks are shorter than a page.
    pub short_page_count: u64,
    /// Pages whose blocks are compressed.
    #[serde(default)]
    pub compressed_page_count: u64,
    /// Bytes that these occupy on the device, in whole grains.
    #[serde(default)]
    pub compressed_bytes: u64,
    /// Bytes that nodes and pages occupy on the device, in whole grains.
    pub live_bytes: u64,
    /// Bytes of pages whose checksums were verified.
    pub verified_bytes: u64,
}

/// How the checks of a mounted volume stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// There has been none since it was mounted.
    #[default]
    Never,
    /// One runs.
    Running,
    /// The last one has come to the end.
    Ended,
    /// The last one was not done, or not to its end.
    NotDone,
}

/// The last check of a mounted volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckInfo {
    /// How it stands.
    pub state: CheckState,
    /// How far the one is that runs.
    pub progress: Option<String>,
    /// When the last one ended, nanoseconds since 1970.
    pub ended_unix_ns: Option<i64>,
    /// Errors that it has found; `None` if it did not come to the end.
    pub error_count: Option<u64>,
    /// Warnings.
    pub warning_count: Option<u64>,
    /// The worst finding, or why it was not done.
    pub problem: Option<String>,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The image file or block device.
    pub source: String,
    /// It was checked, and not only looked at.
    pub checked: bool,
    /// It is mounted: what was checked is the state of one moment.
    pub mounted: bool,
    /// Nothing is wrong.
    pub sound: bool,
    /// Nothing is wrong but in snapshots, which stay as they are.
    pub branches_sound: bool,
    /// Contents of files were read too.
    pub data_read: bool,
    /// There was a log behind the checkpoint.
    pub log_rolled_forward: bool,
    /// What was found.
    pub findings: Vec<CheckFinding>,
    /// What was counted.
    pub counts: CheckCounts,
    /// Versions whose trees were checked.
    pub version_count: usize,
    /// Versions of other clients, which hold no files: block devices, and lists of programs. Of
    /// these, only the lists were checked.
    #[serde(default)]
    pub versions_without_files: usize,
    /// Snapshots of the time before repairs, which are not checked.
    pub before_repairs: Vec<String>,
    /// The disk below the files is sound, contents of files aside.
    pub disk_sound: bool,
    /// Heads of branches have something that a repair mends.
    pub repairable: bool,
    /// A repair mends some of it without a decision about data.
    pub repairable_safely: bool,
}
