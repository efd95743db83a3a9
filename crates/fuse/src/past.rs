//! The snapshots that the hidden directory `.dendro` shows.

use std::fmt;

use dendro_fs::FileSystem;

/// Identifies a snapshot permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotId {
    /// Its branch.
    pub branch: u32,
    /// The last epoch that it contains, from 1 on. No two snapshots have the same.
    pub epoch: u64,
}

/// The snapshots of a disk.
pub trait Past: Send + Sync + fmt::Debug {
    /// All snapshots that have names.
    fn snapshots(&self) -> Vec<(String, SnapshotId)>;

    /// The snapshot called `name`.
    fn snapshot(&self, name: &str) -> Option<SnapshotId>;

    /// The snapshots that `head` descends from. Their names are times, in the form that
    /// [`Self::at`] accepts.
    fn moments(&self, head: &FileSystem) -> Vec<(String, SnapshotId)>;

    /// The last snapshot that `head` descends from before a time; `None` if there is none, or if
    /// the text is not a time.
    fn at(&self, head: &FileSystem, time: &str) -> Option<SnapshotId>;

    /// Opens the file system of a snapshot.
    ///
    /// # Errors
    /// Errors of the disk, also if the snapshot was deleted.
    fn open(&self, id: SnapshotId) -> dendro_fs::Result<FileSystem>;
}
