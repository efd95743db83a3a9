//! One method for each kind of request: unpack it, call the file system, return the reply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use dendro_fs::{
    Attr, Caller, FallocateFlags, FsError, Ino, LongChange, OpenOptions, Seek, SetAttr, XattrFlags,
};
use dendro_fuse_transport::{
    Agreed, AttrReply, CopyRange, CreateHow, Entries, EntriesPlus, Entry, Errno, FileSystem,
    InitFlags, Notifier, OpenHow, Opened, OpenedFlags, Request, Result, SetxattrHow, StatFs,
    Wishes, WriteHow,
};

use crate::callers::capabilities::{self, Capability};
use crate::callers::groups;
use crate::callers::interrupts::Interrupts;
use crate::convert;
use crate::current_fs::CurrentFs;
use crate::file_flags::{self, FlagsRequest};
use crate::handed_over::HandedOver;
use crate::sync_mode::{SyncMode, SyncSwitch};
use crate::trim::{self, FITRIM};

/// The most bytes that one request transfers: the kernel's default limit.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How many background requests (read-ahead, asynchronous direct I/O) may be in progress.
const MAX_BACKGROUND: u16 = 64;

/// The most that one request copies, since it occupies its thread.
const MAX_COPY_BYTES: u64 = 1 << 30;

/// The attribute that holds a file's access ACL. Setting it changes the mode.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// The minor protocol version of Linux 6.1. From that version on, the kernel checks before
/// fallocate whether set-id bits must be cleared, as it does before writes and copies.
const FALLOCATE_CHECK_MINOR: u32 = 37;

/// The set-group-id bit of a mode.
const SET_GROUP_ID: u32 = 0o2000;

/// The features to use if the kernel has them.
#[must_use]
pub fn wishes() -> Wishes {
    let defaults = Wishes::default();
    let flags = InitFlags::ASYNC_DIO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::POSIX_ACL
        | InitFlags::DONT_MASK
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::SECURITY_CTX;
    Wishes {
        flags: defaults.flags | flags,
        max_write_bytes: MAX_WRITE_BYTES,
        max_background: MAX_BACKGROUND,
    }
}

/// Called for errors whose errno does not say what happened (damage and failed I/O), with the name
/// of the operation.
pub type Report = dyn Fn(&str, &FsError) + Send + Sync;

/// Serves requests with the file system that the mount shows.
pub(crate) struct Adapter {
    current: Arc<CurrentFs>,
    report: Arc<Report>,
    has_no_open: AtomicBool,
    /// Whether the kernel sends fallocate without a check of set-id bits.
    skips_fallocate_check: AtomicBool,
    kernel_checks_flags: AtomicBool,
    /// Whether the kernel collects what programs write.
    kernel_collects: AtomicBool,
    handed_over: Arc<HandedOver>,
    sync: SyncSwitch,
    /// Whether files have extended attributes for programs.
    has_xattrs: bool,
    on_unmount: OnceLock<Box<OnUnmount>>,
    notifier: OnceLock<Notifier>,
    interrupts: Interrupts,
}

/// Called when the file system is unmounted.
pub(crate) type OnUnmount = dyn Fn() + Send + Sync;

impl Adapter {
    pub(crate) fn new(
        current: Arc<CurrentFs>,
        report: Arc<Report>,
        sync: SyncSwitch,
        has_xattrs: bool,
    ) -> Self {
        Self {
            current,
            report,
            has_no_open: AtomicBool::new(false),
            skips_fallocate_check: AtomicBool::new(false),
            kernel_checks_flags: AtomicBool::new(false),
            kernel_collects: AtomicBool::new(false),
            handed_over: Arc::default(),
            sync,
            has_xattrs,
            on_unmount: OnceLock::new(),
            notifier: OnceLock::new(),
            interrupts: Interrupts::default(),
        }
    }

    /// Answers `ENOSYS` where there are no extended attributes. After that the kernel sends no
    /// request of this kind, and answers EOPNOTSUPP itself.
    const fn check_xattrs(&self) -> Result<()> {
        if self.has_xattrs { Ok(()) } else { Err(Errno::NOSYS) }
    }

