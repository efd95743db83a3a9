//! Passes each request to the file system, or to the hidden directory of snapshots. One bit of the
//! node says which of the two it is for.

use std::sync::Arc;

use dendro_fs::{Ino, Seek};
use dendro_fuse_transport::{
    Agreed, AttrReply, CopyRange, CreateHow, Entries, EntriesPlus, Entry, Errno, FileSystem,
    Notifier, OpenHow, Opened, Request, Result, SetAttr, SetxattrHow, StatFs, Timings, WriteHow,
};

use crate::adapter::{Adapter, OnUnmount};
use crate::file_flags;
use crate::handed_over::HandedOver;
use crate::snapshot_dir::{self, SnapshotDir, is_snapshot_node};

/// Serves the requests of a mount.
pub(crate) struct Router {
    current: Adapter,
    /// The hidden directory, if the mount has one.
    snapshots: Option<SnapshotDir>,
    timings: Option<Arc<Timings>>,
}

impl Router {
    pub(crate) const fn new(
        current: Adapter,
        snapshots: Option<SnapshotDir>,
        timings: Option<Arc<Timings>>,
    ) -> Self {
        Self { current, snapshots, timings }
    }

    /// See [`Adapter::set_on_unmount`].
    pub(crate) fn set_on_unmount(&self, work: Box<OnUnmount>) {
        self.current.set_on_unmount(work);
    }

