//! One method for each request: unpack, call, reply.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dendro_fs::{
    Attr, Caller, FallocateFlags, FileSystem, FsError, Ino, OpenOptions, Seek, SetAttr, XattrFlags,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::convert;

/// How long the kernel may believe what it was told: for good, as it is told of every change.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The most that one write request carries: what the kernel does without being configured.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How many requests nobody waits for (read-ahead, direct I/O of many) may be under way.
const MAX_BACKGROUND: u16 = 64;

/// The handle of every open file: requests name i-nodes.
const NO_HANDLE: FileHandle = FileHandle(0);

/// What is asked of the kernel where it has it.
const WANTED: [InitFlags; 11] = [
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];

/// Is told of what a request ran into that its errno does not say, damage and failed I/O: the
/// operation's name, and what happened.
pub type Report = dyn Fn(&str, &FsError) + Send + Sync;

/// The file system, as `fuser` calls it.
pub(crate) struct Adapter {
    fs: Arc<FileSystem>,
    report: Arc<Report>,
    has_no_open: bool,
}

impl Adapter {
    pub(crate) fn new(fs: Arc<FileSystem>, report: Arc<Report>) -> Self {
        Self { fs, report, has_no_open: false }
    }

    /// The errno for `error`, which is reported if nobody expects it.
    fn fail(&self, operation: &str, error: &FsError) -> Errno {
        if matches!(error, FsError::Corrupted(_)) || error.errno() == libc::EIO {
            (self.report)(operation, error);
        }
        convert::errno(error)
    }

    fn reply_entry(&self, operation: &str, answer: dendro_fs::Result<Attr>, reply: ReplyEntry) {
        match answer {
            Ok(attr) => reply.entry(&FOREVER, &convert::file_attr(&attr), generation(&attr)),
            Err(error) => reply.error(self.fail(operation, &error)),
        }
    }

    fn reply_attr(&self, operation: &str, answer: dendro_fs::Result<Attr>, reply: ReplyAttr) {
        match answer {
            Ok(attr) => reply.attr(&FOREVER, &convert::file_attr(&attr)),
            Err(error) => reply.error(self.fail(operation, &error)),
        }
    }

    fn reply_empty(&self, operation: &str, answer: dendro_fs::Result<()>, reply: ReplyEmpty) {
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail(operation, &error)),
        }
    }

    /// Answers `value`, or its length where that is what was asked (`size` 0).
    fn reply_xattr(
        &self,
        operation: &str,
        answer: dendro_fs::Result<Vec<u8>>,
        size: u32,
        reply: ReplyXattr,
    ) {
        match answer {
            Ok(value) => match u32::try_from(value.len()) {
                Ok(len_bytes) if size == 0 => reply.size(len_bytes),
                Ok(len_bytes) if len_bytes <= size => reply.data(&value),
                _ => reply.error(Errno::ERANGE),
            },
            Err(error) => reply.error(self.fail(operation, &error)),
        }
    }
}

fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

fn generation(attr: &Attr) -> Generation {
    Generation(u64::from(attr.generation))
}

fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), umask }
}

/// Whether a change of a file's data takes its set-id bits away, where `fuser` does not pass on
/// what the kernel says about it: unless the caller may keep them (`CAP_FSETID`), which is taken
/// to be root alone.
fn kills_privileges(request: &Request) -> bool {
    request.uid() != 0
}

