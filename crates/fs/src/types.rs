//! The values that callers pass in and get back.

use std::fmt;

use dendro_base::Timestamp;
use dendro_disk::{Lid, View};

/// The longest name of a directory entry or an extended attribute, in bytes.
pub const MAX_NAME_LEN_BYTES: usize = 255;

/// The longest target of a symbolic link, in bytes.
pub const MAX_SYMLINK_LEN_BYTES: usize = 4095;

/// The longest value of an extended attribute, in bytes.
pub const MAX_XATTR_LEN_BYTES: usize = 65_536;

/// The largest size of a file, in bytes: what a signed file offset can name.
pub const MAX_FILE_SIZE_BYTES: u64 = i64::MAX as u64;

/// The most pages that one unit frees: 32 MiB. If a version keeps them, that is a millisecond of
/// work, for which other clients wait.
pub(crate) const MAX_PAGES_FREED: u64 = 8192;

/// An i-node's number, which is the number of its list. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(Lid::FIRST.0);

    /// The list of the file.
    pub(crate) const fn lid(self) -> Lid {
        Lid(self.0)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A file's time: wider than [`Timestamp`], since users set it at will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Whole seconds since 1970, negative before it.
    pub secs: i64,
    /// Nanoseconds past `secs`, below 1,000,000,000.
    pub nanos: u32,
}

impl From<Timestamp> for FileTime {
    fn from(time: Timestamp) -> Self {
        Self { secs: time.secs(), nanos: time.subsec_nanos() }
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// Its name in listings and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regular => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::BlockDevice => "block",
            Self::CharDevice => "character",
        }
    }
}

impl FileKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Fifo,
        Self::CharDevice,
        Self::Directory,
        Self::BlockDevice,
        Self::Regular,
        Self::Symlink,
        Self::Socket,
    ];

    /// The type's bits in a mode (`S_IFMT`).
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        (self.dirent_type() as u32) << 12
    }

    /// The number of the kind in directory entries (`DT_*`).
    #[must_use]
    pub const fn dirent_type(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }

    /// The kind that a number of [`Self::dirent_type`] names.
    #[must_use]
    pub const fn from_dirent_type(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// The kind that a mode's type bits name.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Self::from_dirent_type(((mode >> 12) & 0xf) as u8)
    }
}

bitflags::bitflags! {
    /// Flags that users set on a file, with the numbers of Linux's `FS_IOC_GETFLAGS`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FileFlags: u32 {
        /// What is written to the file is compressed; new files in a directory get the flag.
        const COMPRESS = 0x04;
        /// Nothing in the file may change.
        const IMMUTABLE = 0x10;
        /// The file may only grow at its end; a directory may only get more entries.
        const APPEND = 0x20;
        /// Backups leave the file out.
        const NO_DUMP = 0x40;
        /// Reading the file does not change its access time.
        const NO_ATIME = 0x80;
        /// What is written to the file is not compressed; new files in a directory get the flag.
        const NO_COMPRESS = 0x400;
    }

    /// How to rename, with the numbers of Linux's `renameat2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RenameFlags: u32 {
        /// Fail when the new name exists.
        const NO_REPLACE = 1;
        /// Both names exist and change places.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) under the old name.
        const WHITEOUT = 4;
    }

    /// What `fallocate` does, with the numbers of Linux. Without a flag it allocates, and the file
    /// grows.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FallocateFlags: u32 {
        /// Leave the size as it is.
        const KEEP_SIZE = 0x01;
        /// Make a hole; only together with [`Self::KEEP_SIZE`].
        const PUNCH_HOLE = 0x02;
        /// Remove the range, so that the rest of the file moves down; only alone.
        const COLLAPSE_RANGE = 0x08;
        /// Make the range read as zeros; alone or together with [`Self::KEEP_SIZE`].
        const ZERO_RANGE = 0x10;
        /// Insert a hole, so that the rest of the file moves up; only alone.
        const INSERT_RANGE = 0x20;
    }

    /// How to set an extended attribute.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct XattrFlags: u32 {
        /// Fail if the attribute exists (`XATTR_CREATE`).
        const CREATE = 1;
        /// Fail if the attribute does not exist (`XATTR_REPLACE`).
        const REPLACE = 2;
        /// Setting an access ACL clears the set-group-id bit, since the caller is not in the file's
        /// group (FUSE's `SETXATTR_ACL_KILL_SGID`).
        const ACL_KILL_SGID = 4;
    }
}

/// The caller of an operation. The kernel checks permissions (`default_permissions`). The file
/// system needs the caller to set the owner, the mode and the attributes of new files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The owner of new files.
    pub uid: u32,
    /// The group of new files, unless the directory is set-group-id.
    pub gid: u32,
    /// Permission bits that new files do not get, unless the directory has a default ACL. Zero if
    /// the kernel has applied the umask already.
    pub umask: u32,
    /// Extended attributes in the namespace `security` that a new file gets when it is created.
    pub security_context: &'a [(&'a [u8], &'a [u8])],
}

/// A user, and the groups that the user is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The primary group, which new files get.
    pub gid: u32,
    /// The other groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Whether the user is in the group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// How to do a change of data that may take long.
#[derive(Clone, Copy)]
pub struct LongChange<'a> {
    /// The change clears the set-id bits and removes capabilities.
    pub kill_priv: bool,
    /// Called between two steps; true ends the operation.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl LongChange<'_> {
    /// A change that is never cancelled.
    #[must_use]
    pub const fn uncancelled(kill_priv: bool) -> Self {
        Self { kill_priv, is_cancelled: &|| false }
    }
}

