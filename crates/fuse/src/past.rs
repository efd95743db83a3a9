//! What the hidden directory shows.

use std::fmt;

use dendro_fs::FileSystem;

/// Names a snapshot for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Its branch.
    pub branch: u32,
    /// The last epoch that it sees, which no two snapshots have in common; from 1 on.
    pub epoch: u64,
}

/// The past of a disk.
pub trait Past: Send + Sync + fmt::Debug {
    /// The snapshots that have names.
    fn snapshots(&self) -> Vec<(String, Moment)>;

    /// The snapshot called `name`.
    fn snapshot(&self, name: &str) -> Option<Moment>;

    /// The snapshots that what `head` shows has gone through, called by their times as
    /// [`Self::at`] reads them.
    fn moments(&self, head: &FileSystem) -> Vec<(String, Moment)>;

    /// What was kept of `head` last before a time; `None` when nothing was, or it is no time.
    fn at(&self, head: &FileSystem, time: &str) -> Option<Moment>;

    /// Opens the file system of a snapshot.
    ///
    /// # Errors
    /// What the disk says, also when the snapshot was deleted.
    fn open(&self, moment: Moment) -> dendro_fs::Result<FileSystem>;
}
