//! The values that requests and replies consist of.

use std::time::Duration;

use super::security_context::SecurityContext;

bitflags::bitflags! {
    /// The features that the kernel and the server agree on in the handshake.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of one file may be in progress at the same time.
        const ASYNC_READ = 1 << 0;
        /// `O_TRUNC` comes with OPEN. If there is no OPEN, nothing truncates then.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP accepts `.` and `..`, so NFS can export the mount.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// The kernel drops cached data when it finds that a file's time or size has changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS where the kernel expects it to be useful, READDIR otherwise.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Parts of one direct read or write may be in progress at the same time.
        const ASYNC_DIO = 1 << 15;
        /// The kernel caches writes, and writes them back later.
        const WRITEBACK_CACHE = 1 << 16;
        /// The kernel takes `ENOSYS` in reply to OPEN for success, and sends no OPEN again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// LOOKUP and READDIR of one directory may be in progress at the same time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server clears the set-id bits at each write, truncation and change of owner.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel checks POSIX ACLs.
        const POSIX_ACL = 1 << 20;
        /// The field `max_pages` of the reply is valid.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// The kernel takes `ENOSYS` in reply to OPENDIR for success, and caches listings.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The kernel drops cached data only when the server says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The kernel says which writes, truncations and opens clear the set-id bits.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR says whether it clears the set-group-id bit.
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Requests that create a file have its security context ([`crate::SecurityContext`]).
        const SECURITY_CTX = 1 << 32;
        /// The server can make the kernel look up an entry again without dropping it.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files that are open for direct I/O can be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// The mount can have mapped user ids. Then only requests that create a file have a user.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come over io_uring.
        const OVER_IO_URING = 1 << 41;
    }
}

bitflags::bitflags! {
    /// The behaviour of an open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// Reads and writes bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// The kernel keeps what it has cached of the file.
        const KEEP_CACHE = 1 << 1;
        /// The kernel may cache the listing of the directory.
        const CACHE_DIR = 1 << 3;
        /// No FLUSH at each close.
        const NOFLUSH = 1 << 5;
        /// Several direct writes to the file may be in progress at the same time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

/// The caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The request's number.
    pub unique: u64,
    /// The user. `u32::MAX` on a mount with mapped ids, unless the request creates a file.
    pub uid: u32,
    /// The group, likewise.
    pub gid: u32,
    /// The thread. 0 if it is outside the mount's pid namespace, and for the kernel's own requests.
    pub pid: u32,
    /// The security attributes of the file that this request creates.
    pub security_context: SecurityContext<'a>,
}

/// A timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
}

/// A timestamp to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time when the request is served.
    Now,
    /// This one.
    At(Time),
}

/// The attributes of a file, as stat(2) returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// The number of the file that users see.
    pub ino: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The space that it takes, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last read.
    pub atime: Time,
    /// Contents last changed.
    pub mtime: Time,
    /// Anything last changed.
    pub ctime: Time,
    /// Created. Only STATX returns it.
    pub btime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// The number of names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of a device, in Linux's 32-bit encoding.
    pub rdev: u32,
    /// The preferred size of transfers.
    pub blksize_bytes: u32,
}

/// The reply to GETATTR, SETATTR and STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long the kernel may cache them.
    pub valid: Duration,
}

/// An entry of a directory that was found or created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the file in requests; 0: there is no such file.
    pub node: u64,
    /// Distinguishes files that had this number one after the other.
    pub generation: u64,
    /// How long the kernel may cache that the name names this file.
    pub entry_valid: Duration,
    /// The attributes.
    pub attr: Attr,
    /// How long the kernel may cache them.
    pub attr_valid: Duration,
}

impl Entry {
    /// The reply to a LOOKUP of a name that does not exist. The kernel may cache that for `valid`.
    /// It does not cache `ENOENT`.
    #[must_use]
    pub fn absent(valid: Duration) -> Self {
        Self {
            node: 0,
            generation: 0,
            entry_valid: valid,
            attr: Attr::default(),
            attr_valid: Duration::ZERO,
        }
    }
}

/// What SETATTR changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Type and permissions.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size_bytes: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Contents last changed.
    pub mtime: Option<SetTime>,
    /// Anything last changed.
    pub ctime: Option<Time>,
    /// The open file through which the change is made.
    pub handle: Option<u64>,
    /// The change clears the set-id bits (`HANDLE_KILLPRIV_V2`).
    pub kill_priv: bool,
}

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// The flags of open(2).
    pub flags: u32,
    /// A truncation clears the set-id bits (`HANDLE_KILLPRIV_V2`).
    pub kill_priv: bool,
}

/// How to create a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateHow {
    /// Type and permissions.
    pub mode: u32,
    /// The caller's umask, which is not applied yet if `DONT_MASK` is agreed on.
    pub umask: u32,
    /// How to open it.
    pub open: OpenHow,
}

/// An open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handle of the open file in requests.
    pub handle: u64,
    /// Its behaviour.
    pub flags: OpenedFlags,
}

/// Where and how to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHow {
    /// The open file.
    pub handle: u64,
    /// The offset of the first byte.
    pub offset: u64,
    /// The flags of open(2) of the open file.
    pub flags: u32,
    /// The kernel writes it back from the page cache, not for a certain caller.
    pub is_cached: bool,
    /// The write clears the set-id bits (`HANDLE_KILLPRIV_V2`).
    pub kill_priv: bool,
}

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetxattrHow {
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// Setting an ACL clears the set-group-id bit (`SETXATTR_EXT`).
    pub kill_sgid: bool,
}

/// A range of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub node: u64,
    /// The open file.
    pub handle: u64,
    /// The start of the range.
    pub offset: u64,
}

/// A copy from one range to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The range to copy from.
    pub source: FileRange,
    /// The range to copy to.
    pub target: FileRange,
    /// The length in bytes, which is never more than the reply can express.
    pub len_bytes: u64,
    /// The flags of copy_file_range(2), of which none is defined.
    pub flags: u64,
}

/// What statfs(2) returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// The capacity, in units of `fragment_bytes`.
    pub blocks: u64,
    /// The free blocks.
    pub blocks_free: u64,
    /// The free blocks that users other than root can use.
    pub blocks_available: u64,
    /// The number of files that there can be.
    pub files: u64,
    /// The number of files that can be created.
    pub files_free: u64,
    /// The preferred size of transfers.
    pub block_bytes: u32,
    /// The unit of the counts.
    pub fragment_bytes: u32,
    /// The length of the longest name.
    pub name_max_bytes: u32,
}
