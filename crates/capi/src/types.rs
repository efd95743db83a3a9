//! Structures and constants of the header.

use std::ffi::c_char;
use std::time::{SystemTime, UNIX_EPOCH};

use dendrofs::{FileType, Metadata, disk};

/// Bytes of a page.
pub const DENDRO_PAGE_SIZE: u32 = 4096;

/// The most bytes that a record can have. The fewest are 1.
pub const DENDRO_MAX_RECORD_SIZE: u32 = 1024;

/// The pages of a list have indexes below this.
pub const DENDRO_MAX_PAGE_COUNT: u64 = 0x8_0000_0000_0000;

/// Pages form groups of so many, which begin at multiples of it.
pub const DENDRO_GROUP_PAGES: u32 = 32;

/// The most groups of pages that one unit can change.
pub const DENDRO_MAX_UNIT_GROUPS: u32 = 1024;

/// The list that each volume of lists has from the beginning: a place for what a program has to
/// find again.
pub const DENDRO_ROOT_LIST: u64 = 1;

/// Room for a name of a version or of a file, with its zero byte.
pub const DENDRO_NAME_SIZE: usize = 256;

/// Room for the identity of a volume, with its zero byte.
pub const DENDRO_UUID_SIZE: usize = 37;

/// The epoch of a view that is the head of its branch.
pub const DENDRO_HEAD: u64 = u64::MAX;

/// All that was committed by the time of the call.
pub const DENDRO_LATEST: u64 = u64::MAX;

/// Contents of a volume: files and directories.
pub const DENDRO_FILES: u32 = 1;
/// Contents of a volume: lists.
pub const DENDRO_LISTS: u32 = 2;

/// Kind of a client: one that this version of the library does not know.
pub const DENDRO_CLIENT_UNKNOWN: u32 = 0;
/// Kind of a client: files and directories.
pub const DENDRO_CLIENT_FILES: u32 = 1;
/// Kind of a client: a block device, whose blocks are the pages of the first list.
pub const DENDRO_CLIENT_BLOCK: u32 = 2;
/// Kind of a client: lists of a program.
pub const DENDRO_CLIENT_APPLICATION: u32 = 3;

/// No quota, for dendro_client_set_quota().
pub const DENDRO_NO_QUOTA: u64 = u64::MAX;

/// Option: nothing is written. What lies behind the last checkpoint is read into memory.
pub const DENDRO_READ_ONLY: u32 = 1;
/// Option: segments that become free are not given back to the device, so that an image file does
/// not shrink.
pub const DENDRO_NO_DISCARD: u32 = 2;
/// Option: devices of the volume may be absent. A mirrored volume is opened with those that have
/// everything; a volume that is spread over devices can only be read then.
pub const DENDRO_DEGRADED: u32 = 4;

/// Flag of dendro_file_open(): the file is to be written. Without it, writing answers EBADF.
pub const DENDRO_WRITE: u32 = 1;
/// Flag of dendro_file_open(): the file is made if there is none, with permission bits 0644.
pub const DENDRO_CREATE: u32 = 2;
/// Flag of dendro_file_open(), beside DENDRO_CREATE: the file must not be there before.
pub const DENDRO_EXCLUSIVE: u32 = 4;
/// Flag of dendro_file_open(): the file is cut to no length.
pub const DENDRO_TRUNCATE: u32 = 8;

/// Type of a file: a regular file.
pub const DENDRO_TYPE_FILE: u32 = 1;
/// Type of a file: a directory.
pub const DENDRO_TYPE_DIRECTORY: u32 = 2;
/// Type of a file: a symbolic link.
pub const DENDRO_TYPE_SYMLINK: u32 = 3;
/// Type of a file: a pipe, a socket or a device.
pub const DENDRO_TYPE_SPECIAL: u32 = 4;

/// What is to outlast the end of the process: the system has it.
pub const DENDRO_OUTLASTS_PROCESS: u32 = 1;
/// What is to outlast the end of the system, as by a power cut: the device has it.
pub const DENDRO_OUTLASTS_MACHINE: u32 = 2;
/// What is to outlast the loss of a device: another one has it too.
pub const DENDRO_OUTLASTS_MEDIUM: u32 = 3;