    /// Sets what to do when the file system is unmounted, if the kernel reports that. Only the
    /// first call counts.
    pub(crate) fn set_on_unmount(&self, work: Box<OnUnmount>) {
        let _ = self.on_unmount.set(work);
    }

    /// Sets how to notify the kernel of changes that it does not expect. Only the first call
    /// counts.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// The files of which the kernel has handed something over that it had collected.
    pub(crate) const fn handed_over(&self) -> &Arc<HandedOver> {
        &self.handed_over
    }

    /// Notifies the kernel that a request has changed attributes, though it is of a kind that does
    /// not. The kernel takes no lock for this that the caller of the request may have.
    fn notify_changed_attributes(&self, node: u64) {
        if let Some(notifier) = self.notifier.get() {
            // If this fails, the file system is being unmounted.
            let _ = notifier.invalidate_attributes(node);
        }
    }

    /// The file system that the mount shows now.
    pub(crate) fn fs(&self) -> Arc<dendro_fs::FileSystem> {
        self.current.get()
    }

    /// Whether a directory has an entry of this name.
    pub(crate) fn has_entry(&self, parent: Ino, name: &[u8]) -> Result<bool> {
        let fs = self.current.lock();
        match fs.lookup(parent, name) {
            Err(FsError::NotFound) => Ok(false),
            found => {
                let attr = self.answer("lookup", found)?;
                fs.forget(attr.ino, 1);
                Ok(true)
            }
        }
    }

    /// Converts an error to its errno, and reports it if it is damage or failed I/O.
    pub(crate) fn answer<T>(&self, operation: &str, result: dendro_fs::Result<T>) -> Result<T> {
        result.map_err(|error| {
            // The owner of the disk reports once that the disk has failed.
            let is_reported = matches!(error, FsError::NotDurable(_));
            if !is_reported && error.errno() == libc::EIO {
                (self.report)(operation, &error);
            }
            convert::errno(&error)
        })
    }

    fn entry(&self, operation: &str, answer: dendro_fs::Result<Attr>) -> Result<Entry> {
        self.answer(operation, answer).map(|attr| convert::entry(&attr))
    }

    fn attributes(&self, operation: &str, answer: dendro_fs::Result<Attr>) -> Result<AttrReply> {
        self.answer(operation, answer).map(|attr| convert::attributes(&attr))
    }

    /// Makes a change of names durable if the mount requires that.
    fn sync_names<T>(&self, fs: &dendro_fs::FileSystem, done: Result<T>) -> Result<T> {
        let done = done?;
        if self.sync.mode() != SyncMode::Writes {
            self.answer("fsync", fs.fsync(Ino::ROOT, true))?;
        }
        Ok(done)
    }

    /// Makes a change of a file other than a write durable if the mount requires that.
    fn sync_file<T>(&self, fs: &dendro_fs::FileSystem, node: u64, done: Result<T>) -> Result<T> {
        let done = done?;
        if self.sync.mode() == SyncMode::All {
            self.answer("fsync", fs.fsync(Ino(node), false))?;
        }
        Ok(done)
    }

    /// The reply for a file that was created and opened. The lookup keeps the file: the kernel
    /// sends no release after an open has failed with `ENOSYS`.
    fn created(
        &self,
        fs: &dendro_fs::FileSystem,
        operation: &str,
        answer: dendro_fs::Result<Attr>,
    ) -> Result<(Entry, Opened)> {
        let attr = self.answer(operation, answer)?;
        fs.release(attr.ino);
        Ok((convert::entry(&attr), keeping_cache()))
    }

