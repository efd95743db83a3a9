//! The structures in the logical disk's records: fixed layouts, little-endian.
//!
//! | list | content |
//! |-----:|-------|
//! | 1 | the root directory |
//! | 2 | the volume: record 0 is a [`VolumeV1`] with the label behind it; records 1 and 2, if a user other than root created the branch or a snapshot, are a [`MakerV1`] each; records 2³² to 2³² + 255 in the main branch, if damage was found, are a [`DamageV1`] each; record 2³² + 256 there, if it was ever scrubbed, is a [`ScrubV1`] |
//! | 3 | orphans: record *n* is an [`OrphanV1`] about i-node *n* |
//! | others | one file each |
//!
//! A file's list has its records in three regions. The highest two bits of the index distinguish
//! them:
//!
//! | index | content |
//! |-------|-------|
//! | 0 | the i-node: [`InodeV1`], with inline data behind it |
//! | 2⁶² + hash·2¹⁶ + slot·2⁸ + part | extended attributes whose name has that hash (46 bits): slot 0 is the [`XattrV1`] entries, other slots are values too long to share a record, cut in parts of [`XATTR_PART_LEN`] |
//! | 2⁶³ + hash | directory entries whose name has that hash (55 bits, never 0): [`DirEntryV1`] |
//!
//! Nothing that was read is trusted: decoding fails with [`FsError::Corrupted`] if it is malformed.

use std::mem::offset_of;

use dendro_disk::{Lid, MAX_RECORD_LEN_BYTES};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FsError, Result};

/// The list that describes the volume.
pub const VOLUME_LIST: Lid = Lid(2);
/// The list of orphans.
pub const ORPHAN_LIST: Lid = Lid(3);
/// The first list that is an ordinary file.
pub const FIRST_FILE_LIST: Lid = Lid(4);

/// Record index of the i-node, and of the volume's description.
pub const HEAD_INDEX: u64 = 0;
/// Record index of the user who created the branch, in the list that describes the volume.
pub const BRANCH_MAKER_INDEX: u64 = 1;
/// Record index of the user who created the last snapshot of the branch, in that list.
pub const SNAPSHOT_MAKER_INDEX: u64 = 2;
/// First record index of damage that was found, in that list.
pub const DAMAGE_BASE: u64 = 1 << 32;
/// One past the last of these indices.
pub const DAMAGE_END: u64 = DAMAGE_BASE + 256;
/// Record index of the scrub, in that list.
pub const SCRUB_INDEX: u64 = DAMAGE_END;
/// First record index of the extended attributes.
pub const XATTR_BASE: u64 = 1 << 62;
/// One past the last of these indices.
pub const XATTR_END: u64 = 2 << 62;
/// First record index of the directory entries, which reach to the end of the index space.
pub const DIR_BASE: u64 = 1 << 63;

/// Bits of a name's hash in the index of a directory record.
pub const DIR_HASH_BITS: u32 = 55;
/// Bits of a directory entry's slot in a readdir cookie, which is hash · 2⁷ + slot.
pub const DIR_SLOT_BITS: u32 = 7;
/// Bits of a name's hash in the index of an attribute's record.
pub const XATTR_HASH_BITS: u32 = 46;
/// Bytes of a long attribute value in each of its records.
pub const XATTR_PART_LEN: usize = 1024;

/// The first byte of an i-node, an orphan, and of records with entries.
pub const RECORD_VERSION: u8 = 1;
/// The first bytes of the volume's description.
pub const VOLUME_MAGIC: [u8; 8] = *b"dendroFS";

/// Read-only compatible feature: names are hidden, in a copy of a volume that is given away. They
/// do not hash to the records that hold them, and entries state whether they did ([`MISPLACED`]).
pub const HIDDEN_NAMES: u32 = 1 << 0;
/// Incompatible feature: files may have ranges that read as zeros while they are being freed
/// ([`STATE_PUNCHING`]). It is set when there is the first one.
pub const PUNCHED_RANGES: u32 = 1 << 0;
/// Incompatible feature: the disk holds lists of a program, and no files. There is nothing but this
/// description that the file system knows.
pub const LISTS: u32 = 1 << 1;
/// In an entry with a hidden name: the name did not hash to the record that holds it.
pub const MISPLACED: u8 = 1;