/// Hint about a list: its blocks should lie together in the order of their indexes, because they
/// will be read so.
pub const DENDRO_CLUSTERED: u32 = 1;
/// Hint about a list: its pages are compressed as those of lists for which nothing else is said.
pub const DENDRO_COMPRESS_DEFAULT: u32 = 2;
/// Hint about a list: its pages are compressed with LZ4 when they are written.
pub const DENDRO_COMPRESS_LZ4: u32 = 4;
/// Hint about a list: its pages are compressed with Zstandard when they are written.
pub const DENDRO_COMPRESS_ZSTD: u32 = 8;
/// Hint about a list: its pages are not compressed.
pub const DENDRO_COMPRESS_NONE: u32 = 16;

/// Error code: there is no such list.
pub const DENDRO_ERROR_NO_SUCH_LIST: u32 = 1;
/// Error code: there is a list of that number already.
pub const DENDRO_ERROR_LIST_EXISTS: u32 = 2;
/// Error code: a record has no bytes, or too many.
pub const DENDRO_ERROR_RECORD_TOO_LONG: u32 = 3;
/// Error code: pages past DENDRO_MAX_PAGE_COUNT.
pub const DENDRO_ERROR_OUT_OF_RANGE: u32 = 4;
/// Error code: a unit changes too many groups of pages.
pub const DENDRO_ERROR_UNIT_TOO_LONG: u32 = 5;
/// Error code: it would not fit.
pub const DENDRO_ERROR_NO_SPACE: u32 = 6;
/// Error code: there is no such version, or it is a snapshot, which cannot be changed.
pub const DENDRO_ERROR_NO_SUCH_VERSION: u32 = 7;
/// Error code: that cannot be the name of a version.
pub const DENDRO_ERROR_BAD_NAME: u32 = 8;
/// Error code: another version has that name.
pub const DENDRO_ERROR_NAME_TAKEN: u32 = 9;
/// Error code: the version must not be deleted.
pub const DENDRO_ERROR_IN_USE: u32 = 10;
/// Error code: the version belongs to another client.
pub const DENDRO_ERROR_OTHER_CLIENT: u32 = 11;
/// Error code: the volume is open for reading, or closed.
pub const DENDRO_ERROR_READ_ONLY: u32 = 12;
/// Error code: the volume takes no more changes after an error; it must be opened again.
pub const DENDRO_ERROR_STOPPED: u32 = 13;
/// Error code: what was read is not what was written.
pub const DENDRO_ERROR_DAMAGED: u32 = 14;
/// Error code: something durable is lost, so that the volume cannot be opened.
pub const DENDRO_ERROR_LOST: u32 = 15;
/// Error code: the device could not be read.
pub const DENDRO_ERROR_IO: u32 = 16;
/// Error code: a condition of a unit does not hold.
pub const DENDRO_ERROR_CONDITION: u32 = 17;
/// Error code: what was to outlast the loss of a device is on one device alone.
pub const DENDRO_ERROR_ONE_COPY: u32 = 18;
/// Error code: it would not fit in the quota of the client.
pub const DENDRO_ERROR_OVER_QUOTA: u32 = 19;

/// Flag of a version: it is the head of a branch; otherwise it is a snapshot.
pub const DENDRO_VERSION_HEAD: u32 = 1;
/// Flag of a version: it is the head of the main branch.
pub const DENDRO_VERSION_MAIN: u32 = 2;
/// Flag of a version: it is a snapshot that is protected from deletion.
pub const DENDRO_VERSION_HELD: u32 = 4;
/// Flag of a version: it is a snapshot that was made automatically, and that retention may delete.
/// Its name is its epoch.
pub const DENDRO_VERSION_UNNAMED: u32 = 8;
/// Flag of a version: it is a branch that was made from another version, which is the parent.
pub const DENDRO_VERSION_HAS_PARENT: u32 = 16;