    /// See [`Adapter::set_notifier`].
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        self.current.set_notifier(notifier);
    }

    /// See [`Adapter::handed_over`].
    pub(crate) const fn handed_over(&self) -> &Arc<HandedOver> {
        self.current.handed_over()
    }

    /// The directory of snapshots, if the node is in it.
    fn snapshots(&self, node: u64) -> Result<Option<&SnapshotDir>> {
        match (is_snapshot_node(node), &self.snapshots) {
            (false, _) => Ok(None),
            (true, Some(snapshots)) => Ok(Some(snapshots)),
            (true, None) => Err(Errno::STALE),
        }
    }

    /// Whether a name is that of the directory of snapshots. A file of the same name, from a time
    /// when the mount had no such directory, takes precedence: users must be able to reach it.
    fn names_snapshot_dir(&self, parent: u64, name: &[u8]) -> Result<bool> {
        if parent != Ino::ROOT.0 || name != snapshot_dir::NAME || self.snapshots.is_none() {
            return Ok(false);
        }
        self.current.has_entry(Ino::ROOT, name).map(|has_it| !has_it)
    }

    /// Refuses to create something in the directory of snapshots, or with its name.
    fn check_create(&self, parent: u64, name: &[u8]) -> Result<()> {
        check_not_snapshot(parent)?;
        if self.names_snapshot_dir(parent, name)? { Err(Errno::EXIST) } else { Ok(()) }
    }

    /// Refuses to remove something in the directory of snapshots, or that directory itself.
    fn check_remove(&self, parent: u64, name: &[u8]) -> Result<()> {
        check_not_snapshot(parent)?;
        if self.names_snapshot_dir(parent, name)? { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// Refuses to change a snapshot.
const fn check_not_snapshot(node: u64) -> Result<()> {
    if is_snapshot_node(node) { Err(Errno::ROFS) } else { Ok(()) }
}

/// Refuses operations between a snapshot and the current files. From a snapshot the error is that
/// for another file system (`EXDEV`): programs then copy the data.
const fn check_no_snapshots(from: u64, to: u64) -> Result<()> {
    match (is_snapshot_node(from), is_snapshot_node(to)) {
        (false, false) => Ok(()),
        (true, false) => Err(Errno::XDEV),
        (_, true) => Err(Errno::ROFS),
    }
}

impl FileSystem for Router {
    fn init(&self, agreed: &Agreed) {
        self.current.init(agreed);
    }

    fn timings(&self) -> Option<&Timings> {
        self.timings.as_deref()
    }

    fn destroy(&self) {
        self.current.destroy();
    }

    fn lookup(&self, request: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        if let Some(snapshots) = self.snapshots(parent)? {
            return snapshots.lookup(&self.current, parent, name);
        }
        if self.names_snapshot_dir(parent, name)? {
            return SnapshotDir::entry(&self.current);
        }
        self.current.lookup(request, parent, name)
    }

    fn forget(&self, node: u64, count: u64) {
        match self.snapshots(node) {
            Ok(None) => self.current.forget(node, count),
            Ok(Some(snapshots)) => snapshots.forget(node, count),
            Err(_) => {}
        }
    }

    fn getattr(&self, request: &Request, node: u64, handle: Option<u64>) -> Result<AttrReply> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.getattr(&self.current, node),
            None => self.current.getattr(request, node, handle),
        }
    }

    fn statx(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        mask: u32,
    ) -> Result<AttrReply> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.getattr(&self.current, node),
            None => self.current.statx(request, node, handle, mask),
        }
    }

    fn setattr(&self, request: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        check_not_snapshot(node)?;
        self.current.setattr(request, node, changes)
    }

    fn readlink(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.readlink(&self.current, node, out),
            None => self.current.readlink(request, node, out),
        }
    }

    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.check_create(parent, name)?;
        self.current.symlink(request, parent, name, target)
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
        self.check_create(parent, name)?;
        self.current.mknod(request, parent, name, mode, umask, rdev)
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        self.check_create(parent, name)?;
        self.current.mkdir(request, parent, name, mode, umask)
    }

    fn unlink(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.check_remove(parent, name)?;
        self.current.unlink(request, parent, name)
    }

    fn rmdir(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.check_remove(parent, name)?;
        self.current.rmdir(request, parent, name)
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
        check_no_snapshots(parent, new_parent)?;
        self.check_remove(parent, name)?;
        self.check_remove(new_parent, new_name)?;
        self.current.rename(request, parent, name, new_parent, new_name, flags)
    }

    fn link(
        &self,
        request: &Request,
        node: u64,
        new_parent: u64,
        new_name: &[u8],
    ) -> Result<Entry> {
        check_no_snapshots(node, new_parent)?;
        self.check_create(new_parent, new_name)?;
        self.current.link(request, node, new_parent, new_name)
    }

    fn open(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        self.current.open(request, node, how)
    }

    fn read(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.read(&self.current, node, offset, out),
            None => self.current.read(request, node, handle, offset, out),
        }
    }

    fn write(&self, request: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        check_not_snapshot(node)?;
        self.current.write(request, node, how, data)
    }

    fn statfs(&self, request: &Request, node: u64) -> Result<StatFs> {
        self.current.statfs(request, node)
    }

    fn fsync(&self, request: &Request, node: u64, handle: u64, data_only: bool) -> Result<()> {
        match self.snapshots(node)? {
            // Snapshots are durable.
            Some(_) => Ok(()),
            None => self.current.fsync(request, node, handle, data_only),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: SetxattrHow,
    ) -> Result<()> {
        check_not_snapshot(node)?;
        self.current.setxattr(request, node, name, value, how)
    }

    fn getxattr(&self, request: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.getxattr(&self.current, node, name, out),
            None => self.current.getxattr(request, node, name, out),
        }
    }

    fn listxattr(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.listxattr(&self.current, node, out),
            None => self.current.listxattr(request, node, out),
        }
    }

    fn removexattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()> {
        check_not_snapshot(node)?;
        self.current.removexattr(request, node, name)
    }

    fn opendir(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        self.current.opendir(request, node, how)
    }

    fn readdir(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.readdir(&self.current, node, offset, entries),
            None => self.current.readdir(request, node, handle, offset, entries),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        entries: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        match self.snapshots(node)? {
            Some(snapshots) => snapshots.readdirplus(&self.current, node, offset, entries),
            None => self.current.readdirplus(request, node, handle, offset, entries),
        }
    }

    fn fsyncdir(&self, request: &Request, node: u64, handle: u64, data_only: bool) -> Result<()> {
        match self.snapshots(node)? {
            Some(_) => Ok(()),
            None => self.current.fsyncdir(request, node, handle, data_only),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        self.check_create(parent, name)?;
        self.current.create(request, parent, name, how)
    }

    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        check_not_snapshot(parent)?;
        self.current.tmpfile(request, parent, how)
    }

    fn interrupt(&self, unique: u64) -> Result<()> {
        self.current.interrupt(unique)
    }

    fn fallocate(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        check_not_snapshot(node)?;
        self.current.fallocate(request, node, handle, offset, length, mode)
    }

    fn lseek(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        let Some(snapshots) = self.snapshots(node)? else {
            return self.current.lseek(request, node, handle, offset, whence);
        };
        match whence.cast_signed() {
            libc::SEEK_DATA => snapshots.lseek(&self.current, node, offset, Seek::Data),
            libc::SEEK_HOLE => snapshots.lseek(&self.current, node, offset, Seek::Hole),
            _ => Err(Errno::INVAL),
        }
    }

    fn copy_file_range(&self, request: &Request, range: &CopyRange) -> Result<u64> {
        check_no_snapshots(range.source.node, range.target.node)?;
        self.current.copy_file_range(request, range)
    }

    fn ioctl(
        &self,
        request: &Request,
        node: u64,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        match self.snapshots(node)? {
            Some(snapshots) => {
                snapshots.ioctl(&self.current, node, file_flags::parse(command, input)?, out)
            }
            None => self.current.ioctl(request, node, command, input, out),
        }
    }

    fn syncfs(&self, request: &Request, node: u64) -> Result<()> {
        self.current.syncfs(request, node)
    }
}