    /// Serves a request for a file's flags, or for setting them.
    fn flags(
        &self,
        fs: &dendro_fs::FileSystem,
        request: &Request,
        node: u64,
        wanted: FlagsRequest,
        out: &mut [u8],
    ) -> Result<()> {
        let attr = self.answer("ioctl", fs.getattr(Ino(node)))?;
        let flags = match wanted {
            FlagsRequest::Set(flags) => flags,
            FlagsRequest::SetXattr(flags) => flags | (attr.flags - file_flags::in_xattr()),
            _ => return file_flags::encode(wanted, attr.flags, out),
        };
        // A kernel that has checked the caller need not name it in the request.
        let is_checked = self.kernel_checks_flags.load(Ordering::Relaxed);
        let is_able = |capability| {
            let seen = capabilities::has(request.pid, capability);
            seen.unwrap_or(is_checked || request.uid == 0)
        };
        if !is_checked && request.uid != attr.uid && !is_able(Capability::AnyOwner) {
            return self.answer("ioctl", Err(FsError::NotPermitted("it is another user's file")));
        }
        let is_privileged = is_able(Capability::Immutable);
        self.answer("ioctl", fs.set_flags(Ino(node), flags, is_privileged))?;
        self.notify_changed_attributes(node);
        Ok(())
    }

    /// Serves fstrim(8). The owner of the daemon may call it too: the image is theirs.
    fn trim(&self, request: &Request, input: &[u8], out: &mut [u8]) -> Result<()> {
        let is_able = || {
            let seen = capabilities::has(request.pid, Capability::SystemAdmin);
            seen.unwrap_or(request.uid == 0)
        };
        if request.uid != rustix::process::geteuid().as_raw() && !is_able() {
            return self.answer("ioctl", Err(FsError::NotPermitted("only root may trim")));
        }
        let range = trim::range(input)?;
        // This can take long, and a switch to another version must not wait for it.
        let trimmed_bytes = self.answer("ioctl", self.fs().trim(range))?;
        trim::encode(input, trimmed_bytes, out)
    }
}

/// The reply to each open. It has no handle, since requests name i-nodes.
fn keeping_cache() -> Opened {
    Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE }
}

/// Calls `make` with the caller of a request that creates a file.
fn with_caller<T>(request: &Request, umask: u32, make: impl FnOnce(&Caller<'_>) -> T) -> T {
    // This is empty unless the kernel has a security module that labels files.
    let security_context: Vec<_> = request.security_context.iter().collect();
    make(&Caller { uid: request.uid, gid: request.gid, umask, security_context: &security_context })
}

/// The caller of a request that creates nothing.
fn caller_of(request: &Request) -> Caller<'static> {
    Caller { uid: request.uid, gid: request.gid, ..Caller::default() }
}

/// Whether SETATTR changes no attribute. The kernel sends such a request when set-id bits must be
/// cleared: before a user changes a file's data who may not keep them, and for a chown(2) that
/// changes neither owner nor group. It takes the new mode from the reply. With the request for the
/// change of data itself it would be too late to clear them: the kernel does not read the mode
/// after that.
fn changes_nothing(changes: &dendro_fuse_transport::SetAttr) -> bool {
    let dendro_fuse_transport::SetAttr { handle, kill_priv, .. } = *changes;
    *changes == dendro_fuse_transport::SetAttr { handle, kill_priv, ..Default::default() }
}

/// Copies `value` to `out` if there is room. Returns the length of `value`.
pub(crate) fn copy_out(value: &[u8], out: &mut [u8]) -> usize {
    if let Some(out) = out.get_mut(..value.len()) {
        out.copy_from_slice(value);
    }
    value.len()
}

impl FileSystem for Adapter {
    fn init(&self, agreed: &Agreed) {
        let has_no_open = agreed.offered.contains(InitFlags::NO_OPEN_SUPPORT);
        self.has_no_open.store(has_no_open, Ordering::Relaxed);
        let has_check = agreed.kernel_minor >= FALLOCATE_CHECK_MINOR;
        self.skips_fallocate_check.store(!has_check, Ordering::Relaxed);
        let checks_flags = agreed.kernel_minor >= file_flags::KERNEL_CHECKS_MINOR;
        self.kernel_checks_flags.store(checks_flags, Ordering::Relaxed);
        let collects = agreed.flags.contains(InitFlags::WRITEBACK_CACHE);
        self.kernel_collects.store(collects, Ordering::Relaxed);
    }

