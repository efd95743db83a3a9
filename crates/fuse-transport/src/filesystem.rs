//! The trait that a file system implements.

use crate::errno::{Errno, Result};
use crate::protocol::dirent::{Entries, EntriesPlus};
use crate::protocol::init::Agreed;
use crate::protocol::types::{
    AttrReply, CopyRange, CreateHow, Entry, OpenHow, Opened, Request, SetAttr, SetxattrHow, StatFs,
    WriteHow,
};
use crate::timings::Timings;

/// A file system: one method for each kind of request. Methods are called on the thread that has
/// received the request, by many threads at the same time. What a method returns is the reply. Long
/// replies are written to `out`, which is the buffer that the kernel reads.
///
/// Methods that are not implemented fail with `ENOSYS`. The kernel then does without them.
#[allow(unused_variables, reason = "the names document the methods")]
pub trait FileSystem: Send + Sync {
    /// The handshake is done. Called once, before all other methods.
    fn init(&self, agreed: &Agreed) {}

    /// The file system is being unmounted, and umount(2) waits until this returns. All other
    /// requests were answered, but calls of [`Self::forget`] may still come. Only mounts of block
    /// devices call this.
    fn destroy(&self) {}

    /// Where requests are counted; `None`: nowhere.
    fn timings(&self) -> Option<&Timings> {
        None
    }

    /// Looks up `name` in the directory `parent`, and counts one lookup of the file that it finds.
    /// The kernel caches [`Entry::absent`], but not `ENOENT`.
    fn lookup(&self, request: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// The kernel takes back `count` lookups of `node`.
    fn forget(&self, node: u64, count: u64) {}

    /// Returns attributes.
    fn getattr(&self, request: &Request, node: u64, handle: Option<u64>) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// Returns attributes with the creation time. `mask` says which the caller wants.
    fn statx(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        mask: u32,
    ) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// Changes attributes, and returns the new ones.
    fn setattr(&self, request: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// Writes the target of a symbolic link to `out`, and returns its length.
    fn readlink(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Creates a symbolic link.
    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// Creates a file of any kind except directories and symbolic links.
    fn mknod(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// Creates a directory.
    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// Removes a name that is not a directory's.
    fn unlink(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Renames, with the flags of renameat2(2).
    fn rename(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Gives the file one more name.
    fn link(
        &self,
        request: &Request,
        node: u64,
        new_parent: u64,
        new_name: &[u8],
    ) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// Opens a file. If [`InitFlags::NO_OPEN_SUPPORT`](crate::InitFlags::NO_OPEN_SUPPORT) is
    /// offered, `ENOSYS` means success, and the kernel does not call this again.
    fn open(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        Err(Errno::NOSYS)
    }

    /// Reads from `offset` to `out`, and returns the length. A length below that of `out` means the
    /// end of the file.
    fn read(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Writes `data`, and returns how much was written.
    fn write(&self, request: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Returns how full the file system is.
    fn statfs(&self, request: &Request, node: u64) -> Result<StatFs> {
        Err(Errno::NOSYS)
    }

    /// The last user of an open file has closed it.
    fn release(&self, request: &Request, node: u64, handle: u64, flags: u32) -> Result<()> {
        Ok(())
    }

    /// Makes a file durable.
    fn fsync(&self, request: &Request, node: u64, handle: u64, data_only: bool) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Sets an extended attribute.
    fn setxattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: SetxattrHow,
    ) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Returns the length of an extended attribute, and copies its value to `out` if there is room.
    fn getxattr(&self, request: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Returns the length of the list of attributes' names, each with a zero byte behind it, and
    /// copies the list to `out` if there is room.
    fn listxattr(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// A process closes a descriptor of an open file. `ENOSYS` means success, and the kernel does
    /// not call this again.
    fn flush(&self, request: &Request, node: u64, handle: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Opens a directory.
    fn opendir(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        Err(Errno::NOSYS)
    }

    /// Lists the entries of a directory behind the one with the cookie `offset` (0: from the
    /// start), as long as there is room.
    fn readdir(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// As `readdir`, with the reply to a LOOKUP of each entry. Counts one lookup of each, except
    /// `.` and `..`.
    fn readdirplus(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        entries: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// The last user of an open directory has closed it.
    fn releasedir(&self, request: &Request, node: u64, handle: u64, flags: u32) -> Result<()> {
        Ok(())
    }

    /// Makes a directory durable.
    fn fsyncdir(&self, request: &Request, node: u64, handle: u64, data_only: bool) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Checks access(2). Not called on mounts with `default_permissions`.
    fn access(&self, request: &Request, node: u64, mask: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Creates and opens a file. After `ENOSYS` the kernel calls [`Self::mknod`] and [`Self::open`]
    /// instead. If it does not call `open`, it does not call [`Self::release`] either.
    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }

    /// Creates and opens a file without a name.
    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        // The kernel does not call it again after ENOSYS.
        Err(Errno::NOSYS)
    }

    /// The caller of the request `unique` got a signal. The request may be in progress, finished,
    /// or not received yet.
    ///
    /// # Errors
    /// After `ENOSYS` the kernel does not call this again, over `/dev/fuse`.
    fn interrupt(&self, unique: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Does fallocate(2).
    fn fallocate(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Does lseek(2) with `SEEK_DATA` and `SEEK_HOLE`.
    fn lseek(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    /// Copies, and returns how many bytes.
    fn copy_file_range(&self, request: &Request, range: &CopyRange) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    /// Does ioctl(2), for commands whose number contains the length of the argument. `input` is
    /// what the caller passes. `out`, which is zeroed, is what it gets back. Both have at most 64
    /// bytes.
    fn ioctl(
        &self,
        request: &Request,
        node: u64,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        Err(Errno::NOTTY)
    }

    /// Makes everything durable. Only mounts of block devices get this request.
    fn syncfs(&self, request: &Request, node: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }
}
