//! Errors.

use std::io;

use dendro_disk::Error as DiskError;
use dendro_fs::FsError;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image or the device cannot be opened, read or written.
    #[error(transparent)]
    Device(#[from] dendro_device::Error),
    /// The logical disk refuses something, or has failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An operation on files fails.
    #[error(transparent)]
    Files(#[from] FsError),
    /// There is no version of that name.
    #[error("there is no version \"{0}\"")]
    NoSuchVersion(String),
    /// A path leads through too many symbolic links.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The volume has a [`Runner`](crate::Runner), or had one.
    #[error("the volume has a runner, or had one")]
    HasRunner,
    /// A thread of a [`Runner`](crate::Runner) has panicked, which is a bug of this library or of
    /// what was given to [`when_durable`](crate::disk::LogicalDisk::when_durable). Its work is not
    /// done any more: open the volume again.
    #[error("a thread of the volume's runner has panicked and ended: {why}")]
    Panic {
        /// What the panic says.
        why: String,
    },
    /// An option that no volume can have, or no runner.
    #[error("{why}")]
    BadOption {
        /// What is wrong, for people.
        why: String,
    },
    /// A size that no volume can have.
    #[error("{len_bytes} bytes are too few or too many for a volume")]
    BadSize {
        /// The size.
        len_bytes: u64,
    },
    /// A size that no segment can have.
    #[error("segments of {len_bytes} bytes; they have a power of two from 128 KiB to 64 MiB")]
    BadSegmentSize {
        /// The size.
        len_bytes: u64,
    },
    /// The devices of a volume that lies on several cannot be opened together. What the message
    /// calls `-o device=PATH` and `-o degraded` is
    /// [`OpenOptions::device`](crate::OpenOptions::device) and
    /// [`OpenOptions::degraded`](crate::OpenOptions::degraded) here.
    #[error("{why}")]
    Devices {
        /// The number that Linux has for it: `ENODEV` if devices were not found.
        errno: i32,
        /// What is wrong, for people.
        why: String,
    },
    /// A block device cannot have that size, or a version is none.
    #[error("{why}")]
    BlockDevice {
        /// The number that Linux has for it.
        errno: i32,
        /// What is wrong, for people.
        why: String,
    },
    /// A version cannot be sent as a stream, or received from one.
    #[error("{why}")]
    Stream {
        /// The number that Linux has for it.
        errno: i32,
        /// What is wrong, for people.
        why: String,
    },
    /// The system refuses a thread, or random bytes.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Error {
    /// The number of the kind of an error of the logical disk ([`disk::Error::code`]), also where
    /// an operation on files has met it. `None` for others, of which the errno says all.
    ///
    /// [`disk::Error::code`]: crate::disk::Error::code
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Disk(error) | Self::Files(FsError::Disk(error)) => Some(error.code()),
            _ => None,
        }
    }

    /// The number that Linux has for the error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let of_io = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match self {
            Self::Device(dendro_device::Error::InUse { .. }) | Self::HasRunner => libc::EBUSY,
            Self::Device(dendro_device::Error::ReadOnly) => libc::EROFS,
            Self::Device(
                dendro_device::Error::Open { source, .. } | dendro_device::Error::Io { source, .. },
            ) => of_io(source),
            Self::Device(_)
            | Self::BadOption { .. }
            | Self::BadSize { .. }
            | Self::BadSegmentSize { .. } => libc::EINVAL,
            Self::Panic { .. } => libc::EIO,
            Self::Disk(error) => error.errno(),
            Self::Files(error) => error.errno(),
            Self::Loop => libc::ELOOP,
            Self::NoSuchVersion(_) => libc::ENOENT,
            Self::Devices { errno, .. }
            | Self::BlockDevice { errno, .. }
            | Self::Stream { errno, .. } => *errno,
            Self::System(error) => of_io(error),
        }
    }
}

impl From<dendro_set::Error> for Error {
    fn from(error: dendro_set::Error) -> Self {
        use dendro_set::Error as Set;
        let why = error.to_string();
        let errno = match error {
            Set::Device { source, .. } => return Self::Device(source),
            Set::Incomplete { .. }
            | Set::LacksPart { .. }
            | Set::OldPart { .. }
            | Set::NotWritable { .. }
            | Set::OnlyStale { .. } => libc::ENODEV,
            _ => libc::EINVAL,
        };
        Self::Devices { errno, why }
    }
}

impl From<dendro_block::Error> for Error {
    fn from(error: dendro_block::Error) -> Self {
        use dendro_block::Error as Block;
        let why = error.to_string();
        let errno = match error {
            Block::Disk(error) => return Self::Disk(error),
            Block::NoDevice(_) | Block::NoDeviceNamed(_) | Block::LaterVersion(_) => {
                libc::EOPNOTSUPP
            }
            Block::DamagedSize(_) => libc::EIO,
            _ => libc::EINVAL,
        };
        Self::BlockDevice { errno, why }
    }
}

impl From<Error> for io::Error {
    /// The error of that number. If there is a message that the number does not tell, it is kept.
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        match error {
            Error::System(error) => error,
            error => Self::new(kind, error),
        }
    }
}
