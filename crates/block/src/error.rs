//! Errors.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error as DiskError, MAX_PAGE_COUNT, View};

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
    /// What has this name is no block device.
    #[error("{0} is no block device")]
    NoDeviceNamed(String),
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
    /// A name that no device has.
    #[error("there is no such block device")]
    NotFound,
    /// A device was to become smaller, and the caller has not said that it may.
    #[error("has {0} bytes; --shrink makes it smaller, and what lies behind the new end is lost")]
    WouldShrink(u64),
    /// A device that clients have open was to become smaller.
    #[error(
        "has {}, and clients count on its {size_bytes} bytes; disconnect them first, or make it \
         longer; `dendro block list --connections` lists them",
        connections(*count)
    )]
    CannotShrink {
        /// Its size.
        size_bytes: u64,
        /// How many connections to it there are.
        count: usize,
    },
    /// A device or a snapshot that clients have open was to be deleted.
    #[error(
        "{name} has {}, which `dendro block list --connections` lists; disconnect them first",
        connections(*count)
    )]
    Connected {
        /// Its name.
        name: String,
        /// How many connections to it there are.
        count: usize,
    },
    /// The main branch was to be deleted.
    #[error("is the main branch of the volume, which stays")]
    MainBranch,
    /// A device was to be deleted without its snapshots, which have these titles.
    #[error("has snapshots, which --snapshots deletes too: {0}")]
    HasSnapshots(String),
    /// A snapshot was to be deleted that is held.
    #[error("{0} is held; `dendro snapshot release` lets it be deleted")]
    Held(String),
}

/// So many connections, in words.
fn connections(count: usize) -> String {
    format!("{count} {} of clients", if count == 1 { "connection" } else { "connections" })
}

#[cfg(feature = "nbd")]
impl Error {
    /// The same about what the caller calls `name`, who knows no number of its branch.
    pub(crate) fn naming(self, name: &str) -> Self {
        match self {
            Self::NoDevice(_) => Self::NoDeviceNamed(name.to_owned()),
            other => other,
        }
    }
}

#[cfg(feature = "nbd")]
impl From<Error> for dendro_nbd::Failure {
    fn from(error: Error) -> Self {
        use dendro_nbd::Errno;
        let errno = match &error {
            Error::Disk(DiskError::NoSpace { .. } | DiskError::OverQuota { .. }) => Errno::NoSpace,
            Error::Disk(DiskError::ReadOnly(_)) => Errno::NotPermitted,
            Error::Disk(_) | Error::LaterVersion(_) | Error::DamagedSize(_) => Errno::Io,
            Error::NoDevice(_)
            | Error::NoDeviceNamed(_)
            | Error::BadSize(_)
            | Error::NotFound
            | Error::WouldShrink(_)
            | Error::CannotShrink { .. }
            | Error::Connected { .. }
            | Error::MainBranch
            | Error::HasSnapshots(_)
            | Error::Held(_) => Errno::Invalid,
        };
        Self::new(errno, error.to_string())
    }
}