    fn destroy(&self) {
        if let Some(work) = self.on_unmount.get() {
            work();
        }
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        let fs = self.current.lock();
        match fs.lookup(Ino(parent), name) {
            Err(FsError::NotFound) => Ok(convert::absent()),
            answer => self.entry("lookup", answer),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        let fs = self.current.lock();
        fs.forget(Ino(node), count);
    }

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>) -> Result<AttrReply> {
        let fs = self.current.lock();
        self.attributes("getattr", fs.getattr(Ino(node)))
    }

    fn statx(&self, _: &Request, node: u64, _: Option<u64>, _: u32) -> Result<AttrReply> {
        let fs = self.current.lock();
        self.attributes("statx", fs.getattr(Ino(node)))
    }

    fn setattr(
        &self,
        request: &Request,
        node: u64,
        changes: &dendro_fuse_transport::SetAttr,
    ) -> Result<AttrReply> {
        let fs = self.current.lock();
        let is_bare = changes_nothing(changes);
        if is_bare || changes.kill_priv && changes.size_bytes.is_some() {
            let is_member = |gid| groups::is_member(request.pid, gid);
            let answer = self.attributes("setattr", fs.drop_set_ids(Ino(node), is_member))?;
            if is_bare {
                return self.sync_file(&fs, node, Ok(answer));
            }
        }
        let changes = SetAttr {
            mode: changes.mode,
            uid: changes.uid,
            gid: changes.gid,
            size_bytes: changes.size_bytes,
            atime: changes.atime.map(convert::set_time),
            mtime: changes.mtime.map(convert::set_time),
            ctime: changes.ctime.map(convert::file_time),
            flags: None,
            kill_priv: changes.kill_priv,
        };
        let answer = fs.setattr(&caller_of(request), Ino(node), &changes);
        self.sync_file(&fs, node, self.attributes("setattr", answer))
    }

    fn ioctl(
        &self,
        request: &Request,
        node: u64,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        if command == FITRIM {
            return self.trim(request, input, out);
        }
        let fs = self.current.lock();
        let answer = self.flags(&fs, request, node, file_flags::parse(command, input)?, out);
        self.sync_file(&fs, node, answer)
    }