impl fmt::Debug for LongChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongChange").field("kill_priv", &self.kill_priv).finish_non_exhaustive()
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Distinguishes files that had the same number. Numbers are not reused, except after a crash
    /// that lost the file which had the number.
    pub generation: u32,
    /// Its kind.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (`0o7777`).
    pub perm: u32,
    /// The number of names. For a directory: two, and one for each directory in it.
    pub nlink: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The number of a device, in Linux's 32-bit encoding.
    pub rdev: u32,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The space that it takes, in units of 512 bytes.
    pub blocks_512: u64,
    /// When it was last read.
    pub atime: FileTime,
    /// When its contents last changed.
    pub mtime: FileTime,
    /// When its contents or attributes last changed.
    pub ctime: FileTime,
    /// When it was created.
    pub btime: FileTime,
    /// The flags that users have set.
    pub flags: FileFlags,
}

impl Attr {
    /// Type and permission bits together, as in `st_mode`.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.perm
    }
}

/// A timestamp to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This one.
    At(FileTime),
}

/// Changes of a file's attributes; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits; type bits are ignored.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size: a smaller one cuts off, a larger one adds a hole.
    pub size_bytes: Option<u64>,
    /// The access time.
    pub atime: Option<SetTime>,
    /// The modification time.
    pub mtime: Option<SetTime>,
    /// The change time; `None`: the time of the call.
    pub ctime: Option<FileTime>,
    /// The flags that users set.
    pub flags: Option<FileFlags>,
    /// A change of size clears the set-id bits (FUSE's `FATTR_KILL_SUIDGID`). A change of owner
    /// always does.
    pub kill_priv: bool,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing; fails for what cannot be written.
    pub write: bool,
    /// Truncate it to length 0 (`O_TRUNC`).
    pub truncate: bool,
    /// The truncation clears the set-id bits (FUSE's `OPEN_KILL_SUIDGID`).
    pub kill_priv: bool,
    /// For [`crate::FileSystem::create`] only: fail if the name exists (`O_EXCL`).
    pub exclusive: bool,
}

/// An entry of a directory, as readdir returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The file that it names.
    pub ino: Ino,
    /// Where a listing goes on after this entry: positive as an `i64`, and stable while other
    /// entries are added and removed.
    pub cookie: u64,
    /// What kind of file it names.
    pub kind: FileKind,
    /// Its name.
    pub name: &'a [u8],
}

/// What to search for, starting at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`; the end of the file counts as one.
    Hole,
}

/// The used and the available space of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// The unit of the counts that follow, in bytes.
    pub block_size: u32,
    /// The capacity in blocks.
    pub blocks: u64,
    /// Blocks without data.
    pub blocks_free: u64,
    /// Blocks that can be written.
    pub blocks_available: u64,
    /// How many files there can be: an estimate.
    pub files: u64,
    /// How many more files there can be: an estimate.
    pub files_free: u64,
    /// The longest name, in bytes.
    pub name_max: u32,
}

/// When reading changes a file's access time. The new time is kept in memory. It is written with
/// the i-node's next change, at fsync or sync, or when the i-node leaves the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AtimePolicy {
    /// If the access time is not later than the last change, or older than a day: Linux's default.
    #[default]
    Relatime,
    /// Never.
    Noatime,
    /// Each time.
    Strictatime,
}

/// How to create a file system.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The root directory's owner.
    pub uid: u32,
    /// The root directory's group.
    pub gid: u32,
    /// The root directory's permission bits.
    pub mode: u32,
    /// A name for people, up to 255 bytes.
    pub label: String,
    /// The key of the hash of names: 16 random bytes, so that users cannot craft collisions.
    pub hash_key: [u8; 16],
}

/// The memory that a file system takes, apart from the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The number of i-nodes in memory.
    pub inode_count: u64,
    /// Approximately how many bytes these take.
    pub inode_bytes: u64,
    /// The number of i-nodes that were looked up and not forgotten.
    pub looked_up_count: u64,
    /// Approximately how many bytes their counts take.
    pub looked_up_bytes: u64,
}

impl std::ops::AddAssign for MemoryUse {
    fn add_assign(&mut self, other: Self) {
        self.inode_count += other.inode_count;
        self.inode_bytes += other.inode_bytes;
        self.looked_up_count += other.looked_up_count;
        self.looked_up_bytes += other.looked_up_bytes;
    }
}

/// How to open a file system.
#[derive(Clone, Debug)]
pub struct Options {
    /// The view of the disk to open; a snapshot is read-only.
    pub view: View,
    /// Refuse all changes. Removals and truncations that a crash interrupted are not finished.
    pub read_only: bool,
    /// When reading changes access times.
    pub atime: AtimePolicy,
    /// How many i-nodes to keep in memory beyond those in use.
    pub inode_cache_len: usize,
    /// The front end never calls [`crate::FileSystem::open`] and [`crate::FileSystem::release`]
    /// (FUSE's no-open mode). So a removed file stays until its lookups are forgotten.
    pub lookups_keep_files: bool,
    /// How what was cut off or punched is freed.
    #[doc(hidden)]
    pub freeing: FreeingLimits,
}

/// How pages are freed that are too many for one unit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeingLimits {
    /// The most pages that one unit frees; one thirty-second of that, if they lie apart.
    pub pages_in_unit: u64,
    /// How many units a call commits itself. The disk does the rest in the background.
    pub units_in_call: u32,
}

impl Default for FreeingLimits {
    fn default() -> Self {
        Self { pages_in_unit: MAX_PAGES_FREED, units_in_call: 64 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            view: View::HEAD,
            read_only: false,
            atime: AtimePolicy::Relatime,
            inode_cache_len: 65_536,
            lookups_keep_files: false,
            freeing: FreeingLimits::default(),
        }
    }
}