/// How to make or to open a volume. All zeros are the defaults, so begin with
/// `dendro_options options = {0};`.
#[repr(C)]
pub struct Options {
    /// DENDRO_READ_ONLY, DENDRO_NO_DISCARD and DENDRO_DEGRADED, or some of them, or 0.
    pub flags: u32,
    /// How often a new volume keeps its map, 1 or 2: the second copy lies far from the first. 0 for
    /// one. It must be 0 when a volume is opened.
    pub metadata_copies: u32,
    /// The memory for the map, in bytes. 0 for 64 MiB.
    pub cache_size_bytes: u64,
    /// Bytes in a segment of a new volume: a power of two from 128 KiB to 64 MiB. 0 for what fits
    /// the size of the volume. It must be 0 when a volume is opened.
    pub segment_size_bytes: u64,
    /// The name of a new volume for people, up to 64 bytes of UTF-8. NULL for none. It must be NULL
    /// when a volume is opened.
    pub label: *const c_char,
    /// How new pages are compressed where nothing is said of their list: DENDRO_COMPRESS_NONE,
    /// DENDRO_COMPRESS_LZ4 or DENDRO_COMPRESS_ZSTD. A new volume keeps that, and its pages are not
    /// compressed if it is 0. For a volume that is opened it holds until it is closed; 0 for what
    /// the volume keeps.
    pub compression: u32,
    /// The level of DENDRO_COMPRESS_ZSTD, from 1 to 15. 0 for 3, and for others.
    pub compression_level: u32,
    /// The paths of further devices of a volume that lies on several, and NULL behind the last one.
    /// Devices that are where they were last, and block devices of this machine, are found without
    /// that. NULL for none. It must be NULL when a volume is made.
    pub devices: *const *const c_char,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// A version of a volume: the head of a branch, which can be changed, or a snapshot. It is a plain
/// value, and goes on naming its version after the volume was closed and opened again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    /// The branch.
    pub branch: u32,
    /// The epoch of the snapshot; DENDRO_HEAD for the head of the branch.
    pub epoch: u64,
}

impl From<disk::View> for View {
    fn from(view: disk::View) -> Self {
        Self { branch: view.branch, epoch: view.epoch.unwrap_or(DENDRO_HEAD) }
    }
}

impl From<View> for disk::View {
    fn from(view: View) -> Self {
        let View { branch, epoch } = view;
        Self { branch, epoch: (epoch != DENDRO_HEAD).then_some(epoch) }
    }
}

/// Consecutive pages of a list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PageRange {
    /// The list.
    pub list: u64,
    /// The first page.
    pub first_page: u64,
    /// How many.
    pub count: u64,
}

impl From<PageRange> for disk::PageRange {
    fn from(range: PageRange) -> Self {
        let PageRange { list, first_page, count } = range;
        Self { list: disk::Lid(list), first_page, count }
    }
}

/// A moment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00:00 UTC, rounded towards the past.
    pub seconds: i64,
    /// Nanoseconds past these, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl From<disk::Timestamp> for Time {
    fn from(time: disk::Timestamp) -> Self {
        Self { seconds: time.secs(), nanoseconds: time.subsec_nanos() }
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                Self { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
            }
            Err(before) => {
                let before = before.duration();
                let whole = before.as_secs().cast_signed().saturating_neg();
                match before.subsec_nanos() {
                    0 => Self { seconds: whole, nanoseconds: 0 },
                    nanos => Self {
                        seconds: whole.saturating_sub(1),
                        nanoseconds: 1_000_000_000 - nanos,
                    },
                }
            }
        }
    }
}

/// A version, and what is known of it.
#[repr(C)]
pub struct Version {
    /// The version.
    pub view: View,
    /// What a branch was made from, if the flag DENDRO_VERSION_HAS_PARENT is set. The epoch need
    /// not be one of a snapshot that exists.
    pub parent: View,
    /// When it was made.
    pub created: Time,
    /// DENDRO_VERSION_HEAD and others.
    pub flags: u32,
    /// The name of the snapshot or of the branch, in UTF-8, with a zero byte.
    pub name: [c_char; DENDRO_NAME_SIZE],
}

/// The space that a version takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Usage {
    /// The version.
    pub view: View,
    /// The bytes that deleting it alone would free.
    pub exclusive_bytes: u64,
    /// The bytes of all that is visible in it.
    pub seen_bytes: u64,
}

