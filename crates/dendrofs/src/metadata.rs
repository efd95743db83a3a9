//! What is known of files.

use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dendro_fs::{Attr, FileKind, FileTime};

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, a socket or a device.
    Special,
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::Fifo | FileKind::CharDevice | FileKind::BlockDevice | FileKind::Socket => {
                Self::Special
            }
        }
    }
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// What it is.
    pub file_type: FileType,
    /// Its i-node number.
    pub ino: u64,
    /// Its size in bytes.
    pub len_bytes: u64,
    /// The bytes that it takes in the volume.
    pub used_bytes: u64,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has.
    pub link_count: u32,
    /// When its contents changed.
    pub modified: SystemTime,
    /// When its contents or attributes changed.
    pub changed: SystemTime,
    /// When it was made.
    pub created: SystemTime,
}

impl From<&Attr> for Metadata {
    fn from(attr: &Attr) -> Self {
        Self {
            file_type: attr.kind.into(),
            ino: attr.ino.0,
            len_bytes: attr.size_bytes,
            used_bytes: attr.blocks_512.saturating_mul(512),
            mode: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            link_count: attr.nlink,
            modified: system_time(attr.mtime),
            changed: system_time(attr.ctime),
            created: system_time(attr.btime),
        }
    }
}

fn system_time(time: FileTime) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let base = if time.secs < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    base + Duration::from_nanos(time.nanos.into())
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// What it names.
    pub file_type: FileType,
    /// Its i-node number.
    pub ino: u64,
}
