//! A reference model of a file system, random operations, and comparison of whole trees: for the
//! tests of the file system over any disk.
//!
//! - [`Step`]: an operation and its caller; [`Generator`] draws them from a seed.
//! - [`Model`]: executes them on plain maps; [`Driver`] executes them on a [`crate::FileSystem`].
//!   Both return an [`Outcome`].
//! - [`Tree`]: everything that users can see of a file system, for comparisons.
//! - [`ReadableTree`]: as much of it as can be read of a damaged one.
//! - [`StepClock`]: the time of a step, the same for both.
//!
//! With [`Profile::one_unit_only`] each step is one atomic recovery unit, as far as users can see.
//! So after a crash the tree is that of the model after some number of steps. Mount without access
//! times then ([`crate::AtimePolicy::Noatime`]), since these are written later.

mod driver;
mod generator;
mod model;
mod readable;
mod tree;

use dendro_base::sync::atomic::{AtomicI64, Ordering};
use dendro_base::{Clock, Timestamp};

pub use driver::Driver;
pub use generator::{Generator, Profile};
pub use model::Model;
pub use readable::{ReadableNode, ReadableTree};
pub use tree::{PAGE, Tree, TreeNode, digest};

use crate::types::{Caller, FallocateFlags, FileKind, FileTime, RenameFlags, XattrFlags};

/// How many files can be open, each under a number.
pub const SLOT_COUNT: usize = 4;

/// When the first step happens: 2026-01-01T00:00:00Z.
const START_SECS: i64 = 1_767_225_600;

/// A clock that does not advance during a step.
#[derive(Debug, Default)]
pub struct StepClock(AtomicI64);

impl StepClock {
    /// Sets the clock to the time of step number `step`, and returns that time.
    pub fn set_step(&self, step: u64) -> FileTime {
        self.0.store(i64::try_from(step).unwrap_or(0), Ordering::Relaxed);
        self.now().into()
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp((START_SECS + self.0.load(Ordering::Relaxed)) * 1_000_000_000 + 7)
    }
}

/// A file, by its path or by the number under which it is open. The names of a path are separated
/// by `/`. The empty path is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// The file at this path.
    Path(String),
    /// The file that is open under this number, which is below [`SLOT_COUNT`].
    Slot(usize),
}

/// Bytes that a seed determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The number of bytes.
    pub len: usize,
    /// The seed.
    pub seed: u64,
}

impl Pattern {
    /// The bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        dendro_base::Rng::new(self.seed).fill(&mut bytes);
        bytes
    }
}

/// An operation of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls they are named after")]
pub enum Operation {
    /// Creates a regular file or opens the one that exists, and keeps it open under a number.
    Create { path: String, mode: u32, exclusive: bool, slot: Option<usize> },
    /// Creates a fifo, socket or device.
    Mknod { path: String, kind: FileKind, mode: u32, rdev: u32 },
    /// Creates a directory.
    Mkdir { path: String, mode: u32 },
    /// Creates a symbolic link.
    Symlink { path: String, target: String },
    /// Gives a file another name.
    Link { from: FileRef, path: String },
    /// Removes a name.
    Unlink { path: String },
    /// Removes a directory.
    Rmdir { path: String },
    /// Renames.
    Rename { from: String, to: String, flags: RenameFlags },
    /// Creates a file without a name, and keeps it open.
    Tmpfile { path: String, mode: u32, slot: usize },
    /// Opens a regular file, and keeps it open.
    Open { path: String, slot: usize },
    /// Closes an open file.
    Close { slot: usize },
    /// Reads.
    Read { file: FileRef, offset: u64, len: usize },
    /// Writes.
    Write { file: FileRef, offset: u64, data: Pattern, kill_priv: bool },
    /// Sets the size.
    Truncate { file: FileRef, size: u64, kill_priv: bool },
    /// Sets the permission bits.
    Chmod { file: FileRef, mode: u32 },
    /// Sets owner and group.
    Chown { file: FileRef, uid: Option<u32>, gid: Option<u32> },
    /// Sets access and modification time.
    Utimes { file: FileRef, atime: FileTime, mtime: FileTime },
    /// Sets an extended attribute.
    SetXattr { file: FileRef, name: String, value: Pattern, flags: XattrFlags },
    /// Removes an extended attribute.
    RemoveXattr { file: FileRef, name: String },
    /// Allocates, punches, zeroes, collapses or inserts.
    Fallocate { file: FileRef, offset: u64, len: u64, flags: FallocateFlags },
    /// Copies between files.
    CopyRange { from: FileRef, offset_in: u64, to: FileRef, offset_out: u64, len: u64 },
    /// Makes a file durable.
    Fsync { file: FileRef },
    /// Makes everything durable.
    Sync,
}

impl Operation {
    /// Whether everything before it is durable after it has succeeded.
    #[must_use]
    pub const fn is_barrier(&self) -> bool {
        matches!(self, Self::Fsync { .. } | Self::Sync)
    }
}

/// An operation and its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The caller.
    pub caller: Caller<'static>,
    /// The operation.
    pub operation: Operation,
}

/// The result of a step: what was read, how much was written or copied; or Linux's error number.
pub type Outcome = Result<Answer, i32>;

/// The result of a step that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Done,
    /// How many bytes.
    Len(u64),
    /// What was read.
    Bytes(Vec<u8>),
}

/// `EBADF`: no file is open under the number.
pub(crate) const EBADF: i32 = 9;
/// `EINVAL`.
pub(crate) const EINVAL: i32 = 22;

/// A path's directory and last name; `None` for the root.
pub(crate) fn split_path(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/') {
        Some(parts) => Some(parts),
        None if path.is_empty() => None,
        None => Some(("", path)),
    }
}
