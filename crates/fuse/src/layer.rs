//! What the transport calls: the file system, and the hidden directory beside it.
//!
//! Which of the two a request is for, one bit of the node says.

use std::sync::Arc;

use dendro_fs::{Ino, Seek};
use dendro_fuse_transport::{
    Agreed, AttrReply, CopyRange, CreateHow, Entries, EntriesPlus, Entry, Errno, FileSystem,
    Notifier, OpenHow, Opened, Request, Result, SetAttr, SetxattrHow, StatFs, Timings, WriteHow,
};

use crate::adapter::{Adapter, End};
use crate::flags;
use crate::hidden::number::is_hidden;
use crate::hidden::{self, Hidden};

pub(crate) struct Layer {
    live: Adapter,
    hidden: Option<Hidden>,
    timings: Option<Arc<Timings>>,
}

impl Layer {
    pub(crate) const fn new(
        live: Adapter,
        hidden: Option<Hidden>,
        timings: Option<Arc<Timings>>,
    ) -> Self {
        Self { live, hidden, timings }
    }

    /// Does `end` when the mount goes away, if the kernel says so.
    pub(crate) fn set_end(&self, end: Box<End>) {
        self.live.set_end(end);
    }

    /// Tells the kernel of changes that it does not look for.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        self.live.set_notifier(notifier);
    }

    /// The hidden directory, if the node lies in it.
    fn hidden(&self, node: u64) -> Result<Option<&Hidden>> {
        match (is_hidden(node), &self.hidden) {
            (false, _) => Ok(None),
            (true, Some(hidden)) => Ok(Some(hidden)),
            (true, None) => Err(Errno::STALE),
        }
    }

    /// Whether a name is that of the hidden directory. A file that has it, from when there was none, goes
    /// first: it must not be lost.
    fn is_its_name(&self, parent: u64, name: &[u8]) -> Result<bool> {
        if parent != Ino::ROOT.0 || name != hidden::NAME || self.hidden.is_none() {
            return Ok(false);
        }
        self.live.has_entry(Ino::ROOT, name).map(|has_it| !has_it)
    }

    /// Refuses to make something in the hidden directory, or of its name.
    fn check_making(&self, parent: u64, name: &[u8]) -> Result<()> {
        check_present(parent)?;
        if self.is_its_name(parent, name)? { Err(Errno::EXIST) } else { Ok(()) }
    }

    /// Refuses to take something away in the hidden directory, or that itself.
    fn check_taking(&self, parent: u64, name: &[u8]) -> Result<()> {
        check_present(parent)?;
        if self.is_its_name(parent, name)? { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// Refuses to change the past.
const fn check_present(node: u64) -> Result<()> {
    if is_hidden(node) { Err(Errno::ROFS) } else { Ok(()) }
}

/// Refuses what takes one node to another: from the past to now is as from another file system, which
/// programs then copy from.
const fn check_both_present(from: u64, to: u64) -> Result<()> {
    match (is_hidden(from), is_hidden(to)) {
        (false, false) => Ok(()),
        (true, false) => Err(Errno::XDEV),
        (_, true) => Err(Errno::ROFS),
    }
}

impl FileSystem for Layer {
    fn init(&self, agreed: &Agreed) {
        self.live.init(agreed);
    }

    fn timings(&self) -> Option<&Timings> {
        self.timings.as_deref()
    }

    fn destroy(&self) {
        self.live.destroy();
    }

    fn lookup(&self, request: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        if let Some(hidden) = self.hidden(parent)? {
            return hidden.lookup(&self.live, parent, name);
        }
        if self.is_its_name(parent, name)? {
            return Hidden::entry(&self.live);
        }
        self.live.lookup(request, parent, name)
    }

    fn forget(&self, node: u64, count: u64) {
        match self.hidden(node) {
            Ok(None) => self.live.forget(node, count),
            Ok(Some(hidden)) => hidden.forget(node, count),
            Err(_) => {}
        }
    }

    fn getattr(&self, request: &Request, node: u64, handle: Option<u64>) -> Result<AttrReply> {
        match self.hidden(node)? {
            Some(hidden) => hidden.getattr(&self.live, node),
            None => self.live.getattr(request, node, handle),
        }
    }

    fn statx(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        mask: u32,
    ) -> Result<AttrReply> {
        match self.hidden(node)? {
            Some(hidden) => hidden.getattr(&self.live, node),
            None => self.live.statx(request, node, handle, mask),
        }
    }

    fn setattr(&self, request: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        check_present(node)?;
        self.live.setattr(request, node, changes)
    }

    fn readlink(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        match self.hidden(node)? {
            Some(hidden) => hidden.readlink(&self.live, node, out),
            None => self.live.readlink(request, node, out),
        }
    }

    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.check_making(parent, name)?;
        self.live.symlink(request, parent, name, target)
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
        self.check_making(parent, name)?;
        self.live.mknod(request, parent, name, mode, umask, rdev)
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        self.check_making(parent, name)?;
        self.live.mkdir(request, parent, name, mode, umask)
    }

    fn unlink(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.check_taking(parent, name)?;
        self.live.unlink(request, parent, name)
    }

    fn rmdir(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.check_taking(parent, name)?;
        self.live.rmdir(request, parent, name)
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
        check_both_present(parent, new_parent)?;
        self.check_taking(parent, name)?;
        self.check_taking(new_parent, new_name)?;
        self.live.rename(request, parent, name, new_parent, new_name, flags)
    }

    fn link(
        &self,
        request: &Request,
        node: u64,
        new_parent: u64,
        new_name: &[u8],
    ) -> Result<Entry> {
        check_both_present(node, new_parent)?;
        self.check_making(new_parent, new_name)?;
        self.live.link(request, node, new_parent, new_name)
    }

    fn open(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        self.live.open(request, node, how)
    }

    fn read(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        match self.hidden(node)? {
            Some(hidden) => hidden.read(&self.live, node, offset, out),
            None => self.live.read(request, node, handle, offset, out),
        }
    }

    fn write(&self, request: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        check_present(node)?;
        self.live.write(request, node, how, data)
    }

    fn statfs(&self, request: &Request, node: u64) -> Result<StatFs> {
        self.live.statfs(request, node)
    }

    fn fsync(&self, request: &Request, node: u64, handle: u64, data_only: bool) -> Result<()> {
        match self.hidden(node)? {
            // It is durable, and nothing else was asked for.
            Some(_) => Ok(()),
            None => self.live.fsync(request, node, handle, data_only),
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
        check_present(node)?;
        self.live.setxattr(request, node, name, value, how)
    }

    fn getxattr(&self, request: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        match self.hidden(node)? {
            Some(hidden) => hidden.getxattr(&self.live, node, name, out),
            None => self.live.getxattr(request, node, name, out),
        }
    }

    fn listxattr(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        match self.hidden(node)? {
            Some(hidden) => hidden.listxattr(&self.live, node, out),
            None => self.live.listxattr(request, node, out),
        }
    }

    fn removexattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()> {
        check_present(node)?;
        self.live.removexattr(request, node, name)
    }

    fn opendir(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        self.live.opendir(request, node, how)
    }

    fn readdir(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        match self.hidden(node)? {
            Some(hidden) => hidden.readdir(&self.live, node, offset, entries),
            None => self.live.readdir(request, node, handle, offset, entries),
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
        match self.hidden(node)? {
            Some(hidden) => hidden.readdirplus(&self.live, node, offset, entries),
            None => self.live.readdirplus(request, node, handle, offset, entries),
        }
    }

    fn fsyncdir(&self, request: &Request, node: u64, handle: u64, data_only: bool) -> Result<()> {
        match self.hidden(node)? {
            Some(_) => Ok(()),
            None => self.live.fsyncdir(request, node, handle, data_only),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        self.check_making(parent, name)?;
        self.live.create(request, parent, name, how)
    }

    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        check_present(parent)?;
        self.live.tmpfile(request, parent, how)
    }

    fn interrupt(&self, unique: u64) -> Result<()> {
        self.live.interrupt(unique)
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
        check_present(node)?;
        self.live.fallocate(request, node, handle, offset, length, mode)
    }

    fn lseek(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        let Some(hidden) = self.hidden(node)? else {
            return self.live.lseek(request, node, handle, offset, whence);
        };
        match whence.cast_signed() {
            libc::SEEK_DATA => hidden.lseek(&self.live, node, offset, Seek::Data),
            libc::SEEK_HOLE => hidden.lseek(&self.live, node, offset, Seek::Hole),
            _ => Err(Errno::INVAL),
        }
    }

    fn copy_file_range(&self, request: &Request, range: &CopyRange) -> Result<u64> {
        check_both_present(range.source.node, range.target.node)?;
        self.live.copy_file_range(request, range)
    }

    fn ioctl(
        &self,
        request: &Request,
        node: u64,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        match self.hidden(node)? {
            Some(hidden) => hidden.ioctl(&self.live, node, flags::asked(command, input)?, out),
            None => self.live.ioctl(request, node, command, input, out),
        }
    }

    fn syncfs(&self, request: &Request, node: u64) -> Result<()> {
        self.live.syncfs(request, node)
    }
}