/// State bit: the data are inline, behind the i-node in its record.
pub const STATE_INLINE: u32 = 1 << 0;
/// State bit: there is a `security.capability` attribute, which the next change of data removes.
pub const STATE_CAPABILITY: u32 = 1 << 1;
/// State bit: there may be pages behind the end of the file, all zeros (preallocation).
pub const STATE_EOF_PAGES: u32 = 1 << 2;
/// State bit: pages behind the end of the file are being freed. The i-node is on the orphan list.
pub const STATE_TRUNCATING: u32 = 1 << 3;
/// State bit: the pages of a range are being freed, and read as zeros already. A [`PunchedV1`]
/// follows the i-node's fields, and the i-node is on the orphan list.
pub const STATE_PUNCHING: u32 = 1 << 4;
/// All state bits of this version.
pub const STATE_ALL: u32 =
    STATE_INLINE | STATE_CAPABILITY | STATE_EOF_PAGES | STATE_TRUNCATING | STATE_PUNCHING;

/// Orphan: the file has no name, and is to be removed.
pub const ORPHAN_REMOVE: u8 = 1;
/// Orphan: pages behind the end of the file are to be freed.
pub const ORPHAN_TRUNCATE: u8 = 2;
/// Orphan: the pages of the range that the i-node names are to be freed.
pub const ORPHAN_PUNCH: u8 = 3;

/// An i-node, version 1. Inline data follows at `header_len`; a later minor version may have more
/// fields before it.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// |   0 | 1 | `version` | 1 |
/// |   1 | 1 | `reserved0` | 0 |
/// |   2 | 2 | `header_len` | bytes before the inline data, 120 or more; 136 or more with `STATE_PUNCHING` |
/// |   4 | 4 | `mode` | type and permission bits |
/// |   8 | 4 | `uid` | owner |
/// |  12 | 4 | `gid` | group |
/// |  16 | 4 | `nlink` | names; for a directory 2 and one for each directory in it |
/// |  20 | 4 | `flags` | users' flags (`FS_IOC_GETFLAGS`) |
/// |  24 | 4 | `state` | `STATE_*` bits |
/// |  28 | 4 | `generation` | distinguishes files that had the same number |
/// |  32 | 8 | `size` | bytes; for a directory the bytes of its entries |
/// |  40 | 8 | `pages` | pages that are not holes, those still to be freed left out |
/// |  48 | 8 | `parent` | a directory's parent; for others the directory that was last given a name of it, or 0 |
/// |  56 | 8 | `atime_secs` | last read |
/// |  64 | 8 | `mtime_secs` | last change of contents |
/// |  72 | 8 | `ctime_secs` | last change |
/// |  80 | 8 | `btime_secs` | creation |
/// |  88 | 4 | `atime_nanos` | below 10⁹, as those that follow |
/// |  92 | 4 | `mtime_nanos` | |
/// |  96 | 4 | `ctime_nanos` | |
/// | 100 | 4 | `btime_nanos` | |
/// | 104 | 4 | `rdev` | a device's number |
/// | 108 | 4 | `project` | project id, for quotas |
/// | 112 | 4 | `xattr_names_len` | bytes that all attribute names take, with one more for each |
/// | 116 | 4 | `reserved1` | 0 |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct InodeV1 {
    pub version: u8,
    pub reserved0: u8,
    pub header_len: U16,
    pub mode: U32,
    pub uid: U32,
    pub gid: U32,
    pub nlink: U32,
    pub flags: U32,
    pub state: U32,
    pub generation: U32,
    pub size: U64,
    pub pages: U64,
    pub parent: U64,
    pub atime_secs: I64,
    pub mtime_secs: I64,
    pub ctime_secs: I64,
    pub btime_secs: I64,
    pub atime_nanos: U32,
    pub mtime_nanos: U32,
    pub ctime_nanos: U32,
    pub btime_nanos: U32,
    pub rdev: U32,
    pub project: U32,
    pub xattr_names_len: U32,
    pub reserved1: U32,
}

const _: () = assert!(size_of::<InodeV1>() == 120);
const _: () = assert!(offset_of!(InodeV1, size) == 32);
const _: () = assert!(offset_of!(InodeV1, atime_secs) == 56);
const _: () = assert!(offset_of!(InodeV1, rdev) == 104);

/// The range of pages that is being freed. It belongs to the head of an i-node that has
/// [`STATE_PUNCHING`], and lies at its end.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// | 0 | 8 | `first_page` | the first page of the range |
/// | 8 | 8 | `end_page` | the first page behind it |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct PunchedV1 {
    pub first_page: U64,
    pub end_page: U64,
}

const _: () = assert!(size_of::<PunchedV1>() == 16);

