//! Why a volume cannot be read.

use dendro_format::{Addr, Malformed};
use serde::Serialize;

/// The result of a reader.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] dendro_device::Error),
    /// There is no superblock anywhere.
    #[error("there is no dendrofs volume here: {0}")]
    NoVolume(Malformed),
    /// The volume uses features that this version does not know.
    #[error("the volume uses features that this version of dendrofs does not know ({0:#x})")]
    UnknownFeatures(u64),
    /// The device is shorter than the volume.
    #[error("the volume is {volume_len_bytes} bytes long, but its device only {device_len_bytes}")]
    Truncated {
        /// The length of the volume, as its superblock says.
        volume_len_bytes: u64,
        /// The length of the device.
        device_len_bytes: u64,
    },
    /// A structure is said to lie where none can.
    #[error("{what} is said to lie at {addr}, {len_bytes} bytes long: that is in no segment")]
    OutsideLog {
        /// The structure.
        what: &'static str,
        /// Where.
        addr: Addr,
        /// How long.
        len_bytes: u64,
    },
    /// The bytes are no valid structure.
    #[error("at {addr}: {problem}")]
    Damaged {
        /// Where.
        addr: Addr,
        /// What is wrong.
        problem: Malformed,
    },
    /// There is a valid structure, but not the one that was meant.
    #[error(
        "{what} at {addr} is another than the one meant: checksum {found:08x}, not {expected:08x}"
    )]
    Misdirected {
        /// The structure.
        what: &'static str,
        /// Where.
        addr: Addr,
        /// The checksum of the structure that is there.
        found: u32,
        /// The checksum of the one that was meant.
        expected: u32,
    },
    /// There is no room for a new map.
    #[error(
        "too few segments are free for the new map, and nothing was changed; rebuild a copy in a new file, or copy the files into a directory: --to"
    )]
    NoFreeSegment,
    /// What is left of the volume takes more memory than a rebuild may use.
    #[error("what is left of the volume does not fit in {} MiB of memory; allow more: --memory",
        limit_bytes >> 20)]
    Memory {
        /// What it may use.
        limit_bytes: u64,
    },
    /// The map cannot be walked.
    #[error(transparent)]
    Map(#[from] NodeProblem),
}

/// The kind of a [`NodeProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeProblemKind {
    /// It is said to lie where no node can.
    Outside,
    /// The device failed to read it.
    Unreadable,
    /// It is damaged, or another node than the one that was meant.
    Damaged,
    /// Its level is not the one that follows from its parent's.
    WrongLevel,
    /// Some of its keys are not between those that its parent gives it.
    WrongKeys,
    /// It has entries of later epochs than its parent says.
    WrongEpoch,
}

/// A map node that cannot be used. The nodes below it were not visited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("map node at byte {offset}, level {level}: {detail}")]
pub struct NodeProblem {
    /// Where, in bytes from the start of the device.
    pub offset: u64,
    /// The level it should have.
    pub level: u8,
    /// The kind of problem.
    pub kind: NodeProblemKind,
    /// The problem in words.
    pub detail: String,
}
