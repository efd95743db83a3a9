//! The devices that a volume lies on.

use serde::{Deserialize, Serialize};

/// Lists the devices of a volume, or changes which there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum DevicesRequest {
    /// List them.
    List,
    /// Add a device, which is then brought up, or over which a spread volume goes on. One that was
    /// there before gets what it lacks.
    Add {
        /// Its path.
        path: String,
        /// Whether what it holds is destroyed.
        force: bool,
        /// 1: the volume is to be spread over its devices; 2: each is to hold all of it; `None`: as
        /// it is, or 2 if it lies on one device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copies: Option<u8>,
        /// Whether it is a fast one.
        #[serde(default)]
        is_fast: bool,
    },
    /// State whether a device of a spread volume is a fast one.
    Set {
        /// Its path or UUID.
        device: String,
        /// Whether it is.
        is_fast: bool,
    },
    /// Remove a device for good.
    Remove {
        /// Its path or UUID.
        device: String,
    },
    /// Stop using a device for now.
    Offline {
        /// Its path or UUID.
        device: String,
    },
    /// Add a device, and remove another one when that is brought up.
    Replace {
        /// The path or UUID of the one to be removed; `None`: the only one.
        device: Option<String>,
        /// The path of the new one.
        path: String,
        /// Whether what the new one holds is destroyed.
        force: bool,
    },
}

/// What a device has of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// Everything.
    #[default]
    InSync,
    /// It lacks what was written since it was lost.
    Missing,
    /// It gets what it lacks, and all that is written.
    BroughtUp,
}

/// A device of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Where it is, or was found last.
    pub path: String,
    /// Its UUID; empty if the volume lies on it alone.
    pub uuid: String,
    /// What it has.
    pub state: DeviceState,
    /// Whether it is there.
    pub is_present: bool,
    /// Whether it is removed when the others are in sync.
    pub leaves: bool,
    /// When its state became what it is, in seconds since 1970; 0 if that is not known.
    pub since_unix_s: i64,
    /// The length of the device; 0 if it is not there.
    pub size_bytes: u64,
    /// Reads that failed or returned wrong bytes since the mount, and that another device answered.
    pub failed_reads: u64,
    /// Bytes of the volume that it holds, or is to hold; all of them unless the volume is spread.
    #[serde(default)]
    pub held_bytes: u64,
    /// Whether it is one of the fast devices of a spread volume.
    #[serde(default)]
    pub is_fast: bool,
}

/// The devices of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesInfo {
    /// The device by which the volume is named.
    pub source: String,
    /// The volume's UUID.
    pub uuid: String,
    /// All devices.
    pub devices: Vec<DeviceInfo>,
    /// The bytes that are still to be copied to devices that are brought up, or moved from those
    /// that leave.
    pub left_to_copy_bytes: u64,
    /// Whether each device holds a part of the volume alone.
    #[serde(default)]
    pub is_spread: bool,
}