/// The volume's description, version 1; the label follows at `header_len`.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// |  0 |  8 | `magic` | `dendroFS` |
/// |  8 |  2 | `version` | 1 |
/// | 10 |  2 | `header_len` | bytes before the label, 64 or more |
/// | 12 |  4 | `compatible` | features that may be ignored |
/// | 16 |  4 | `read_only_compatible` | features that may be ignored when only reading |
/// | 20 |  4 | `incompatible` | features that must be known |
/// | 24 | 16 | `hash_key` | the SipHash key of names |
/// | 40 |  8 | `created_secs` | when it was made |
/// | 48 |  4 | `created_nanos` | |
/// | 52 |  2 | `label_len` | bytes of the label |
/// | 54 | 10 | `reserved` | 0 |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct VolumeV1 {
    pub magic: [u8; 8],
    pub version: U16,
    pub header_len: U16,
    pub compatible: U32,
    pub read_only_compatible: U32,
    pub incompatible: U32,
    pub hash_key: [u8; 16],
    pub created_secs: I64,
    pub created_nanos: U32,
    pub label_len: U16,
    pub reserved: [u8; 10],
}

const _: () = assert!(size_of::<VolumeV1>() == 64);
const _: () = assert!(offset_of!(VolumeV1, hash_key) == 24);

/// An orphan, version 1.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// | 0 | 1 | `version` | 1 |
/// | 1 | 1 | `kind` | `ORPHAN_*` |
/// | 2 | 6 | `reserved` | 0 |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct OrphanV1 {
    pub version: u8,
    pub kind: u8,
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<OrphanV1>() == 8);

/// The head of a directory entry, version 1; the name follows. A directory record is a version
/// byte and then entries.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// |  0 | 8 | `ino` | what it names |
/// |  8 | 1 | `slot` | below 128, and no other entry of the record has it |
/// |  9 | 1 | `kind` | `DT_*` |
/// | 10 | 1 | `name_len` | 1 to 255 |
/// | 11 | 1 | `reserved` | 0; with hidden names 1 for a name in the wrong record |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct DirEntryV1 {
    pub ino: U64,
    pub slot: u8,
    pub kind: u8,
    pub name_len: u8,
    pub reserved: u8,
}

const _: () = assert!(size_of::<DirEntryV1>() == 12);
// There must be enough slots for a record full of the smallest entries.
const _: () = assert!(MAX_RECORD_LEN_BYTES / (size_of::<DirEntryV1>() + 1) < 1 << DIR_SLOT_BITS);

/// The user who created a version, version 1. It belongs only to the version that it names:
/// descendants of that version inherit the record.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// |  0 | 1 | `version` | 1 |
/// |  1 | 3 | `reserved` | 0 |
/// |  4 | 4 | `uid` | the user |
/// |  8 | 4 | `branch` | the version's branch |
/// | 12 | 4 | `reserved1` | 0 |
/// | 16 | 8 | `epoch` | the snapshot's epoch; 0: the branch's head |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct MakerV1 {
    pub version: u8,
    pub reserved: [u8; 3],
    pub uid: U32,
    pub branch: U32,
    pub reserved1: U32,
    pub epoch: U64,
}

const _: () = assert!(size_of::<MakerV1>() == 24);
const _: () = assert!(offset_of!(MakerV1, epoch) == 16);

/// In a [`DamageV1`]: no version was found that has it.
pub const DAMAGE_NO_VERSION: u32 = u32::MAX;
/// In a [`DamageV1`]: it is in a branch's head.
pub const DAMAGE_OF_HEAD: u64 = u64::MAX;

/// A place on the device whose content is not what was written there, version 1. The path and the
/// description follow.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// |  0 | 1 | `version` | 1 |
/// |  1 | 1 | `part` | 0: a page, or a node of the map; 1: the header or records of a partial segment; 2: the checkpoint; 3: the superblock |
/// |  2 | 2 | `path_len` | bytes of the path; 0: not found |
/// |  4 | 2 | `problem_len` | bytes of the description, UTF-8 |
/// |  6 | 2 | `reserved1` | 0 |
/// |  8 | 4 | `branch` | of a version that has it; 2³² − 1: none was found |
/// | 12 | 4 | `reserved2` | 0 |
/// | 16 | 8 | `epoch` | the snapshot's; 2⁶⁴ − 1: the branch's head |
/// | 24 | 8 | `addr` | where it lies on the device, in bytes |
/// | 32 | 8 | `list` | the list of a page; 0: it is no page |
/// | 40 | 8 | `page` | the index of the page in it |
/// | 48 | 8 | `first_nanos` | when it was found first, since 1970 |
/// | 56 | 8 | `last_nanos` | when it was found last |
/// | 64 | 8 | `met_count` | how often it was found |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct DamageV1 {
    pub version: u8,
    pub part: u8,
    pub path_len: U16,
    pub problem_len: U16,
    pub reserved1: U16,
    pub branch: U32,
    pub reserved2: U32,
    pub epoch: U64,
    pub addr: U64,
    pub list: U64,
    pub page: U64,
    pub first_nanos: I64,
    pub last_nanos: I64,
    pub met_count: U64,
}

