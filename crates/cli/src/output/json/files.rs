//! Files in versions.

use dendro_control::versions::{FileInfo, HistoryInfo, RemovedInfo, SnapshotInfo};
use serde::Serialize;

use super::unix_ns;

/// A file as it was.
#[derive(Serialize)]
pub(crate) struct File<'a> {
    inode: u64,
    kind: &'a str,
    size_bytes: u64,
    modified_unix_ns: i64,
}

/// What a path named for a time.
#[derive(Serialize)]
pub(crate) struct History<'a> {
    branch: u32,
    epoch: Option<u64>,
    name: Option<&'a str>,
    since_unix_ns: Option<i64>,
    until_unix_ns: Option<i64>,
    kept_in: usize,
    file: Option<File<'a>>,
}

/// A name that a directory had.
#[derive(Serialize)]
pub(crate) struct Removed<'a> {
    name: &'a str,
    snapshot: &'a SnapshotInfo,
    file: File<'a>,
}

/// When a file was written, in nanoseconds since 1970.
pub(crate) fn modified_unix_ns(file: &FileInfo) -> i64 {
    unix_ns(file.modified_unix_s).saturating_add(file.modified_ns.into())
}

impl<'a> From<&'a FileInfo> for File<'a> {
    fn from(file: &'a FileInfo) -> Self {
        Self {
            inode: file.inode,
            kind: &file.kind,
            size_bytes: file.size_bytes,
            modified_unix_ns: modified_unix_ns(file),
        }
    }
}

impl<'a> From<&'a HistoryInfo> for History<'a> {
    fn from(info: &'a HistoryInfo) -> Self {
        Self {
            branch: info.branch,
            epoch: info.epoch,
            name: info.snapshot.as_deref(),
            since_unix_ns: info.since_unix_ns,
            until_unix_ns: info.until_unix_ns,
            kept_in: info.snapshots,
            file: info.file.as_ref().map(File::from),
        }
    }
}

impl<'a> From<&'a RemovedInfo> for Removed<'a> {
    fn from(info: &'a RemovedInfo) -> Self {
        Self { name: &info.name, snapshot: &info.snapshot, file: File::from(&info.file) }
    }
}
