//! What requests and answers are made of.

use std::time::Duration;

use crate::labels::Labels;

bitflags::bitflags! {
    /// What kernel and server agree on when they meet.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Reads of one file may be under way at the same time.
        const ASYNC_READ = 1 << 0;
        /// `O_TRUNC` comes with OPEN. Without OPEN, nothing truncates then.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP knows `.` and `..`, so NFS can export the mount.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// Cached data goes when a file's time or size turns out to have changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS where it seems of use, READDIR otherwise.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Parts of one direct read or write may be under way at the same time.
        const ASYNC_DIO = 1 << 15;
        /// The kernel collects writes.
        const WRITEBACK_CACHE = 1 << 16;
        /// `ENOSYS` to OPEN is taken for success, once and for all.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// LOOKUP and READDIR of one directory may be under way at the same time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server takes set-id bits away at each write, truncation and change of owner.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel checks POSIX ACLs.
        const POSIX_ACL = 1 << 20;
        /// MaxPages in the answer counts.
        const MAX_PAGES = 1 << 22;
        /// Symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// `ENOSYS` to OPENDIR is taken for success, with listings cached.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data goes when the server says so alone.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The kernel says which writes, truncations and openings take set-id bits away.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR says whether it takes the set-group-id bit away.
        const SETXATTR_EXT = 1 << 29;
        /// There are flags beyond the 32nd.
        const INIT_EXT = 1 << 30;
        /// Requests that make a file say which security labels it gets ([`crate::Labels`]).
        const SECURITY_CTX = 1 << 32;
        /// An entry can be made to be looked up again without being dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files that are open for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Mounts whose users' ids are mapped. Requests that make nothing then have no user.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come over io_uring.
        const OVER_IO_URING = 1 << 41;
    }
}

bitflags::bitflags! {
    /// How an open file behaves.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// Past the page cache.
        const DIRECT_IO = 1 << 0;
        /// What is cached of the file stays.
        const KEEP_CACHE = 1 << 1;
        /// A directory's listing may be cached.
        const CACHE_DIR = 1 << 3;
        /// No FLUSH at each close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one file may be under way at the same time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The request's number.
    pub unique: u64,
    /// The user. `u32::MAX` on a mount with mapped ids, unless the request makes a file.
    pub uid: u32,
    /// The group, likewise.
    pub gid: u32,
    /// The thread; 0 outside of the mount's namespace and for the kernel's own requests.
    pub pid: u32,
    /// What the kernel's security modules want the file to have that this request makes, from its
    /// beginning.
    pub labels: Labels<'a>,
}

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// When the request is served.
    Now,
    /// This one.
    At(Time),
}

/// What stat(2) tells of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Its number, as users see it.
    pub ino: u64,
    /// In bytes.
    pub size_bytes: u64,
    /// What it takes, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last read.
    pub atime: Time,
    /// Contents last changed.
    pub mtime: Time,
    /// Anything last changed.
    pub ctime: Time,
    /// Made. STATX alone carries it.
    pub btime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// A device's number, in Linux's encoding of 32 bits.
    pub rdev: u32,
    /// The size of transfers that suits it.
    pub blksize_bytes: u32,
}

/// Answers GETATTR, SETATTR and STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long the kernel may believe them.
    pub valid: Duration,
}

/// A name that was found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What requests call the file; 0: there is none.
    pub node: u64,
    /// Tells apart the files that had this node one after the other.
    pub generation: u64,
    /// How long the kernel may believe that the name is that file's.
    pub entry_valid: Duration,
    /// The attributes.
    pub attr: Attr,
    /// How long the kernel may believe them.
    pub attr_valid: Duration,
}

impl Entry {
    /// An answer to LOOKUP: there is nothing of that name, which the kernel may believe for
    /// `valid`. `ENOENT` says the same, and is not remembered.
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
    /// The open file that it is asked of.
    pub handle: Option<u64>,
    /// The change takes set-id bits away (`HANDLE_KILLPRIV_V2`).
    pub kill_priv: bool,
}

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// Of open(2).
    pub flags: u32,
    /// Truncation takes set-id bits away (`HANDLE_KILLPRIV_V2`).
    pub kill_priv: bool,
}

/// How to make a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateHow {
    /// Type and permissions.
    pub mode: u32,
    /// The caller's, not yet applied if `DONT_MASK` is agreed on.
    pub umask: u32,
    /// How it is opened then.
    pub open: OpenHow,
}

/// An open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// What requests call it.
    pub handle: u64,
    /// How it behaves.
    pub flags: OpenedFlags,
}

/// Where and how to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHow {
    /// The open file.
    pub handle: u64,
    /// Where the first byte goes.
    pub offset: u64,
    /// Of the open file, as open(2) has them.
    pub flags: u32,
    /// From the page cache, by nobody in particular.
    pub is_cached: bool,
    /// Takes set-id bits away (`HANDLE_KILLPRIV_V2`).
    pub kill_priv: bool,
}

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetxattrHow {
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// Setting an ACL takes the set-group-id bit away (`SETXATTR_EXT`).
    pub kill_sgid: bool,
}

/// A range of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub node: u64,
    /// As it was opened.
    pub handle: u64,
    /// Where it begins.
    pub offset: u64,
}

/// What is copied where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// From.
    pub source: FileRange,
    /// To.
    pub target: FileRange,
    /// How much, in bytes; no more than the answer can say.
    pub len_bytes: u64,
    /// Of copy_file_range(2); none is defined.
    pub flags: u64,
}

/// What statfs(2) tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All there are, in units of `fragment_bytes`.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Of these, what users who are not root can have.
    pub blocks_available: u64,
    /// Files there can be.
    pub files: u64,
    /// Files that can be made.
    pub files_free: u64,
    /// The size of transfers that suits it.
    pub block_bytes: u32,
    /// The unit of the counts.
    pub fragment_bytes: u32,
    /// The longest name.
    pub name_max_bytes: u32,
}
