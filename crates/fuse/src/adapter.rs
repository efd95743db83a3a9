//! One method for each request: unpack, call, answer.

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

use crate::convert;
use crate::flags;
use crate::groups;
use crate::interrupts::Interrupts;
use crate::live::Live;

/// The most that one request carries: what the kernel does without being configured.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How many requests nobody waits for (read-ahead, direct I/O of many) may be under way.
const MAX_BACKGROUND: u16 = 64;

/// How much of a copy one request does: it holds its thread.
const MAX_COPY_BYTES: u64 = 1 << 30;

/// Where a file's access ACL is kept; setting it sets permissions.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// The protocol's version in Linux 6.1, from which on the kernel looks before fallocate whether
/// set-id bits must go, as it does before writing and copying.
const LOOKS_BEFORE_FALLOCATE_MINOR: u32 = 37;

/// The mode's bit that runs a program in the group of its file.
const SET_GROUP_ID: u32 = 0o2000;

/// What is asked of the kernel where it has it.
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

/// Is told of what a request ran into that its errno does not say, damage and failed I/O: the
/// operation's name, and what happened.
pub type Report = dyn Fn(&str, &FsError) + Send + Sync;

/// The file system, as the transport calls it.
pub(crate) struct Adapter {
    live: Arc<Live>,
    report: Arc<Report>,
    has_no_open: AtomicBool,
    /// Whether the kernel may have allocated, punched or zeroed without a look at set-id bits.
    allocates_blindly: AtomicBool,
    looks_at_flags: AtomicBool,
    at_once: AtOnce,
    end: OnceLock<Box<End>>,
    notifier: OnceLock<Notifier>,
    interrupts: Interrupts,
}

/// Which changes are durable before they are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// What the kernel says of a write, at its file's or the mount's behest.
    Writes,
    /// Those of names too (`dirsync`).
    Names,
    /// All (`sync`).
    All,
}

/// What is done when the mount goes away.
pub(crate) type End = dyn Fn() + Send + Sync;

impl Adapter {
    pub(crate) fn new(live: Arc<Live>, report: Arc<Report>, at_once: AtOnce) -> Self {
        Self {
            live,
            report,
            has_no_open: AtomicBool::new(false),
            allocates_blindly: AtomicBool::new(false),
            looks_at_flags: AtomicBool::new(false),
            at_once,
            end: OnceLock::new(),
            notifier: OnceLock::new(),
            interrupts: Interrupts::default(),
        }
    }

    /// Does `end` when the mount goes away, if the kernel says so; the first one that is set.
    pub(crate) fn set_end(&self, end: Box<End>) {
        let _ = self.end.set(end);
    }

    /// Tells the kernel of changes that it does not look for; the first one that is set.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Tells the kernel that attributes have changed by a request that is none for that. It takes no lock for
    /// it that those who wait for the request may hold.
    pub(crate) fn note_changed_attributes(&self, node: u64) {
        if let Some(notifier) = self.notifier.get() {
            // Without a connection nobody sees them.
            let _ = notifier.invalidate_attributes(node);
        }
    }

    /// Whether the kernel looks who may change a file's flags.
    pub(crate) fn kernel_looks_at_flags(&self) -> bool {
        self.looks_at_flags.load(Ordering::Relaxed)
    }

    /// The file system as it is now.
    pub(crate) fn fs(&self) -> Arc<dendro_fs::FileSystem> {
        self.live.get()
    }

    /// Whether a directory has an entry of this name.
    pub(crate) fn has_entry(&self, parent: Ino, name: &[u8]) -> Result<bool> {
        let fs = self.live.enter();
        match fs.lookup(parent, name) {
            Err(FsError::NotFound) => Ok(false),
            found => {
                let attr = self.answer("lookup", found)?;
                fs.forget(attr.ino, 1);
                Ok(true)
            }
        }
    }

