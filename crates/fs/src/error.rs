//! The errors of the file system, and the numbers that Linux has for them.

use dendro_base::errno;
use dendro_disk::{ClientKind, Error as DiskError};

/// The result of a call to the file system.
pub type Result<T> = std::result::Result<T, FsError>;

/// One kind for each error that callers distinguish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// There is no entry of that name.
    #[error("no such file or directory")]
    NotFound,
    /// An entry or attribute of that name exists already.
    #[error("it exists already")]
    Exists,
    /// A name was looked up in a file that is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory, where none is allowed.
    #[error("is a directory")]
    IsDirectory,
    /// A directory to be removed or replaced has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name of more than 255 bytes, or a symbolic link's target of more than 4095.
    #[error("the name is too long")]
    NameTooLong,
    /// The link count would overflow.
    #[error("too many links")]
    TooManyLinks,
    /// Arguments that contradict each other.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// Past the largest file offset.
    #[error("the file would be too large")]
    FileTooBig,
    /// A limit other than the disk's space is reached: of a directory, or of a file's attributes.
    #[error("no room: {0}")]
    Full(&'static str),
    /// The file system was opened read-only, or shows the past.
    #[error("the file system is read-only")]
    ReadOnly,
    /// The file's flags forbid it, or its type does.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// The file's permissions do not allow it, or it is never allowed.
    #[error("denied: {0}")]
    Denied(&'static str),
    /// The file was removed, and is not open.
    #[error("the file was removed")]
    Stale,
    /// There is no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// An attribute's name is empty, or longer than 255 bytes.
    #[error("the attribute's name has a bad length")]
    AttributeName,
    /// An attribute's value is longer than 64 KiB.
    #[error("the attribute's value is too long")]
    AttributeTooBig,
    /// The volume, or the client of it that was named, is of another kind, and holds no files.
    #[error("{}", no_files(*.0))]
    NoFiles(ClientKind),
    /// This file system does not support that, or not for this kind of file.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// The caller cancelled the operation, of which a part is done.
    #[error("interrupted")]
    Interrupted,
    /// There is no data, or no hole, at or after the offset.
    #[error("nothing there")]
    NoData,
    /// What was read is damaged.
    #[error("damaged: {0}")]
    Corrupted(String),
    /// What was written and is not durable yet is lost: the disk accepts no more writes.
    #[error("what was written is not durable: {0}")]
    NotDurable(String),
    /// A temporary file could not be written or read.
    #[error(
        "a temporary file in {0}; set TMPDIR to a directory with more room, or allow more memory"
    )]
    Temporary(String),
    /// An error of the logical disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Says that a client of this kind has no files, and what is for it.
fn no_files(kind: ClientKind) -> String {
    match kind {
        ClientKind::Block => "that client of the volume is a block device, not files; \
                              `dendro block` and `dendro nbd` are for those"
            .into(),
        ClientKind::Unknown(code) => format!(
            "that client of the volume is of a kind ({code}) that this version of dendrofs does \
             not know; a later one opens it"
        ),
        _ => "it holds lists of a program, not files; the program itself opens them".into(),
    }
}

impl FsError {
    /// The error as a sync reports it. After the disk has failed, each sync reports that data are
    /// lost, so that no later sync looks successful. Other calls report that the disk accepts no
    /// changes.
    #[must_use]
    pub fn when_syncing(self) -> Self {
        match self {
            Self::Disk(DiskError::Failed(why)) => Self::NotDurable(why),
            other => other,
        }
    }

    /// Whether there is no room on the disk, or in the client's quota.
    pub(crate) const fn is_no_space(&self) -> bool {
        matches!(self, Self::Disk(DiskError::NoSpace { .. } | DiskError::OverQuota { .. }))
    }

    /// Linux's number for the error, positive.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NotFound => errno::ENOENT,
            Self::Exists => errno::EEXIST,
            Self::NotDirectory => errno::ENOTDIR,
            Self::IsDirectory => errno::EISDIR,
            Self::NotEmpty => errno::ENOTEMPTY,
            Self::NameTooLong => errno::ENAMETOOLONG,
            Self::TooManyLinks => errno::EMLINK,
            Self::Invalid(_) => errno::EINVAL,
            Self::FileTooBig => errno::EFBIG,
            Self::Full(_) => errno::ENOSPC,
            Self::ReadOnly => errno::EROFS,
            Self::NotPermitted(_) => errno::EPERM,
            Self::Denied(_) => errno::EACCES,
            Self::Stale => errno::ESTALE,
            Self::NoAttribute => errno::ENODATA,
            Self::AttributeName => errno::ERANGE,
            Self::AttributeTooBig => errno::E2BIG,
            Self::NotSupported(_) | Self::NoFiles(_) => errno::EOPNOTSUPP,
            Self::Interrupted => errno::EINTR,
            Self::NoData => errno::ENXIO,
            Self::Corrupted(_) | Self::NotDurable(_) | Self::Temporary(_) => errno::EIO,
            // A file system that meets these is damaged.
            Self::Disk(
                DiskError::NoSuchList(_) | DiskError::ListExists(_) | DiskError::RecordTooLong(_),
            ) => errno::EIO,
            Self::Disk(error) => error.errno(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_damaged_one_have_the_numbers_of_linux() {
        let full = DiskError::NoSpace { needed_bytes: 1, available_bytes: 0 };
        assert_eq!(FsError::from(full).errno(), 28);
        let over = DiskError::OverQuota { needed_bytes: 1, available_bytes: 0 };
        assert_eq!(FsError::from(over).errno(), 122);
        assert_eq!(FsError::from(DiskError::Corrupted("x".into())).errno(), 5);
        assert_eq!(FsError::from(DiskError::Failed("x".into())).errno(), 30);
        assert_eq!(FsError::from(DiskError::Failed("x".into())).when_syncing().errno(), 5);
        assert_eq!(FsError::Corrupted("x".into()).errno(), 5);
    }
}