const _: () = assert!(size_of::<DamageV1>() == 72);
const _: () = assert!(offset_of!(DamageV1, epoch) == 16);

/// The scrub of the volume, version 1. The position follows, as the logical disk states it.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// |  0 | 1 | `version` | 1 |
/// |  1 | 1 | `state` | of the newest pass: 0 running, 1 paused, 2 finished, 3 cancelled |
/// |  2 | 2 | `position_len` | bytes of the position |
/// |  4 | 4 | `memory_kib` | the memory for what it reads next, in KiB; 0: 16 MiB |
/// |  8 | 8 | `started_nanos` | when the newest pass began, since 1970 |
/// | 16 | 8 | `rate` | the most bytes that it reads in a second; 0: what the use of the volume leaves |
/// | 24 | 8 | `last_started_nanos` | when the last pass that reached the end began |
/// | 32 | 8 | `last_ended_nanos` | when that ended; 0: there was none |
/// | 40 | 8 | `last_checked_bytes` | what that read |
/// | 48 | 8 | `last_found_count` | damaged places that it found |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct ScrubV1 {
    pub version: u8,
    pub state: u8,
    pub position_len: U16,
    pub memory_kib: U32,
    pub started_nanos: I64,
    pub rate: U64,
    pub last_started_nanos: I64,
    pub last_ended_nanos: I64,
    pub last_checked_bytes: U64,
    pub last_found_count: U64,
}

const _: () = assert!(size_of::<ScrubV1>() == 56);
const _: () = assert!(offset_of!(ScrubV1, last_found_count) == 48);

/// The head of an extended attribute, version 1; the name follows, and when `slot` is 0 the value.
/// An attribute record is a version byte and then attributes.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// | 0 | 4 | `value_len` | bytes of the value, up to 65536 |
/// | 4 | 1 | `slot` | 0: the value is here; else it is in the records of that slot |
/// | 5 | 1 | `name_len` | 1 to 255 |
/// | 6 | 2 | `reserved` | 0; with hidden names 1 for a name in the wrong record |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes the fields")]
pub struct XattrV1 {
    pub value_len: U32,
    pub slot: u8,
    pub name_len: u8,
    pub reserved: U16,
}

const _: () = assert!(size_of::<XattrV1>() == 8);
// The version byte, a head and a longest name fit a record.
const _: () = assert!(1 + size_of::<XattrV1>() + 255 <= MAX_RECORD_LEN_BYTES);
// Eight bits are enough for the numbers of all parts of a longest value.
const _: () = assert!(crate::types::MAX_XATTR_LEN_BYTES.div_ceil(XATTR_PART_LEN) <= 256);

/// Splits a head of fixed length off the front of `bytes`.
///
/// # Errors
/// [`FsError::Corrupted`], which names `what`, if there are too few bytes.
pub fn split_head<'a, T>(bytes: &'a [u8], what: &str) -> Result<(&'a T, &'a [u8])>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(bytes)
        .map_err(|_| FsError::Corrupted(format!("{what} ends after {} bytes", bytes.len())))
}

/// Splits `len` bytes off the front of `bytes`.
///
/// # Errors
/// [`FsError::Corrupted`], which names `what`, if there are fewer bytes.
pub fn split_bytes<'a>(bytes: &'a [u8], len: usize, what: &str) -> Result<(&'a [u8], &'a [u8])> {
    bytes.split_at_checked(len).ok_or_else(|| {
        FsError::Corrupted(format!("{what} of {len} bytes, of which {} are there", bytes.len()))
    })
}

/// Takes the version byte off a record with entries.
///
/// # Errors
/// [`FsError::Corrupted`], which names `what`, for another version.
pub fn split_version<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => Ok(rest),
        Some((version, _)) => {
            Err(FsError::Corrupted(format!("{what} has the unknown version {version}")))
        }
        None => Err(FsError::Corrupted(format!("{what} is empty"))),
    }
}

#[cfg(test)]
mod tests;
