//! Files and directories: a client of [`dendro_disk::LogicalDisk`] that knows neither how the disk
//! lays things out nor how requests arrive.
//!
//! - [`FileSystem`]: the operations, safe to call from any number of threads.
//! - [`Ino`], [`Attr`], [`SetAttr`] …: plain values in, plain values out.
//! - [`FsError`]: what can go wrong, with Linux's number for it.
//! - [`KeptDamage`]: damage that was met, until somebody has taken note of it.
//! - [`verify`]: checks that what a disk holds is a file system.
//! - [`paths_of`]: what files are called whose numbers are known.
//! - [`versions`]: what changed between two views, the past of a file, and bringing it back.
//! - [`mod@format`]: what it keeps in the disk's records.
//!
//! A file is a list (DESIGN §10). Each operation is one atomic recovery unit, so that after a crash
//! it has happened or it has not; the exceptions are named at [`FileSystem::fallocate`] and
//! [`FileSystem::copy_file_range`]. Permissions are the kernel's to check (`default_permissions`); what follows from
//! ownership (set-id bits, ACL inheritance, the sticky group of directories) is done here. Only what is asked
//! of [`versions`] for another user ([`Who`]) does not come through the kernel, and is checked here.
//!
//! Left out: the transport (FUSE), caching of data, background threads.

#![forbid(unsafe_code)]

mod acl;
mod attributes;
mod copy;
mod damage;
mod data;
mod dir;
mod error;
mod fallocate;
mod filesystem;
pub mod format;
mod inode;
mod names;
mod namespace;
mod naming;
mod node;
mod orphan;
mod permission;
mod readdir;
mod records;
mod rename;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod truncate;
mod types;
mod verify;
pub mod versions;
mod xattr;

#[cfg(test)]
mod tests;

pub use damage::{KeptDamage, MAX_KEPT_DAMAGE, keep_damage, kept_damage};
pub use error::{FsError, Result};
pub use filesystem::FileSystem;
pub use naming::paths_of;
pub use permission::Who;
pub use types::{
    AtimePolicy, Attr, Caller, DirEntry, FallocateFlags, FileFlags, FileKind, FileTime,
    FormatOptions, Ino, MAX_FILE_SIZE_BYTES, MAX_NAME_LEN_BYTES, MAX_SYMLINK_LEN_BYTES,
    MAX_XATTR_LEN_BYTES, MemoryUse, OpenOptions, Options, Patron, RenameFlags, Seek, SetAttr,
    SetTime, StatFs, XattrFlags,
};
pub use verify::{Finding, FindingCode, Severity, verify};
