//! The structures and numbers of the FUSE protocol 7.45, as in `include/uapi/linux/fuse.h`. All
//! numbers are in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version, which has not changed since 2006.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that is spoken here (Linux 6.18).
pub(crate) const MINOR: u32 = 45;
/// The oldest one (Linux 5.4); requests of older ones are shorter.
pub(crate) const OLDEST_MINOR: u32 = 31;

/// The kernel refuses reads into less.
pub(crate) const MIN_READ_BUFFER_BYTES: usize = 8192;

pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Notifications from the server to the kernel. The code is in the field where a reply has its
/// error.
pub(crate) mod notify_code {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const DELETE: i32 = 6;
}

/// Commands in a ring's SQE.
pub(crate) mod uring_command {
    /// Gives an entry to the kernel, which fills it with a request.
    pub(crate) const REGISTER: u32 = 1;
    /// Sends the reply to a request, and gives the entry back for the next request.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Bits of [`SetattrIn::valid`].
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// [`GetattrIn::flags`] and [`StatxIn::flags`]: the handle is valid.
pub(crate) const GETATTR_FH: u32 = 1;
/// [`FsyncIn::flags`]: only data.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// [`OpenIn::open_flags`], [`CreateIn::open_flags`]: clear the set-id bits.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
/// [`WriteIn::write_flags`]: written back from the page cache, perhaps long after the call.
pub(crate) const WRITE_CACHE: u32 = 1;
/// [`WriteIn::write_flags`]: clear the set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// [`SetxattrIn::setxattr_flags`]: setting an ACL clears the set-group-id bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// An extension whose type is not above this contains that many security attributes. Other types
/// are other extensions.
pub(crate) const MAX_SECURITY_ATTRIBUTES: u32 = 31;
/// The alignment of the parts of an extension.
pub(crate) const EXTENSION_ALIGN: usize = 8;
/// [`NotifyInvalEntryOut::flags`]: the entry is to be looked up again, not dropped.
pub(crate) const EXPIRE_ONLY: u32 = 1;

macro_rules! wire {
    ($(#[doc = $doc:literal])* $name:ident, $size:literal { $($field:ident: $type:ty,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

wire!(
    /// The header of each request.
    InHeader, 40 {
        len: u32,
        opcode: u32,
        unique: u64,
        node: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        extension_len_8: u16,
        padding: u16,
    }
);
wire!(
    /// The header of each reply.
    OutHeader, 16 {
        len: u32,
        error: i32,
        unique: u64,
    }
);
wire!(
    /// The header of an extension of a request.
    ExtensionHead, 8 {
        len: u32,
        kind: u32,
    }
);
wire!(
    /// The header of a security attribute. Its name and value follow.
    SecurityAttributeHead, 8 {
        value_len: u32,
        padding: u32,
    }
);
wire!(InitIn, 16 {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
});
wire!(InitOut, 64 {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    max_background: u16,
    congestion_threshold: u16,
    max_write: u32,
    time_gran: u32,
    max_pages: u16,
    map_alignment: u16,
    flags2: u32,
    max_stack_depth: u32,
    request_timeout: u16,
    unused: [u16; 11],
});
wire!(AttrOnWire, 88 {
    ino: u64,
    size: u64,
    blocks: u64,
    atime: i64,
    mtime: i64,
    ctime: i64,
    atime_nsec: u32,
    mtime_nsec: u32,
    ctime_nsec: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    blksize: u32,
    flags: u32,
});
wire!(EntryOut, 128 {
    node: u64,
    generation: u64,
    entry_valid: u64,
    attr_valid: u64,
    entry_valid_nsec: u32,
    attr_valid_nsec: u32,
    attr: AttrOnWire,
});
wire!(AttrOut, 104 {
    attr_valid: u64,
    attr_valid_nsec: u32,
    padding: u32,
    attr: AttrOnWire,
});
wire!(StatxTime, 16 {
    secs: i64,
    nanos: u32,
    reserved: u32,
});
wire!(StatxOnWire, 256 {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    spare0: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    atime: StatxTime,
    btime: StatxTime,
    ctime: StatxTime,
    mtime: StatxTime,
    rdev_major: u32,
    rdev_minor: u32,
    dev_major: u32,
    dev_minor: u32,
    spare2: [u64; 14],
});
wire!(StatxOut, 288 {
    attr_valid: u64,
    attr_valid_nsec: u32,
    flags: u32,
    spare: [u64; 2],
    stat: StatxOnWire,
});
wire!(OpenOut, 16 {
    handle: u64,
    open_flags: u32,
    backing_id: u32,
});
wire!(CreateOut, 144 {
    entry: EntryOut,
    open: OpenOut,
});
wire!(WriteOut, 8 {
    size: u32,
    padding: u32,
});
wire!(
    /// The offset that SEEK_DATA found, or how much was copied.
    U64Out, 8 {
        value: u64,
    }
);
wire!(GetxattrOut, 8 {
    size: u32,
    padding: u32,
});
wire!(StatfsOut, 80 {
    blocks: u64,
    bfree: u64,
    bavail: u64,
    files: u64,
    ffree: u64,
    bsize: u32,
    namelen: u32,
    frsize: u32,
    padding: u32,
    spare: [u32; 6],
});
wire!(DirentHead, 24 {
    ino: u64,
    offset: u64,
    name_len: u32,
    kind: u32,
});
wire!(ForgetIn, 8 {
    count: u64,
});
wire!(ForgetOne, 16 {
    node: u64,
    count: u64,
});
wire!(BatchForgetIn, 8 {
    count: u32,
    padding: u32,
});
wire!(GetattrIn, 16 {
    flags: u32,
    padding: u32,
    handle: u64,
});
wire!(StatxIn, 24 {
    flags: u32,
    reserved: u32,
    handle: u64,
    statx_flags: u32,
    statx_mask: u32,
});
wire!(SetattrIn, 88 {
    valid: u32,
    padding: u32,
    handle: u64,
    size: u64,
    lock_owner: u64,
    atime: i64,
    mtime: i64,
    ctime: i64,
    atime_nsec: u32,
    mtime_nsec: u32,
    ctime_nsec: u32,
    mode: u32,
    unused4: u32,
    uid: u32,
    gid: u32,
    unused5: u32,
});
wire!(MknodIn, 16 {
    mode: u32,
    rdev: u32,
    umask: u32,
    padding: u32,
});
wire!(MkdirIn, 8 {
    mode: u32,
    umask: u32,
});
wire!(RenameIn, 8 {
    new_parent: u64,
});
wire!(Rename2In, 16 {
    new_parent: u64,
    flags: u32,
    padding: u32,
});
wire!(LinkIn, 8 {
    old_node: u64,
});
wire!(OpenIn, 8 {
    flags: u32,
    open_flags: u32,
});
wire!(CreateIn, 16 {
    flags: u32,
    mode: u32,
    umask: u32,
    open_flags: u32,
});
wire!(
    /// Of READ, READDIR and READDIRPLUS.
    ReadIn, 40 {
        handle: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
);
wire!(WriteIn, 40 {
    handle: u64,
    offset: u64,
    size: u32,
    write_flags: u32,
    lock_owner: u64,
    flags: u32,
    padding: u32,
});
wire!(ReleaseIn, 24 {
    handle: u64,
    flags: u32,
    release_flags: u32,
    lock_owner: u64,
});
wire!(FlushIn, 24 {
    handle: u64,
    unused: u32,
    padding: u32,
    lock_owner: u64,
});
wire!(FsyncIn, 16 {
    handle: u64,
    flags: u32,
    padding: u32,
});
wire!(
    /// Without `SETXATTR_EXT` only the first half of this.
    SetxattrIn, 16 {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        padding: u32,
    }
);
wire!(GetxattrIn, 8 {
    size: u32,
    padding: u32,
});
wire!(AccessIn, 8 {
    mask: u32,
    padding: u32,
});
wire!(IoctlIn, 32 {
    handle: u64,
    flags: u32,
    command: u32,
    argument: u64,
    in_size: u32,
    out_size: u32,
});
wire!(
    /// The output of the command follows.
    IoctlOut, 16 {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }
);
wire!(InterruptIn, 8 {
    unique: u64,
});
wire!(FallocateIn, 32 {
    handle: u64,
    offset: u64,
    length: u64,
    mode: u32,
    padding: u32,
});
wire!(LseekIn, 24 {
    handle: u64,
    offset: u64,
    whence: u32,
    padding: u32,
});
wire!(CopyFileRangeIn, 56 {
    handle_in: u64,
    offset_in: u64,
    node_out: u64,
    handle_out: u64,
    offset_out: u64,
    len: u64,
    flags: u64,
});
wire!(NotifyInvalInodeOut, 24 {
    node: u64,
    offset: i64,
    len: i64,
});
wire!(NotifyInvalEntryOut, 16 {
    parent: u64,
    name_len: u32,
    flags: u32,
});
wire!(NotifyDeleteOut, 24 {
    parent: u64,
    child: u64,
    name_len: u32,
    padding: u32,
});
wire!(
    /// The part of a ring entry's headers that is of the ring itself.
    RingEntry, 32 {
        flags: u64,
        commit_id: u64,
        payload_len: u32,
        padding: u32,
        reserved: u64,
    }
);
wire!(
    /// The headers of a request in a ring, and of its reply.
    RingHeaders, 288 {
        in_out: [u8; 128],
        op_in: [u8; 128],
        entry: RingEntry,
    }
);
wire!(
    /// The content of a command in the second half of its SQE.
    RingCommand, 24 {
        flags: u64,
        commit_id: u64,
        queue_index: u16,
        padding: [u8; 6],
    }
);
