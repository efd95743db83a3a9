//! What a daemon says about itself and its volume.

use serde::{Deserialize, Serialize};

use super::damage::DamageInfo;
use super::devices::DeviceInfo;
use super::mounts::{MountInfo, ViewInfo};
use super::streams::ReceivedPart;

/// A daemon, as it identifies itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The software's version.
    pub software: String,
    /// Distinguishes this run of the daemon from all others. Empty: a daemon of an older release.
    #[serde(default)]
    pub daemon: String,
    /// The daemon's process.
    pub pid: u32,
    /// The volume's UUID.
    pub uuid: String,
    /// The image file or block device, as an absolute path without symbolic links.
    pub source: String,
    /// The other devices that the volume lies on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Where it was mounted first, as an absolute path without symbolic links.
    pub mount_point: String,
    /// All its mounts, the oldest first; none when it is about to end.
    #[serde(default)]
    pub views: Vec<ViewInfo>,
    /// Mounts that have been unmounted, and of which some writes may not be done yet.
    #[serde(default)]
    pub closing: Vec<ViewInfo>,
    /// Whether it mounts nothing, and serves the volume's block devices: `dendro nbd`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serves_blocks: bool,
}

impl Pong {
    /// Whether the daemon still has the mount `view`, or has not done all of its writes yet.
    #[must_use]
    pub fn has(&self, view: &ViewInfo) -> bool {
        self.views.iter().chain(&self.closing).any(|of| of.is_same(view))
    }
}

/// A volume, mounted or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// The image file or block device.
    pub source: String,
    /// The volume's UUID.
    pub uuid: String,
    /// The volume's label; may be empty.
    pub label: String,
    /// The version of the on-disk format.
    pub format_version: u32,
    /// When it was made, seconds since 1970.
    pub created_unix_s: i64,
    /// Bytes on the device.
    pub device_size_bytes: u64,
    /// The size up to which its image becomes longer by itself, if it does.
    #[serde(default)]
    pub max_size_bytes: Option<u64>,
    /// The devices that it lies on, if it lies on a set of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceInfo>,
    /// How the device is divided.
    pub segments: SegmentInfo,
    /// The features of its format.
    pub features: FeatureInfo,
    /// How often the map and checkpoints are kept; 0: the daemon does not say.
    #[serde(default)]
    pub metadata_copies: u8,
    /// Bytes of the map that are kept once although the volume asks for two copies.
    #[serde(default)]
    pub unmirrored_bytes: u64,
    /// How it is compressed unless a mount says otherwise; `None`: the daemon does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_compression: Option<CompressionKinds>,
    /// How it is compressed now; `None`: nobody has it open, or the daemon does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_in_force: Option<CompressionKinds>,
    /// How its bytes are used.
    pub space: SpaceInfo,
    /// The newest superblock, from which the volume is found.
    #[serde(default)]
    pub superblock: SuperblockInfo,
    /// The checkpoint that the next mount would start from.
    pub checkpoint: CheckpointInfo,
    /// What was found damaged when the volume was opened, and what was lost by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// Damage found in use that nobody has acknowledged; `None`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_damage: Option<DamageInfo>,
    /// Versions of which a part was received, and is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received_parts: Vec<ReceivedPart>,
    /// Where it is mounted; `None` when the device was read offline.
    pub mount: Option<MountInfo>,
    /// Where its block devices are served; `None`: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<ServedInfo>,
}

/// Where the block devices of a volume are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedInfo {
    /// The address, as a URI of NBD.
    pub uri: String,
    /// The server's process.
    pub pid: u32,
    /// The server's version.
    pub software: String,
    /// Why it takes no changes, if it takes none.
    pub read_only: Option<String>,
    /// Since when, in seconds since 1970.
    pub since_unix_s: i64,
}

/// How a device is divided into segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Bytes in each.
    pub size_bytes: u64,
    /// How many there are.
    pub total: u64,
    /// How many are clean; `None` where they were not counted.
    pub clean: Option<u64>,
}

/// Feature flags, by what a program that does not know one of them may still do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureInfo {
    /// Read and write.
    pub compatible: Vec<String>,
    /// Only read.
    pub read_only_compatible: Vec<String>,
    /// Nothing.
    pub incompatible: Vec<String>,
}

/// How data are compressed, as options of mounts state it: `none`, `lz4`, or `zstd:` and a level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionKinds {
    /// New data.
    pub new: String,
    /// What the cleaner moves.
    pub cold: String,
}

/// How a volume's bytes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceInfo {
    /// What could be used in an empty volume.
    pub capacity_bytes: u64,
    /// What live data use.
    pub live_bytes: u64,
    /// What can still be written.
    pub available_bytes: u64,
    /// What is set aside for operations under way.
    pub reserved_bytes: u64,
    /// What compression gains. `None`: it is not known, because the volume was compressed by
    /// older software.
    #[serde(default)]
    pub compression: Option<CompressionInfo>,
}

/// What compression gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionInfo {
    /// Bytes of the pages that are stored compressed, in all versions.
    pub page_bytes: u64,
    /// Bytes that these take.
    pub stored_bytes: u64,
    /// Bytes that all data take, without the map.
    pub data_bytes: u64,
}

impl CompressionInfo {
    /// What all data would take if nothing were compressed.
    #[must_use]
    pub const fn plain_bytes(&self) -> u64 {
        self.data_bytes.saturating_sub(self.stored_bytes).saturating_add(self.page_bytes)
    }
}

/// The newest superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuperblockInfo {
    /// Its number.
    pub sequence: u64,
    /// When it was written, seconds since 1970.
    pub written_unix_s: i64,
}

/// The state that a mount starts from, and the log behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    /// Its number.
    pub sequence: u64,
    /// When it was taken, seconds since 1970.
    pub written_unix_s: i64,
    /// Bytes of log written since, which a mount after a crash would read.
    pub log_bytes: u64,
    /// The number of the last commit.
    pub last_commit: u64,
    /// The number of the last commit that is known to be durable.
    pub durable_commit: u64,
    /// Whether the volume was shut down cleanly and has not been opened for writing since.
    pub clean: bool,
}
