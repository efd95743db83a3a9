//! Errors of a logical disk.

use crate::types::{GROUP_PAGES, Lid, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, MAX_UNIT_GROUPS, View};

/// The result of a call to a logical disk.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a logical disk. There is one kind for each way in which a caller can react.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// A unit that changes more than [`MAX_UNIT_GROUPS`].
    #[error(
        "the unit changes more than {MAX_UNIT_GROUPS} groups of {GROUP_PAGES} pages; it must be made \
         in several"
    )]
    UnitTooLong,
    /// The change would not fit.
    #[error("no space left: {needed_bytes} bytes are needed, {available_bytes} can be had")]
    NoSpace {
        /// What the change needs at worst.
        needed_bytes: u64,
        /// What is available.
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
    /// The device could not be read.
    #[error("{0}")]
    Io(String),
}