thread_local! {
    /// Where each thread reads to. It grows to the largest read and is never cleared.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // What a kernel does not have, it does not need to be told.
            let _ = config.add_capabilities(flag);
        }
        let capabilities = config.capabilities();
        self.has_no_open = capabilities.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        // Both take these values always; the answer is the one before.
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.fs.lookup(ino(parent), name.as_bytes()) {
            Err(FsError::NotFound) => {
                reply.entry(&FOREVER, &convert::absent(), Generation(0));
            }
            answer => self.reply_entry("lookup", answer, reply),
        }
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        self.fs.forget(ino(number), count);
    }

    fn getattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.reply_attr("getattr", self.fs.getattr(ino(number)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = SetAttr {
            mode,
            uid,
            gid,
            size_bytes: size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: ctime.map(convert::requested_time),
            flags: None,
            kill_priv: size.is_some() && kills_privileges(request),
        };
        let answer = self.fs.setattr(&caller(request, 0), ino(number), &changes);
        self.reply_attr("setattr", answer, reply);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.fs.readlink(ino(number)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.fail("readlink", &error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let caller = caller(request, umask);
        let answer = self.fs.mknod(&caller, ino(parent), name.as_bytes(), mode, rdev);
        self.reply_entry("mknod", answer, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let caller = caller(request, umask);
        let answer = self.fs.mkdir(&caller, ino(parent), name.as_bytes(), mode);
        self.reply_entry("mkdir", answer, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_empty("unlink", self.fs.unlink(ino(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_empty("rmdir", self.fs.rmdir(ino(parent), name.as_bytes()), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let answer = self.fs.symlink(&caller(request, 0), ino(parent), name.as_bytes(), target);
        self.reply_entry("symlink", answer, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let answer = self.fs.rename(
            &caller(request, 0),
            ino(parent),
            name.as_bytes(),
            ino(new_parent),
            new_name.as_bytes(),
            dendro_fs::RenameFlags::from_bits_retain(flags.bits()),
        );
        self.reply_empty("rename", answer, reply);
    }

    fn link(
        &self,
        _request: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let answer = self.fs.link(ino(number), ino(new_parent), new_name.as_bytes());
        self.reply_entry("link", answer, reply);
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.has_no_open {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(NO_HANDLE, FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let options = OpenOptions {
            write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            truncate: flags & libc::O_TRUNC != 0,
            kill_priv: kills_privileges(request),
            exclusive: flags & libc::O_EXCL != 0,
        };
        let caller = caller(request, umask);
        match self.fs.create(&caller, ino(parent), name.as_bytes(), mode, options) {
            Ok(attr) => {
                // The lookup keeps the file. The kernel sends no release for what was created once
                // it has been told that there is no open.
                self.fs.release(attr.ino);
                let attributes = convert::file_attr(&attr);
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&FOREVER, &attributes, generation(&attr), NO_HANDLE, flags);
            }
            Err(error) => reply.error(self.fail("create", &error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let len_bytes = size as usize;
            if buffer.len() < len_bytes {
                buffer.resize(len_bytes, 0);
            }
            match self.fs.read(ino(number), offset, &mut buffer[..len_bytes]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(self.fail("read", &error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill_priv = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.fs.write(ino(number), offset, data, kill_priv) {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => reply.error(self.fail("write", &error)),
        }
    }

    /// Close has nothing to do: every write has been taken already. The kernel asks once.
    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.reply_empty("fsync", self.fs.fsync(ino(number), datasync), reply);
    }

    /// The kernel's cache of listings stays off, so `ENOSYS`, which turns it on for all
    /// directories, is no answer. Where several list a directory that changes, the kernel lets one
    /// go on in the middle with the cache that another began to fill before the change, and misses
    /// entries that were there from the beginning of its own listing.
    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(NO_HANDLE, FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let answer = self.fs.readdir(ino(number), offset, &mut |entry| {
            let name = OsStr::from_bytes(entry.name);
            let kind = convert::file_type(entry.kind);
            !reply.add(INodeNo(entry.ino.0), entry.cookie, kind, name)
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail("readdir", &error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let answer = self.fs.readdirplus(ino(number), offset, &mut |entry, attr| {
            let name = OsStr::from_bytes(entry.name);
            let number = INodeNo(entry.ino.0);
            let generation = generation(attr);
            let attr = convert::file_attr(attr);
            !reply.add(number, entry.cookie, name, &FOREVER, &attr, generation)
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail("readdirplus", &error)),
        }
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.reply_empty("fsyncdir", self.fs.fsyncdir(ino(number), datasync), reply);
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let stat = self.fs.statfs();
        reply.statfs(
            stat.blocks,
            stat.blocks_free,
            stat.blocks_available,
            stat.files,
            stat.files_free,
            stat.block_size,
            stat.name_max,
            stat.block_size,
        );
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_truncate(flags.cast_unsigned());
        let answer = self.fs.setxattr(ino(number), name.as_bytes(), value, flags);
        self.reply_empty("setxattr", answer, reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let answer = self.fs.getxattr(ino(number), name.as_bytes());
        self.reply_xattr("getxattr", answer, size, reply);
    }

    fn listxattr(&self, _request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        self.reply_xattr("listxattr", self.fs.listxattr(ino(number)), size, reply);
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_empty("removexattr", self.fs.removexattr(ino(number), name.as_bytes()), reply);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let kill_priv = kills_privileges(request);
        let answer = self.fs.fallocate(ino(number), offset, length, flags, kill_priv);
        self.reply_empty("fallocate", answer, reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let seek = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match self.fs.lseek(ino(number), offset, seek) {
            Ok(found) => match i64::try_from(found) {
                Ok(found) => reply.offset(found),
                Err(_) => reply.error(Errno::EOVERFLOW),
            },
            Err(error) => reply.error(self.fail("lseek", &error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        number_in: INodeNo,
        _handle_in: FileHandle,
        offset_in: u64,
        number_out: INodeNo,
        _handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply has 32 bits for the count.
        let len = len.min(u64::from(u32::MAX) & !0xfff);
        let answer = self.fs.copy_file_range(
            ino(number_in),
            offset_in,
            ino(number_out),
            offset_out,
            len,
            kills_privileges(request),
        );
        match answer {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => reply.error(self.fail("copy_file_range", &error)),
        }
    }
}
