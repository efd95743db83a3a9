//! Why a volume cannot be read.

use dendro_format::{Addr, Malformed};

/// What a reader answers.
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
        /// Bytes that the superblock speaks of.
        volume_len_bytes: u64,
        /// Bytes that there are.
        device_len_bytes: u64,
    },
    /// Something is named where nothing can be.
    #[error("{what} is said to lie at {addr}, {len_bytes} bytes long: that is in no segment")]
    OutsideLog {
        /// What is sought.
        what: &'static str,
        /// Where.
        addr: Addr,
        /// How long.
        len_bytes: u64,
    },
    /// Bytes are not what they should be.
    #[error("at {addr}: {problem}")]
    Damaged {
        /// Where.
        addr: Addr,
        /// What is wrong.
        problem: Malformed,
    },
    /// Bytes are sound but not the ones that were meant.
    #[error(
        "{what} at {addr} is another than the one meant: checksum {found:08x}, not {expected:08x}"
    )]
    Misdirected {
        /// What is sought.
        what: &'static str,
        /// Where.
        addr: Addr,
        /// The checksum of what is there.
        found: u32,
        /// The checksum of what should be.
        expected: u32,
    },
    /// The map cannot be walked.
    #[error(transparent)]
    Map(#[from] crate::NodeProblem),
}
