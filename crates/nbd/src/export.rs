//! What is exported: block devices, and how they are found.

use std::sync::Arc;

/// The result of work on an export.
pub type Result<T> = std::result::Result<T, Failure>;

/// What a client is told of a failure, by its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// `EPERM`: a change to an export that is read-only.
    NotPermitted = 1,
    /// `EIO`: the device failed, or data are damaged.
    Io = 5,
    /// `EINVAL`: the request makes no sense.
    Invalid = 22,
    /// `ENOSPC`: no space is left, or a write past the end.
    NoSpace = 28,
    /// `EOVERFLOW`: more than one reply can hold.
    Overflow = 75,
    /// `ENOTSUP`: it cannot be done fast.
    NotSupported = 95,
    /// `ESHUTDOWN`: the server is being shut down.
    ShutDown = 108,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure it is.
    pub errno: Errno,
    /// What is told to people.
    pub message: String,
}

impl Failure {
    /// A failure with a message for people.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

/// A range of an export that is alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How long it is; more than zero.
    pub len_bytes: u64,
    /// Whether it takes no space, and reads as zeros.
    pub is_hole: bool,
}

/// A block device. Any number of threads use it at a time.
///
/// Ranges that the server gives are not empty and lie inside the device. Reads and writes have up
/// to [`crate::MAX_LEN_BYTES`], all others up to 4 GiB. No range needs to be aligned to anything.
/// Changes are asked for only where [`Self::is_read_only`] says no.
///
/// What [`Self::flush`] makes durable is everything that was done before on this device, by any
/// connection, because the server tells clients so. A change that is to be durable does the same,
/// even where nothing is left to be changed.
pub trait Export: Send + Sync {
    /// Its size. It may become larger while the export is open, and no smaller.
    fn size_bytes(&self) -> u64;

    /// Whether it can only be read.
    fn is_read_only(&self) -> bool;

    /// What is told to people of it; may be empty.
    fn description(&self) -> String;

    /// The size of the blocks that it is best read and written in: a power of two from 512.
    fn preferred_block_bytes(&self) -> u32;

    /// Fills `buf` with what is there from `offset` on.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`. If `is_durable`, it is durable when this returns.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn write(&self, offset: u64, data: &[u8], is_durable: bool) -> Result<()>;

    /// Makes a range zeros: a hole, or where `may_be_hole` is not set, something that is none.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn zero(&self, offset: u64, len_bytes: u64, may_be_hole: bool, is_durable: bool) -> Result<()>;

    /// Frees a range. It need not read as zeros then.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn trim(&self, offset: u64, len_bytes: u64, is_durable: bool) -> Result<()>;

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// Where that fails.
    fn flush(&self) -> Result<()>;

    /// Which parts of a range are holes: from `offset` on, at most `max_count` extents, which need
    /// not reach the end of the range. There is at least one.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn extents(&self, offset: u64, len_bytes: u64, max_count: usize) -> Result<Vec<Extent>>;
}

/// An export in a list of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    /// Its name, up to 4,096 bytes.
    pub name: String,
    /// What is told to people of it; may be empty.
    pub description: String,
}

/// The exports that there are.
pub trait Exports: Send + Sync {
    /// All of them, to be shown.
    ///
    /// # Errors
    /// Where they cannot be listed.
    fn list(&self) -> Result<Vec<ListedExport>>;

    /// The export of that name. The empty name is that of the default export. Connections to the
    /// same export may share one value.
    ///
    /// # Errors
    /// If there is none, or if it cannot be opened.
    fn open(&self, name: &str) -> Result<Arc<dyn Export>>;
}
