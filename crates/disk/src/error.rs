//! Errors of a logical disk.

use dendro_base::errno;

use crate::types::{GROUP_PAGES, Lid, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, MAX_UNIT_GROUPS, View};

/// The result of a call to a logical disk.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a logical disk. There is one kind for each way in which a caller can react.
///
/// [`Self::code`] and [`Self::errno`] name the kind for programs in other languages and for the
/// network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A change to a list that does not exist.
    #[error("there is no list {0}")]
    NoSuchList(Lid),
    /// The creation of a list that exists, in this or another version of the client, or whose
    /// number the disk uses itself.
    #[error("list {0} exists already")]
    ListExists(Lid),
    /// A record that is empty or longer than [`MAX_RECORD_LEN_BYTES`].
    #[error("a record of {0} bytes; it can have from 1 to {MAX_RECORD_LEN_BYTES}")]
    RecordTooLong(usize),
    /// Pages past [`MAX_PAGE_COUNT`].
    #[error("pages from {first_page} on, {count} of them: a list has {MAX_PAGE_COUNT} at most")]
    OutOfRange {
        /// The first page.
        first_page: u64,
        /// How many.
        count: u64,
    },
    /// A unit that changes more than [`MAX_UNIT_GROUPS`] of which not enough can be put off
    /// ([`LogicalDisk::commit`](crate::LogicalDisk::commit)).
    #[error(
        "the unit changes more than {MAX_UNIT_GROUPS} groups of {GROUP_PAGES} pages; it must be made \
         in several"
    )]
    UnitTooLong,
    /// A unit was committed on a condition that does not hold (any more). Whoever read what the
    /// unit is based on reads it again and makes a new unit.
    #[error("list {0} is not as the unit requires: it has changed since, or may have")]
    ConditionFailed(Lid),
    /// The change would not fit.
    #[error("no space left: {needed_bytes} bytes are needed, {available_bytes} can be had")]
    NoSpace {
        /// What the change needs at worst.
        needed_bytes: u64,
        /// What is available.
        available_bytes: u64,
    },
    /// The change would not fit in the client's [quota](crate::Quota).
    #[error("over the quota: {needed_bytes} bytes are needed, {available_bytes} are left of it")]
    OverQuota {
        /// What the change needs at worst.
        needed_bytes: u64,
        /// What is left of the quota.
        available_bytes: u64,
    },
    /// A version that does not exist, or a change to a snapshot.
    #[error("there is no {0} that allows this")]
    NoSuchView(View),
    /// A name for a version that is empty, too long, or would be ambiguous.
    #[error("'{0}' cannot be the name of a version: {1}")]
    BadName(String, &'static str),
    /// A name that another version has.
    #[error("there is a version called '{0}' already")]
    NameTaken(String),
    /// A version that must not be deleted.
    #[error("{0} cannot be deleted: {1}")]
    InUse(View, &'static str),
    /// A version that belongs to another client of the disk than what is to be done with it.
    #[error("{0} belongs to another client of the volume")]
    OtherClient(View),
    /// The disk is open for reading only, or was shut down.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// The disk no longer accepts writes after an error; reads still work. It must be opened again.
    #[error("stopped taking writes: {0}")]
    Failed(String),
    /// What was read from the device is not what was written there.
    #[error("damaged: {0}")]
    Corrupted(String),
    /// Durable data are lost, because the disk is damaged at a place from which they are found. It
    /// was not opened, and nothing was written.
    #[error("something durable is lost: {0}")]
    Lost(String),
    /// What was to outlast the loss of a device is on one device alone.
    #[error("it is durable, on one device: there is no other one that has a copy at present")]
    OneCopy,
    /// The device could not be read.
    #[error("{0}")]
    Io(String),
}

impl Error {
    /// The number of the kind of error. It never changes, and no other kind will ever have it.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::NoSuchList(_) => 1,
            Self::ListExists(_) => 2,
            Self::RecordTooLong(_) => 3,
            Self::OutOfRange { .. } => 4,
            Self::UnitTooLong => 5,
            Self::NoSpace { .. } => 6,
            Self::NoSuchView(_) => 7,
            Self::BadName(..) => 8,
            Self::NameTaken(_) => 9,
            Self::InUse(..) => 10,
            Self::OtherClient(_) => 11,
            Self::ReadOnly(_) => 12,
            Self::Failed(_) => 13,
            Self::Corrupted(_) => 14,
            Self::Lost(_) => 15,
            Self::Io(_) => 16,
            Self::ConditionFailed(_) => 17,
            Self::OneCopy => 18,
            Self::OverQuota { .. } => 19,
        }
    }

    /// Linux's number for the error, positive.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NoSuchList(_) => errno::ENOENT,
            Self::ListExists(_) | Self::NameTaken(_) => errno::EEXIST,
            Self::RecordTooLong(_) => errno::EMSGSIZE,
            Self::OutOfRange { .. } | Self::UnitTooLong => errno::EFBIG,
            Self::ConditionFailed(_) => errno::EAGAIN,
            Self::NoSpace { .. } => errno::ENOSPC,
            Self::OverQuota { .. } => errno::EDQUOT,
            Self::NoSuchView(_) => errno::ESTALE,
            Self::BadName(..) => errno::EINVAL,
            Self::OneCopy => errno::ENODEV,
            Self::InUse(..) => errno::EBUSY,
            Self::OtherClient(_) => errno::EXDEV,
            Self::ReadOnly(_) | Self::Failed(_) => errno::EROFS,
            Self::Corrupted(_) | Self::Lost(_) | Self::Io(_) => errno::EIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_have_one_code() {
        let text = || String::from("x");
        let list = Lid(1);
        let (needed_bytes, available_bytes) = (1, 0);
        let all = [
            Error::NoSuchList(list),
            Error::ListExists(list),
            Error::RecordTooLong(0),
            Error::OutOfRange { first_page: 1, count: 1 },
            Error::UnitTooLong,
            Error::NoSpace { needed_bytes, available_bytes },
            Error::NoSuchView(View::HEAD),
            Error::BadName(text(), "x"),
            Error::NameTaken(text()),
            Error::InUse(View::HEAD, "x"),
            Error::OtherClient(View::HEAD),
            Error::ReadOnly(text()),
            Error::Failed(text()),
            Error::Corrupted(text()),
            Error::Lost(text()),
            Error::Io(text()),
            Error::ConditionFailed(list),
            Error::OneCopy,
            Error::OverQuota { needed_bytes, available_bytes },
        ];
        let codes: Vec<u16> = all.iter().map(Error::code).collect();
        assert_eq!(codes, (1..=19).collect::<Vec<u16>>());
        assert!(all.iter().all(|error| error.errno() > 0));
    }
}
