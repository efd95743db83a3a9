//! Send streams: the requests to write and to apply one, and the reports of what is in it.

use serde::{Deserialize, Serialize};

use super::versions::VersionName;

/// Asks for a send stream of a snapshot. The client passes one end of a connected pair of sockets
/// with the request (`SCM_RIGHTS`). The daemon writes the stream to it, closes it, and replies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendRequest {
    /// The snapshot.
    pub of: VersionName,
    /// The snapshot that the receiver has; `None`: all of the first one is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<VersionName>,
    /// The level of zstd that it is compressed with, 1 to 19; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// All snapshots are sent, and these are how heads of branches were; `None`: `of` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Vec<SentHead>>,
    /// The token of a receiver that has a part: only the rest is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// A snapshot that is like the head of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentHead {
    /// Its epoch.
    pub epoch: u64,
    /// The name of the branch.
    pub branch: String,
    /// Whether it is the main branch.
    pub main: bool,
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentInfo {
    /// How many streams.
    pub stream_count: u64,
    /// The length of all of them.
    pub sequence_bytes: u64,
    /// What is in the last one.
    #[serde(flatten)]
    pub stream: StreamInfo,
}

/// A version that a stream is of, or that it is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamVersion {
    /// Its name on the volume that sent it; `None`: it has none.
    pub name: Option<String>,
    /// The UUID of the volume on which it was made.
    pub volume_uuid: String,
    /// Its epoch there.
    pub epoch: u64,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: i64,
}

/// What is in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// The stream's own UUID.
    pub stream_uuid: String,
    /// The UUID of the volume that sent it.
    pub source_uuid: String,
    /// The version that it is of.
    pub snapshot: StreamVersion,
    /// The version that the receiver must have; `None`: the stream has all of the first one.
    pub base_snapshot: Option<StreamVersion>,
    /// The branch whose head the version was; `None`: of none, or that is not known.
    pub head_of: Option<String>,
    /// Whether it has only the rest of the version.
    pub rest: bool,
    /// Whether it is compressed.
    pub compressed: bool,
    /// Its length.
    pub stream_bytes: u64,
    /// Lists that the base does not have.
    pub made_lists: u64,
    /// Lists that both have, and that differ.
    pub changed_lists: u64,
    /// Lists that only the base has.
    pub deleted_lists: u64,
    /// Records that the base does not have, or has otherwise.
    pub put_records: u64,
    /// Records that only the base has.
    pub deleted_records: u64,
    /// Pages with content.
    pub data_pages: u64,
    /// Pages of zeros that are no holes.
    pub zero_pages: u64,
    /// Bytes of records and pages, before compression.
    pub content_bytes: u64,
}

/// A version of which a part was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedPart {
    /// The UUID of the volume on which it was made.
    pub volume_uuid: String,
    /// Its epoch there.
    pub epoch: u64,
    /// What `dendro send --resume` takes, to send the rest.
    pub token: String,
}

/// Asks to receive a version. The client passes one end of a connected pair of sockets with the
/// request (`SCM_RIGHTS`), writes the stream into the other, and shuts it down for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveRequest {
    /// The name of the snapshot; `None`: the one that it had on the volume that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was received is kept if it breaks off.
    #[serde(default)]
    pub resumable: bool,
    /// Branches are made that continue from the versions that were heads of branches.
    #[serde(default)]
    pub branches: bool,
    /// What was kept earlier is deleted, and nothing is received.
    #[serde(default)]
    pub abort: bool,
}

/// A version that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedInfo {
    /// Its name; `None`: it has none.
    pub name: Option<String>,
    /// Its epoch on this volume.
    pub epoch: u64,
    /// How many versions were received; of several, this is the last one.
    pub received_count: u64,
    /// How many were there already.
    pub skipped_count: u64,
    /// The length of all streams.
    pub sequence_bytes: u64,
    /// The branches that were made.
    pub made_branches: Vec<String>,
    /// The snapshot that was the head of the main branch, by its name or epoch on this volume.
    pub main_snapshot: Option<String>,
    /// With `abort`: how many versions were given up that had been received in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted_count: Option<u64>,
    /// What was in the stream.
    #[serde(flatten)]
    pub stream: StreamInfo,
}