    /// The errno for an error, which is reported if nobody expects it.
    pub(crate) fn answer<T>(&self, operation: &str, answer: dendro_fs::Result<T>) -> Result<T> {
        answer.map_err(|error| {
            // That the disk stopped is told by those who have it, once.
            let is_known = matches!(error, FsError::NotDurable(_));
            if !is_known && error.errno() == libc::EIO {
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

    /// Makes a change of names durable, if that was asked for.
    fn named<T>(&self, fs: &dendro_fs::FileSystem, done: Result<T>) -> Result<T> {
        let done = done?;
        if self.at_once != AtOnce::Writes {
            self.answer("fsyncdir", fs.fsyncdir(Ino::ROOT, false))?;
        }
        Ok(done)
    }

    /// Makes a change of a file other than a write durable, if that was asked for.
    fn changed<T>(&self, fs: &dendro_fs::FileSystem, node: u64, done: Result<T>) -> Result<T> {
        let done = done?;
        if self.at_once == AtOnce::All {
            self.answer("fsync", fs.fsync(Ino(node), false))?;
        }
        Ok(done)
    }

    /// What was made and opened. The lookup keeps the file: the kernel sends no release once it has
    /// been told that there is no open.
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
}

/// Every open file: requests name i-nodes, so it needs no handle.
fn keeping_cache() -> Opened {
    Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE }
}

/// Calls `make` with who asks, and with the labels of what is to be made.
fn with_caller<T>(request: &Request, umask: u32, make: impl FnOnce(&Caller<'_>) -> T) -> T {
    // Without a security module that gives labels there are none.
    let security_context: Vec<_> = request.security_context.iter().collect();
    make(&Caller { uid: request.uid, gid: request.gid, umask, security_context: &security_context })
}

/// Who asks for a change that makes nothing.
fn changer(request: &Request) -> Caller<'static> {
    Caller { uid: request.uid, gid: request.gid, ..Caller::default() }
}

/// Whether SETATTR changes none of the attributes. The kernel sends such a request in place of the
/// new mode when it has found that set-id bits must go: before somebody changes a file's data who
/// may not keep them, and for a chown(2) to nobody. From the answer it learns the mode without
/// them. What it sends for the change itself would come too late: it does not ask for the mode
/// after it, and goes on with the old one.
fn changes_nothing(changes: &dendro_fuse_transport::SetAttr) -> bool {
    let dendro_fuse_transport::SetAttr { handle, kill_priv, .. } = *changes;
    *changes == dendro_fuse_transport::SetAttr { handle, kill_priv, ..Default::default() }
}

/// Copies `value` to `out` if there is room; its length.
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
        let looks = agreed.kernel_minor >= LOOKS_BEFORE_FALLOCATE_MINOR;
        self.allocates_blindly.store(!looks, Ordering::Relaxed);
        let looks_at_flags = agreed.kernel_minor >= flags::KERNEL_LOOKS_MINOR;
        self.looks_at_flags.store(looks_at_flags, Ordering::Relaxed);
    }

    fn destroy(&self) {
        if let Some(end) = self.end.get() {
            end();
        }
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        let fs = self.live.enter();
        match fs.lookup(Ino(parent), name) {
            Err(FsError::NotFound) => Ok(convert::absent()),
            answer => self.entry("lookup", answer),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        let fs = self.live.enter();
        fs.forget(Ino(node), count);
    }

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>) -> Result<AttrReply> {
        let fs = self.live.enter();
        self.attributes("getattr", fs.getattr(Ino(node)))
    }

    fn statx(&self, _: &Request, node: u64, _: Option<u64>, _: u32) -> Result<AttrReply> {
        let fs = self.live.enter();
        self.attributes("statx", fs.getattr(Ino(node)))
    }

    fn setattr(
        &self,
        request: &Request,
        node: u64,
        changes: &dendro_fuse_transport::SetAttr,
    ) -> Result<AttrReply> {
        let fs = self.live.enter();
        let is_bare = changes_nothing(changes);
        if is_bare || changes.kill_priv && changes.size_bytes.is_some() {
            let is_member = |gid| groups::is_member(request.pid, gid);
            let answer = self.attributes("setattr", fs.drop_set_ids(Ino(node), is_member))?;
            if is_bare {
                return self.changed(&fs, node, Ok(answer));
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
        let answer = fs.setattr(&changer(request), Ino(node), &changes);
        self.changed(&fs, node, self.attributes("setattr", answer))
    }

    fn ioctl(
        &self,
        request: &Request,
        node: u64,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let fs = self.live.enter();
        let answer = self.flags(&fs, request, node, flags::asked(command, input)?, out);
        self.changed(&fs, node, answer)
    }

    fn readlink(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        let fs = self.live.enter();
        let target = self.answer("readlink", fs.readlink(Ino(node)))?;
        Ok(copy_out(&target, out))
    }

    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let fs = self.live.enter();
        let answer =
            with_caller(request, 0, |caller| fs.symlink(caller, Ino(parent), name, target));
        self.named(&fs, self.entry("symlink", answer))
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
        let fs = self.live.enter();
        let answer =
            with_caller(request, umask, |caller| fs.mknod(caller, Ino(parent), name, mode, rdev));
        self.named(&fs, self.entry("mknod", answer))
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let fs = self.live.enter();
        let answer =
            with_caller(request, umask, |caller| fs.mkdir(caller, Ino(parent), name, mode));
        self.named(&fs, self.entry("mkdir", answer))
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let fs = self.live.enter();
        self.named(&fs, self.answer("unlink", fs.unlink(Ino(parent), name)))
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let fs = self.live.enter();
        self.named(&fs, self.answer("rmdir", fs.rmdir(Ino(parent), name)))
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
        let fs = self.live.enter();
        let answer = fs.rename(
            &changer(request),
            Ino(parent),
            name,
            Ino(new_parent),
            new_name,
            dendro_fs::RenameFlags::from_bits_retain(flags),
        );
        self.named(&fs, self.answer("rename", answer))
    }

    fn link(&self, _: &Request, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let fs = self.live.enter();
        self.named(&fs, self.entry("link", fs.link(Ino(node), Ino(new_parent), new_name)))
    }

    fn open(&self, _: &Request, _: u64, _: OpenHow) -> Result<Opened> {
        if self.has_no_open.load(Ordering::Relaxed) {
            Err(Errno::NOSYS)
        } else {
            Ok(keeping_cache())
        }
    }

    fn read(&self, _: &Request, node: u64, _: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let fs = self.live.enter();
        self.answer("read", fs.read(Ino(node), offset, out))
    }

    fn write(&self, _: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        let fs = self.live.enter();
        let mut written = fs.write(Ino(node), how.offset, data, how.kill_priv);
        if how.is_cached {
            // Of a mapped file: its fsync gets this answer.
            written = written.map_err(FsError::when_syncing);
        }
        let len = self.answer("write", written)?;
        // After a direct write that it did not wait for, the kernel asks for no fsync of its own.
        if how.flags & libc::O_DSYNC as u32 != 0 {
            let data_only = how.flags & libc::O_SYNC as u32 != libc::O_SYNC as u32;
            self.answer("write", fs.fsync(Ino(node), data_only))?;
        }
        Ok(len)
    }

    fn statfs(&self, _: &Request, _: u64) -> Result<StatFs> {
        let fs = self.live.enter();
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
        let fs = self.live.enter();
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
        let fs = self.live.enter();
        let flags = XattrFlags::from_bits_truncate(how.flags);
        self.answer("setxattr", fs.setxattr(Ino(node), name, value, flags))?;
        if how.kill_sgid && name == ACCESS_ACL {
            let attr = self.answer("setxattr", fs.getattr(Ino(node)))?;
            if attr.perm & SET_GROUP_ID != 0 {
                let mode = Some(attr.perm & !SET_GROUP_ID);
                let changes = SetAttr { mode, ..SetAttr::default() };
                let answer = fs.setattr(&changer(request), Ino(node), &changes);
                self.answer("setxattr", answer)?;
            }
        }
        self.changed(&fs, node, Ok(()))
    }

    fn getxattr(&self, _: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let fs = self.live.enter();
        let value = self.answer("getxattr", fs.getxattr(Ino(node), name))?;
        Ok(copy_out(&value, out))
    }

    fn listxattr(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        let fs = self.live.enter();
        let names = self.answer("listxattr", fs.listxattr(Ino(node)))?;
        Ok(copy_out(&names, out))
    }

    fn removexattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<()> {
        let fs = self.live.enter();
        let answer = fs.removexattr(Ino(node), name);
        self.changed(&fs, node, self.answer("removexattr", answer))
    }

    /// The kernel's cache of listings stays off, so `ENOSYS`, which turns it on for all
    /// directories, is no answer. Where several list a directory that changes, the kernel lets one
    /// go on in the middle with the cache that another began to fill before the change, and misses
    /// entries that were there from the beginning of its own listing.
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
        let fs = self.live.enter();
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
        let fs = self.live.enter();
        let answer = fs.readdirplus(Ino(node), offset, &mut |entry, attr| {
            entries.add(&convert::entry(attr), entry.cookie, entry.name)
        });
        self.answer("readdirplus", answer)
    }

    fn fsyncdir(&self, _: &Request, node: u64, _: u64, data_only: bool) -> Result<()> {
        let fs = self.live.enter();
        self.answer("fsyncdir", fs.fsyncdir(Ino(node), data_only))
    }

    /// Where the kernel can do without `open`, it is told, once, to make files by `mknod`: one that
    /// it has opened with CREATE it would also release, a request that does nothing here.
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
        let fs = self.live.enter();
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
        self.named(&fs, self.created(&fs, "create", answer))
    }

    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        let fs = self.live.enter();
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
        let fs = self.live.enter();
        let flags = FallocateFlags::from_bits_retain(mode);
        let watch = self.interrupts.watch(request.unique, request.pid);
        // Such a kernel says who asks. That root alone may keep the bits is near enough for it.
        let kill_priv = self.allocates_blindly.load(Ordering::Relaxed) && request.uid != 0;
        let how = LongChange { kill_priv, is_cancelled: &|| watch.is_cancelled() };
        let answer = fs.fallocate(Ino(node), offset, length, flags, &how);
        self.changed(&fs, node, self.answer("fallocate", answer))
    }

    fn lseek(&self, _: &Request, node: u64, _: u64, offset: u64, whence: u32) -> Result<u64> {
        let fs = self.live.enter();
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
        let fs = self.live.enter();
        let watch = self.interrupts.watch(request.unique, request.pid);
        // The kernel has looked whether set-id bits must go.
        let how = LongChange { kill_priv: false, is_cancelled: &|| watch.is_cancelled() };
        let answer = fs.copy_file_range(
            Ino(range.source.node),
            range.source.offset,
            Ino(range.target.node),
            range.target.offset,
            range.len_bytes.min(MAX_COPY_BYTES),
            &how,
        );
        self.changed(&fs, range.target.node, self.answer("copy_file_range", answer))
    }

    fn syncfs(&self, _: &Request, _: u64) -> Result<()> {
        let fs = self.live.enter();
        self.answer("syncfs", fs.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::SystemClock;
    use dendro_disk::LogicalDisk;
    use dendro_disk::model::ModelDisk;
    use dendro_fs::{FormatOptions, Options};
    use dendro_fuse_transport::{FileRange, SecurityContext, SetAttr as Change};

    use super::*;

    fn request() -> Request<'static> {
        Request { unique: 1, uid: 0, gid: 0, pid: 1, security_context: SecurityContext::default() }
    }

    /// A file system over a disk, and a file in it.
    fn adapter_with_file(at_once: AtOnce) -> (Arc<ModelDisk>, Adapter, u64) {
        let disk = Arc::new(ModelDisk::new(None));
        let options = FormatOptions {
            uid: 0,
            gid: 0,
            mode: 0o755,
            label: String::new(),
            hash_key: *b"sixteen bytes...",
        };
        dendro_fs::FileSystem::create_on(&*disk, &options, &SystemClock).unwrap();
        let dynamic = Arc::clone(&disk) as Arc<dyn LogicalDisk>;
        let clock = Arc::new(SystemClock);
        let fs = dendro_fs::FileSystem::mount(dynamic, Options::default(), clock).unwrap();
        let adapter = Adapter::new(Arc::new(Live::new(Arc::new(fs))), Arc::new(|_, _| ()), at_once);
        let file = adapter.mknod(&request(), 1, b"file", libc::S_IFREG | 0o600, 0, 0).unwrap().node;
        (disk, adapter, file)
    }

    fn how(flags: i32, is_cached: bool) -> WriteHow {
        WriteHow { handle: 0, offset: 0, flags: flags as u32, is_cached, kill_priv: false }
    }

    #[test]
    fn a_write_to_a_file_opened_with_o_dsync_is_durable_when_it_is_answered() {
        let (disk, adapter, file) = adapter_with_file(AtOnce::Writes);
        let write = |flags| {
            adapter.write(&request(), file, &how(flags, false), &[7; 5000]).unwrap();
            disk.flushed()
        };
        let before = disk.flushed();
        assert_eq!(write(0), before, "nobody asked for it to be durable");
        let after = write(libc::O_DSYNC);
        assert!(after > before);
        assert!(write(libc::O_SYNC) > after);
    }

    #[test]
    fn all_that_changes_a_file_on_a_mount_with_sync_is_durable_when_it_is_answered() {
        for at_once in [AtOnce::Writes, AtOnce::Names, AtOnce::All] {
            let (disk, adapter, file) = adapter_with_file(at_once);
            let request = request();
            adapter.write(&request, file, &how(0, false), &[7; 5000]).unwrap();
            let check = |change: &dyn Fn()| {
                let before = disk.flushed();
                change();
                assert_eq!(disk.flushed() > before, at_once == AtOnce::All);
            };
            check(&|| adapter.fallocate(&request, file, 0, 0, 10_000, 0).unwrap());
            check(&|| {
                let end = |offset| FileRange { node: file, handle: 0, offset };
                let (source, target) = (end(0), end(20_000));
                let range = CopyRange { source, target, len_bytes: 5000, flags: 0 };
                assert_eq!(adapter.copy_file_range(&request, &range), Ok(5000));
            });
            check(&|| {
                let cut = Change { size_bytes: Some(10), ..Change::default() };
                adapter.setattr(&request, file, &cut).unwrap();
            });
            let how = SetxattrHow { flags: 0, kill_sgid: false };
            check(&|| adapter.setxattr(&request, file, b"user.a", b"x", how).unwrap());
            check(&|| adapter.removexattr(&request, file, b"user.a").unwrap());
        }
    }

    #[test]
    fn what_the_kernel_writes_back_to_a_disk_that_failed_is_lost_and_what_programs_write_refused() {
        let (disk, adapter, file) = adapter_with_file(AtOnce::Writes);
        disk.fail("the device is gone");
        let write = |is_cached| adapter.write(&request(), file, &how(0, is_cached), b"x");
        assert_eq!(write(true), Err(Errno::IO));
        assert_eq!(write(false), Err(Errno::ROFS));
        assert_eq!(adapter.fsync(&request(), file, 0, true), Err(Errno::IO));
    }
}
