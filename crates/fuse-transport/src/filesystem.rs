//! What a file system does for a mount.

use crate::dirent::{Entries, EntriesPlus};
use crate::errno::Errno;
use crate::init::Agreed;
use crate::timings::Timings;
use crate::types::{
    AttrReply, CopyRange, CreateHow, Entry, OpenHow, Opened, Request, SetAttr, SetxattrHow, StatFs,
    WriteHow,
};

/// What a request is answered.
pub type Result<T> = std::result::Result<T, Errno>;

/// A file system: one method for each request, called on the thread that took it, from many
/// threads at a time. What a method returns is the answer; answers that may be long are written
/// into `out`, which is the buffer that the kernel reads.
///
/// Every method that is left out answers `ENOSYS`; the kernel then does without.
#[allow(unused_variables, reason = "the names document the methods")]
pub trait FileSystem: Send + Sync {
    /// Kernel and server have met. Called once, before all others.
    fn init(&self, agreed: &Agreed) {}

    /// The mount goes, and umount(2) waits for the answer. All other requests have been answered, but
    /// some calls of [`Self::forget`] may still come. Only mounts of block devices say so.
    fn destroy(&self) {}

    /// Where requests are to be counted; nothing: nowhere.
    fn timings(&self) -> Option<&Timings> {
        None
    }

    /// Finds `name` in the directory `parent`, and counts one more reference to what it finds.
    /// [`Entry::absent`] is remembered by the kernel, `ENOENT` is not.
    fn lookup(&self, request: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// The kernel drops `count` references to `node`.
    fn forget(&self, node: u64, count: u64) {}

    /// Attributes.
    fn getattr(&self, request: &Request, node: u64, handle: Option<u64>) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// Attributes with the time the file was made. `mask` says which are of interest.
    fn statx(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        mask: u32,
    ) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// Changes attributes, and answers the new ones.
    fn setattr(&self, request: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// Writes what the symbolic link says to `out`, and answers its length.
    fn readlink(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        Err(Errno::NOSYS)
    }

    /// Makes a file of any kind but directories and symbolic links.
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

    /// Makes a directory.
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

    /// Takes a name away, which is no directory's.
    fn unlink(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Takes an empty directory away.
    fn rmdir(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Moves a name, with the flags of renameat2(2).
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

    /// Opens a file. `ENOSYS` is success, and saves the kernel from asking ever again, if
    /// [`InitFlags::NO_OPEN_SUPPORT`](crate::InitFlags::NO_OPEN_SUPPORT) is offered.
    fn open(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        Err(Errno::NOSYS)
    }

    /// Fills `out` from `offset`; answers how much there was. Less than asked for is the end of
    /// the file.
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

    /// Writes `data`; answers how much of it.
    fn write(&self, request: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// How full the file system is.
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

    /// Answers the length of an extended attribute, and copies it to `out` if there is room.
    fn getxattr(&self, request: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Answers the length of the list of attributes' names, each with a zero behind it, and copies
    /// it to `out` if there is room.
    fn listxattr(&self, request: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Someone closes an open file. `ENOSYS` is success, and saves the kernel from asking again.
    fn flush(&self, request: &Request, node: u64, handle: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Opens a directory.
    fn opendir(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        Err(Errno::NOSYS)
    }

    /// Lists a directory from behind the entry with the cookie `offset` (0: the beginning), as far
    /// as there is room.
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

    /// As `readdir`, with what LOOKUP says of each entry; each but `.` and `..` counts as one more
    /// reference.
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

    /// access(2), unless the mount has `default_permissions`.
    fn access(&self, request: &Request, node: u64, mask: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Makes and opens a file. After `ENOSYS` the kernel calls [`Self::mknod`] and [`Self::open`]
    /// instead: where it does without the second, there will be no [`Self::release`] either.
    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }

    /// Makes and opens a file without a name.
    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        // ENOSYS would be taken to mean "never".
        Err(Errno::NOSYS)
    }

    /// The caller of the request `unique`, which is being served or has been, does not want to
    /// wait any longer.
    ///
    /// # Errors
    /// `ENOSYS` saves the kernel from telling again, over `/dev/fuse`.
    fn interrupt(&self, unique: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// fallocate(2).
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

    /// `SEEK_DATA` and `SEEK_HOLE`.
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

    /// Copies; answers how much, in bytes.
    fn copy_file_range(&self, request: &Request, range: &CopyRange) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    /// ioctl(2), of a command whose number says how long its argument is: `input` is what it passes, and `out`
    /// what it wants to have, zeroed. The argument is 64 bytes long at most.
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

    /// Makes everything durable. Mounts of block devices alone are asked this.
    fn syncfs(&self, request: &Request, node: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }
}
