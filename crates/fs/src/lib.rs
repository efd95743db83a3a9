//! Files and directories: a client of [`dendro_disk::LogicalDisk`] that knows neither how the disk
//! stores things nor how requests arrive.
//!
//! - [`FileSystem`]: the operations, which any number of threads may call.
//! - [`Ino`], [`Attr`], [`SetAttr`] …: plain values in, plain values out.
//! - [`FsError`]: the errors, with Linux's numbers.
//! - [`KeptDamage`]: damage that was found, recorded until it is acknowledged. [`KeptScrub`]: the
//!   scrub, recorded so that it continues after a restart.
//! - [`describe_lists`]: describes a disk that holds lists of a program, and no files.
//! - [`create_client`]: makes another client of a disk; [`contents_of`]: what one has.
//! - [`check`], [`verify`]: check that a disk holds a sound file system.
//! - [`repair`]: mends what a check has found.
//! - [`Hider`]: hides names and contents in copies of a volume that are given away.
//! - [`paths_of`]: the paths of files whose numbers are known.
//! - [`versions`]: what changed between two views, the versions of a file, and restoring it.
//! - [`mod@format`]: what the file system stores in the disk's records.
//!
//! A file is a list (DESIGN §10). Each operation is one atomic recovery unit, so that after a crash
//! all of it has happened, or nothing. The exceptions are documented at [`FileSystem::fallocate`]
//! and [`FileSystem::copy_file_range`]. The kernel checks permissions (`default_permissions`). This
//! crate does what follows from ownership: set-id bits, inheritance of ACLs, the group of
//! set-group-id directories. Only the functions of [`versions`] check the permissions of a user
//! ([`Credentials`]) themselves, since their requests do not come through the kernel.
//!
//! Left out: the transport (FUSE), caching of data, background threads.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `types`, `error` | the values and errors of the interface |
//! | `layout` | records on the disk: i-nodes, directory entries, attributes |
//! | `permission` | permission checks for requests that do not come through the kernel |
//! | `state` | a mounted view: i-nodes in memory, locks, commits |
//! | `no_space` | how much space there is, and where ENOSPC and EDQUOT come from |
//! | `durability` | fsync and sync |
//! | `xattr` | extended attributes and ACLs |
//! | `privileges` | set-id bits and capabilities that changes remove |
//! | `data` | reading, writing, truncating, allocating, copying |
//! | `orphans` | files without a name |
//! | `attributes` | stat, chmod, chown, truncate |
//! | `open` | opening files |
//! | `namespace` | looking up, creating, linking, removing, renaming, listing |
//! | `staged` | incomplete trees of an undelete |
//! | `mount` | creating, opening and closing a file system |
//! | `filesystem` | [`FileSystem`], the façade of all these |
//! | `check`, `paths`, `damage` | readers and writers of a disk without a mount; use `layout` only |
//! | `hide` | hides names and contents in records; uses `layout` only |
//! | `repair` | mends what `check` finds, without a mount; uses `layout` and `check` |
//! | `versions` | uses `layout`, `permission`, `staged` and `filesystem` |

#![forbid(unsafe_code)]

mod attributes;
mod check;
mod damage;
mod data;
mod durability;
mod error;
mod filesystem;
mod hide;
mod layout;
mod mount;
mod namespace;
mod no_space;
mod open;
mod orphans;
mod paths;
mod permission;
mod privileges;
mod repair;
mod scrub;
mod staged;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod types;
pub mod versions;
mod xattr;

#[cfg(test)]
mod tests;

pub use check::{
    CheckOptions, Checked, Counts, Finding, FindingCode, Found, MAX_VERSIONS_OF_A_FINDING, Mending,
    NamedEntry, Progress, Severity, check, verify,
};
pub use damage::{DamagedPart, KeptDamage, MAX_KEPT_DAMAGE, keep_damage, kept_damage};
pub use error::{FsError, Result};
pub use filesystem::FileSystem;
pub use hide::{Hider, end_of_data};
pub use layout::dirent::names_in;
pub use layout::format;
pub use layout::volume::contents_of;
pub use mount::{create_client, describe_lists};
pub use paths::paths_of;
pub use repair::{BEFORE_REPAIR, RepairOptions, Repaired, can_repair, repair, repair_branches};
pub use scrub::{KeptScrub, ScrubPass, ScrubState, keep_scrub, kept_scrub};
pub use types::{
    AtimePolicy, Attr, Caller, Credentials, DirEntry, FallocateFlags, FileFlags, FileKind,
    FileTime, FormatOptions, FreeingLimits, Ino, LongChange, MAX_FILE_SIZE_BYTES,
    MAX_NAME_LEN_BYTES, MAX_SYMLINK_LEN_BYTES, MAX_XATTR_LEN_BYTES, MemoryUse, OpenOptions,
    Options, RenameFlags, Seek, SetAttr, SetTime, StatFs, XattrFlags,
};
