//! Block devices in a volume, and who serves them.

use serde::{Deserialize, Serialize};

/// Lists the block devices of a volume, or changes which there are. Changes are durable when they
/// are answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum BlockDevicesRequest {
    /// List them, and their snapshots.
    List,
    /// Make one.
    Create {
        /// What it is called.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// How its pages are compressed.
        #[serde(default)]
        compression: BlockCompression,
    },
    /// Give one another size.
    Resize {
        /// Its name.
        name: String,
        /// The size.
        size_bytes: u64,
        /// Whether it may become smaller.
        #[serde(default)]
        shrink: bool,
    },
    /// Delete one.
    Delete {
        /// Its name.
        name: String,
        /// Whether its snapshots are deleted as well.
        #[serde(default)]
        snapshots: bool,
    },
}

/// How the pages of a block device are compressed when they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockCompression {
    /// As the volume's other data.
    #[default]
    Default,
    /// Not at all.
    None,
    /// With LZ4.
    Lz4,
    /// With Zstandard.
    Zstd,
}

impl BlockCompression {
    /// What messages and commands call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// A block device, or a snapshot of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDeviceInfo {
    /// Its name: that of its branch, and for a snapshot `@` and the snapshot's behind it.
    pub name: String,
    /// The number of the branch.
    pub branch: u32,
    /// The epoch of the snapshot; `None`: the device itself.
    pub epoch: Option<u64>,
    /// Its size.
    pub size_bytes: u64,
    /// How its pages are compressed when they are written. A daemon of an older release does not
    /// say.
    #[serde(default)]
    pub compression: BlockCompression,
    /// Connections of clients of NBD to it, the oldest first. A daemon of an older release does not
    /// say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<BlockConnectionInfo>,
}

/// A connection of a client of NBD to a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockConnectionInfo {
    /// The client's address, with its port; `None`: it has connected to a socket in the file
    /// system.
    pub address: Option<String>,
    /// The process that has connected to that socket, where the kernel says so.
    pub pid: Option<u32>,
    /// When it has connected, in seconds since 1970.
    pub since_unix_s: i64,
    /// Whether it can write.
    pub can_write: bool,
    /// Whether it is encrypted.
    pub encrypted: bool,
}

/// Has a daemon serve the block devices of its volume over NBD, at a socket that listens and whose
/// descriptor comes with the request (`SCM_RIGHTS`), until the client shuts its end down for
/// writing or closes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeBlockDevicesRequest {
    /// The address of the socket for clients, as a URI of NBD.
    pub uri: String,
    /// The process that ends it when it ends.
    pub pid: u32,
    /// Whether nobody may write.
    #[serde(default)]
    pub read_only: bool,
    /// The directory of the certificates, as an absolute path; `None`: connections are not
    /// encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificates: Option<String>,
}

/// The first reply to a [`ServeBlockDevicesRequest`], when clients can connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingInfo {
    /// How many block devices and snapshots are served.
    pub export_count: u64,
}