    fn readlink(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        let fs = self.current.lock();
        let target = self.answer("readlink", fs.readlink(Ino(node)))?;
        Ok(copy_out(&target, out))
    }

    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let fs = self.current.lock();
        let answer =
            with_caller(request, 0, |caller| fs.symlink(caller, Ino(parent), name, target));
        self.sync_names(&fs, self.entry("symlink", answer))
    }

    fn mknod(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry> {
        let fs = self.current.lock();
        let answer =
            with_caller(request, umask, |caller| fs.mknod(caller, Ino(parent), name, mode, rdev));
        self.sync_names(&fs, self.entry("mknod", answer))
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let fs = self.current.lock();
        let answer =
            with_caller(request, umask, |caller| fs.mkdir(caller, Ino(parent), name, mode));
        self.sync_names(&fs, self.entry("mkdir", answer))
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let fs = self.current.lock();
        self.sync_names(&fs, self.answer("unlink", fs.unlink(Ino(parent), name)))
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let fs = self.current.lock();
        self.sync_names(&fs, self.answer("rmdir", fs.rmdir(Ino(parent), name)))
    }

    fn rename(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let fs = self.current.lock();
        let answer = fs.rename(
            &caller_of(request),
            Ino(parent),
            name,
            Ino(new_parent),
            new_name,
            dendro_fs::RenameFlags::from_bits_retain(flags),
        );
        self.sync_names(&fs, self.answer("rename", answer))
    }

    fn link(&self, _: &Request, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let fs = self.current.lock();
        self.sync_names(&fs, self.entry("link", fs.link(Ino(node), Ino(new_parent), new_name)))
    }

    fn open(&self, _: &Request, _: u64, _: OpenHow) -> Result<Opened> {
        if self.has_no_open.load(Ordering::Relaxed) {
            Err(Errno::NOSYS)
        } else {
            Ok(keeping_cache())
        }
    }

    fn read(&self, _: &Request, node: u64, _: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let fs = self.current.lock();
        self.answer("read", fs.read(Ino(node), offset, out))
    }

    fn write(&self, _: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        let fs = self.current.lock();
        let written = if how.is_cached {
            // This writes back a mapped file, or what was collected. Its fsync gets this error.
            let written = fs.write_back(Ino(node), how.offset, data);
            written.map_err(FsError::when_syncing)
        } else {
            fs.write(Ino(node), how.offset, data, how.kill_priv)
        };
        let len = self.answer("write", written)?;
        if how.is_cached && self.kernel_collects.load(Ordering::Relaxed) {
            self.handed_over.add(node);
        }
        // After an asynchronous direct write the kernel sends no fsync.
        if how.flags & libc::O_DSYNC as u32 != 0 {
            let data_only = how.flags & libc::O_SYNC as u32 != libc::O_SYNC as u32;
            self.answer("write", fs.fsync(Ino(node), data_only))?;
        }
        Ok(len)
    }

    fn statfs(&self, _: &Request, _: u64) -> Result<StatFs> {
        let fs = self.current.lock();
        let stat = fs.statfs();
        Ok(StatFs {
            blocks: stat.blocks,
            blocks_free: stat.blocks_free,
            blocks_available: stat.blocks_available,
            files: stat.files,
            files_free: stat.files_free,
            block_bytes: stat.block_size,
            fragment_bytes: stat.block_size,
            name_max_bytes: stat.name_max,
        })
    }

    fn fsync(&self, _: &Request, node: u64, _: u64, data_only: bool) -> Result<()> {
        let fs = self.current.lock();
        self.answer("fsync", fs.fsync(Ino(node), data_only))
    }

    fn setxattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: SetxattrHow,
    ) -> Result<()> {
        self.check_xattrs()?;
        let fs = self.current.lock();
        let flags = XattrFlags::from_bits_truncate(how.flags);
        self.answer("setxattr", fs.setxattr(Ino(node), name, value, flags))?;
        if how.kill_sgid && name == ACCESS_ACL {
            let attr = self.answer("setxattr", fs.getattr(Ino(node)))?;
            if attr.perm & SET_GROUP_ID != 0 {
                let mode = Some(attr.perm & !SET_GROUP_ID);
                let changes = SetAttr { mode, ..SetAttr::default() };
                let answer = fs.setattr(&caller_of(request), Ino(node), &changes);
                self.answer("setxattr", answer)?;
            }
        }
        self.sync_file(&fs, node, Ok(()))
    }

    fn getxattr(&self, _: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.check_xattrs()?;
        let fs = self.current.lock();
        let value = self.answer("getxattr", fs.getxattr(Ino(node), name))?;
        Ok(copy_out(&value, out))
    }

    fn listxattr(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        self.check_xattrs()?;
        let fs = self.current.lock();
        let names = self.answer("listxattr", fs.listxattr(Ino(node)))?;
        Ok(copy_out(&names, out))
    }

    fn removexattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<()> {
        self.check_xattrs()?;
        let fs = self.current.lock();
        let answer = fs.removexattr(Ino(node), name);
        self.sync_file(&fs, node, self.answer("removexattr", answer))
    }

    /// `ENOSYS` would make the kernel cache the listings of all directories, so this does not
    /// return it. That cache loses entries: when several processes list a directory that changes,
    /// the kernel lets one go on in the middle of a cached listing that another began before the
    /// change. Then it misses entries that existed since it began its own listing.
    fn opendir(&self, _: &Request, _: u64, _: OpenHow) -> Result<Opened> {
        Ok(Opened::default())
    }

    fn readdir(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        let fs = self.current.lock();
        let answer = fs.readdir(Ino(node), offset, &mut |entry| {
            entries.add(entry.ino.0, entry.cookie, entry.kind.mode_bits(), entry.name)
        });
        self.answer("readdir", answer)
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        offset: u64,
        entries: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        let fs = self.current.lock();
        let answer = fs.readdirplus(Ino(node), offset, &mut |entry, attr| {
            entries.add(&convert::entry(attr), entry.cookie, entry.name)
        });
        self.answer("readdirplus", answer)
    }

    fn fsyncdir(&self, _: &Request, node: u64, _: u64, data_only: bool) -> Result<()> {
        let fs = self.current.lock();
        self.answer("fsyncdir", fs.fsync(Ino(node), data_only))
    }

    /// If the kernel can do without `open`, the first call makes it create files by `mknod`. It
    /// would send a release for each file that it has opened with CREATE, and that does nothing
    /// here.
    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        if self.has_no_open.load(Ordering::Relaxed) {
            return Err(Errno::NOSYS);
        }
        let fs = self.current.lock();
        let flags = how.open.flags.cast_signed();
        let options = OpenOptions {
            write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            truncate: flags & libc::O_TRUNC != 0,
            kill_priv: how.open.kill_priv,
            exclusive: flags & libc::O_EXCL != 0,
        };
        let answer = with_caller(request, how.umask, |caller| {
            fs.create(caller, Ino(parent), name, how.mode, options)
        });
        self.sync_names(&fs, self.created(&fs, "create", answer))
    }

    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        let fs = self.current.lock();
        let answer =
            with_caller(request, how.umask, |caller| fs.tmpfile(caller, Ino(parent), how.mode));
        self.created(&fs, "tmpfile", answer)
    }

    fn interrupt(&self, unique: u64) -> Result<()> {
        self.interrupts.interrupt(unique);
        Ok(())
    }

    fn fallocate(
        &self,
        request: &Request,
        node: u64,
        _: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        let fs = self.current.lock();
        let flags = FallocateFlags::from_bits_retain(mode);
        let watch = self.interrupts.watch(request.unique, request.pid);
        // Such a kernel names the caller. It is close enough that only root may keep the bits.
        let kill_priv = self.skips_fallocate_check.load(Ordering::Relaxed) && request.uid != 0;
        let how = LongChange { kill_priv, is_cancelled: &|| watch.is_cancelled() };
        let answer = fs.fallocate(Ino(node), offset, length, flags, &how);
        self.sync_file(&fs, node, self.answer("fallocate", answer))
    }

    /// `ENOSYS` makes the kernel find no holes at all. It knows what it has collected, which would
    /// be a hole here.
    fn lseek(&self, _: &Request, node: u64, _: u64, offset: u64, whence: u32) -> Result<u64> {
        if self.kernel_collects.load(Ordering::Relaxed) {
            return Err(Errno::NOSYS);
        }
        let fs = self.current.lock();
        let seek = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        if offset > i64::MAX.unsigned_abs() {
            return Err(Errno::NXIO);
        }
        let found = self.answer("lseek", fs.lseek(Ino(node), offset, seek))?;
        if found > i64::MAX.unsigned_abs() { Err(Errno::OVERFLOW) } else { Ok(found) }
    }

    fn copy_file_range(&self, request: &Request, range: &CopyRange) -> Result<u64> {
        let fs = self.current.lock();
        let watch = self.interrupts.watch(request.unique, request.pid);
        // The kernel has checked whether set-id bits must be cleared.
        let how = LongChange { kill_priv: false, is_cancelled: &|| watch.is_cancelled() };
        let answer = fs.copy_file_range(
            Ino(range.source.node),
            range.source.offset,
            Ino(range.target.node),
            range.target.offset,
            range.len_bytes.min(MAX_COPY_BYTES),
            &how,
        );
        self.sync_file(&fs, range.target.node, self.answer("copy_file_range", answer))
    }

    fn syncfs(&self, _: &Request, _: u64) -> Result<()> {
        let fs = self.current.lock();
        self.answer("syncfs", fs.sync_all())
    }
}

#[cfg(test)]
mod tests;
