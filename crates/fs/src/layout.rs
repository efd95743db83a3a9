//! What the file system keeps in the logical disk's records, and at which index: encodings, and
//! access to single records.
//!
//! - [`mod@format`]: the structures, byte by byte.
//! - [`acl`]: POSIX access control lists, the value of two extended attributes.
//! - [`inode`], [`dirent`], [`volume`]: i-nodes, directory entries, the volume's description.
//! - [`names`]: which names are valid, and the hash that gives the index of a name's record.
//! - [`xattr_records`]: extended attributes of one file.
//! - [`orphan_list`]: entries of the orphan list.
//! - [`record_edits`]: several changed records of one atomic recovery unit.
//!
//! Arrows: `xattr_records` → `names`, `record_edits`; `volume` → `names`; all → `format`. Nothing
//! here knows of locks, caches or mounts.

pub(crate) mod acl;
pub(crate) mod dirent;
pub mod format;
pub(crate) mod inode;
pub(crate) mod names;
pub(crate) mod orphan_list;
pub(crate) mod record_edits;
pub(crate) mod volume;
pub(crate) mod xattr_records;