/// How the bytes of a volume are used.
#[repr(C)]
pub struct Space {
    /// What could be used if the volume were empty.
    pub capacity_bytes: u64,
    /// What live data use.
    pub live_bytes: u64,
    /// What can still be written, after reservations are subtracted.
    pub available_bytes: u64,
    /// What is reserved.
    pub reserved_bytes: u64,
}

/// The quota of a client, and what it uses of it. All its versions count together, and what they
/// share counts once. What was deleted counts until it is freed.
#[repr(C)]
pub struct Quota {
    /// The most that the client may use.
    pub limit_bytes: u64,
    /// What it uses. It can be more than the limit.
    pub used_bytes: u64,
    /// What is reserved for its units.
    pub reserved_bytes: u64,
}

/// What is known of a file.
#[repr(C)]
pub struct Stat {
    /// Its i-node number.
    pub ino: u64,
    /// Its size in bytes.
    pub len_bytes: u64,
    /// The bytes that it takes in the volume.
    pub used_bytes: u64,
    /// What it is: DENDRO_TYPE_FILE and others.
    pub file_type: u32,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has.
    pub link_count: u32,
    /// When its contents changed.
    pub modified: Time,
    /// When its contents or attributes changed.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
}

impl From<Metadata> for Stat {
    fn from(of: Metadata) -> Self {
        Self {
            ino: of.ino,
            len_bytes: of.len_bytes,
            used_bytes: of.used_bytes,
            file_type: type_number(of.file_type),
            mode: of.mode,
            uid: of.uid,
            gid: of.gid,
            link_count: of.link_count,
            modified: of.modified.into(),
            changed: of.changed.into(),
            created: of.created.into(),
        }
    }
}

/// The number of a file's type. Types that come later count as special.
pub(crate) const fn type_number(of: FileType) -> u32 {
    match of {
        FileType::File => DENDRO_TYPE_FILE,
        FileType::Directory => DENDRO_TYPE_DIRECTORY,
        FileType::Symlink => DENDRO_TYPE_SYMLINK,
        _ => DENDRO_TYPE_SPECIAL,
    }
}

/// An entry of a directory.
#[repr(C)]
pub struct Entry {
    /// The i-node number of what it names.
    pub ino: u64,
    /// What it names: DENDRO_TYPE_FILE and others.
    pub file_type: u32,
    /// The name, any bytes but '/' and 0, with a zero byte.
    pub name: [c_char; DENDRO_NAME_SIZE],
}

/// A name with a zero byte. None is longer than the room; what is would be cut off.
pub(crate) fn name_of(bytes: &[u8]) -> [c_char; DENDRO_NAME_SIZE] {
    let mut name = [0; DENDRO_NAME_SIZE];
    for (place, byte) in name[..DENDRO_NAME_SIZE - 1].iter_mut().zip(bytes) {
        *place = *byte as c_char;
    }
    name
}

const _: () = assert!(DENDRO_PAGE_SIZE as u64 == disk::PAGE_SIZE as u64);
const _: () = assert!(DENDRO_MAX_RECORD_SIZE as usize == disk::MAX_RECORD_LEN_BYTES);
const _: () = assert!(DENDRO_MAX_PAGE_COUNT == disk::MAX_PAGE_COUNT);
const _: () = assert!(DENDRO_GROUP_PAGES as u64 == disk::GROUP_PAGES);
const _: () = assert!(DENDRO_MAX_UNIT_GROUPS as u64 == disk::MAX_UNIT_GROUPS);
const _: () = assert!(DENDRO_ROOT_LIST == dendrofs::Volume::ROOT.0);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_are_rounded_towards_the_past() {
        let time = Time::from(UNIX_EPOCH - Duration::from_millis(250));
        assert_eq!((time.seconds, time.nanoseconds), (-1, 750_000_000));
        let time = Time::from(UNIX_EPOCH - Duration::from_secs(2));
        assert_eq!((time.seconds, time.nanoseconds), (-2, 0));
        let time = Time::from(UNIX_EPOCH + Duration::from_millis(1250));
        assert_eq!((time.seconds, time.nanoseconds), (1, 250_000_000));
    }

    #[test]
    fn views_are_the_same_on_both_sides() {
        for view in [disk::View::HEAD, disk::View { branch: 3, epoch: Some(7) }] {
            assert_eq!(disk::View::from(View::from(view)), view);
        }
    }
}
