//! What can go wrong on a device.

use std::io;

/// The result of a call to a device.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong on a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A range that leaves the device.
    #[error("bytes {offset}..{} are past the end of the device, {device_len_bytes} bytes long", .offset.saturating_add(*.len_bytes))]
    OutOfRange {
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        len_bytes: u64,
        /// How long the device is.
        device_len_bytes: u64,
    },
    /// A write or discard that is not made of whole blocks.
    #[error(
        "a write or discard of {len_bytes} bytes at {offset} is not made of whole 4096-byte blocks"
    )]
    Misaligned {
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        len_bytes: u64,
    },
    /// A write to a device that was opened for reading.
    #[error("the device is open for reading only")]
    ReadOnly,
    /// A device that cannot be made longer or shorter.
    #[error("the device has {len_bytes} bytes, and cannot be made to have {wanted_bytes}")]
    FixedLen {
        /// How long it is.
        len_bytes: u64,
        /// How long it was to become.
        wanted_bytes: u64,
    },
    /// Another process has the device open.
    #[error("{path} is in use by another process; unmount it first")]
    InUse {
        /// The file or device.
        path: String,
    },
    /// The medium, or the system call, failed.
    #[error("{operation} of {len_bytes} bytes at {offset} failed: {source}")]
    Io {
        /// What was tried: "read", "write", "flush", "discard".
        operation: &'static str,
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        len_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file or device cannot be opened, or cannot serve as a device.
    #[error("{path}: {source}")]
    Open {
        /// The file or device.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether a write failed because there is no room for it below the device: the file system of
    /// an image is full, or a quota or a pool of blocks is used up. Earlier writes are not
    /// affected, and once there is room again the same write succeeds. This does not hold for a
    /// flush.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { operation: "write", source, .. } => {
                matches!(source.kind(), StorageFull | QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether it is a flush that failed. What was written before may be lost, whatever a later
    /// flush answers.
    #[must_use]
    pub fn is_flush(&self) -> bool {
        matches!(self, Self::Io { operation: "flush", .. })
    }
}
