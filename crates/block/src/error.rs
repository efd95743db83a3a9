//! Errors.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error as DiskError, MAX_PAGE_COUNT, View};
use dendro_nbd::{Errno, Failure};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The largest device, in bytes: what a list can hold, 8 EiB.
pub const MAX_SIZE_BYTES: u64 = MAX_PAGE_COUNT * PAGE_SIZE as u64;

/// What can go wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The disk refuses something, or has failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A version that is no block device.
    #[error("the {0} is no block device")]
    NoDevice(View),
    /// The description of a device is of a later version.
    #[error("the block device has a description of version {0}; this dendro knows version 1")]
    LaterVersion(u32),
    /// The description of a device states a size that none can have.
    #[error("the block device is damaged: its description states a size of {0} bytes")]
    DamagedSize(u64),
    /// A size that no device can have.
    #[error(
        "a block device of {0} bytes; it has a multiple of {PAGE_SIZE}, from {PAGE_SIZE} to \
         {MAX_SIZE_BYTES}"
    )]
    BadSize(u64),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = match &error {
            Error::Disk(DiskError::NoSpace { .. }) => Errno::NoSpace,
            Error::Disk(DiskError::ReadOnly(_)) => Errno::NotPermitted,
            Error::Disk(_) | Error::LaterVersion(_) | Error::DamagedSize(_) => Errno::Io,
            Error::NoDevice(_) | Error::BadSize(_) => Errno::Invalid,
        };
        Self::new(errno, error.to_string())
    }
}
