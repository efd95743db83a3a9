//! What a logical disk can answer.

use crate::types::{GROUP_PAGES, Lid, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, MAX_UNIT_GROUPS, View};

/// What a logical disk answers.
pub type Result<T> = std::result::Result<T, Error>;

/// One kind for each thing that a caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A change to a list that is not there.
    #[error("there is no list {0}")]
    NoSuchList(Lid),
    /// The creation of a list that is there, or that another version has, or whose number the disk
    /// keeps for itself.
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
        /// What the change takes at worst.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// A version that does not exist, or a change to one of the past.
    #[error("there is no {0} that allows this")]
    NoSuchView(View),
    /// A name for a version that is empty, too long, or has characters that would be taken for
    /// something else.
    #[error("'{0}' cannot be the name of a version: {1}")]
    BadName(String, &'static str),
    /// A name that another version has.
    #[error("there is a version called '{0}' already")]
    NameTaken(String),
    /// A version that must stay.
    #[error("{0} cannot be deleted: {1}")]
    InUse(View, &'static str),
    /// The disk is open for reading only, or was shut down.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// The disk stopped taking writes after an error; reads go on. It must be opened anew.
    #[error("stopped taking writes: {0}")]
    Failed(String),
    /// What was read from the device is not what was written there.
    #[error("damaged: {0}")]
    Corrupted(String),
    /// Something that was durable cannot be reached any more, as the disk is damaged where it starts or
    /// goes on. It was not opened, and nothing was written.
    #[error("something durable is lost: {0}")]
    Lost(String),
    /// The device could not be read.
    #[error("{0}")]
    Io(String),
}
