//! The file system's operations.

use std::sync::Arc;

use dendro_base::Clock;
use dendro_disk::{LogicalDisk, View};

use crate::error::Result;
use crate::types::{
    Attr, Caller, DirEntry, FallocateFlags, FormatOptions, Ino, OpenOptions, Options, RenameFlags,
    Seek, SetAttr, StatFs, XattrFlags,
};

/// A mounted file system. All calls may come from any thread.
///
/// **Lookups.** Each [`Attr`] that [`Self::lookup`], [`Self::mknod`], [`Self::mkdir`],
/// [`Self::symlink`], [`Self::link`], [`Self::create`], [`Self::tmpfile`] and
/// [`Self::readdirplus`] (for an entry that was taken, other than `.` and `..`) give out counts as
/// one lookup, to be taken back with [`Self::forget`].
///
/// **Opens.** [`Self::open`], [`Self::create`] and [`Self::tmpfile`] count one open, to be taken
/// back with [`Self::release`]. There are no handles: all calls name i-nodes. A file that was
/// unlinked lives on while it is open; directories need no opening. A file that is gone but not
/// forgotten still answers [`Self::getattr`]; other calls answer [`crate::FsError::Stale`].
pub struct FileSystem {
    _private: (),
}

#[allow(unused_variables, reason = "the interface comes first")]
impl FileSystem {
    /// Makes an empty file system on an empty disk, and makes it durable.
    ///
    /// # Errors
    /// [`crate::FsError::Exists`] when the disk has lists; what the disk says;
    /// [`crate::FsError::NameTooLong`] for the label.
    pub fn create_on(
        disk: &dyn LogicalDisk,
        options: &FormatOptions,
        clock: &dyn Clock,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Opens the file system on `disk`, and finishes removals and truncations that a crash
    /// interrupted.
    ///
    /// # Errors
    /// [`crate::FsError::Corrupted`] when there is none or it makes no sense; what the disk says.
    pub fn mount(
        disk: Arc<dyn LogicalDisk>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        unimplemented!()
    }

    /// The volume's label.
    #[must_use]
    pub fn label(&self) -> &str {
        unimplemented!()
    }

    /// Which version of the disk this is.
    #[must_use]
    pub fn view(&self) -> View {
        unimplemented!()
    }

    /// Whether all changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        unimplemented!()
    }

    /// What the file system holds and could hold.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        unimplemented!()
    }

    /// Makes everything that was done before the call durable.
    ///
    /// # Errors
    /// What the disk says.
    pub fn sync_all(&self) -> Result<()> {
        unimplemented!()
    }

    /// Makes everything durable, removes files that were only held open, and shuts the disk down.
    /// Call it when nothing else is running.
    ///
    /// # Errors
    /// What the disk says.
    pub fn shut_down(&self) -> Result<()> {
        unimplemented!()
    }

    /// Finds an entry. `.` and `..` are known too. Counts a lookup.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }

    /// Takes `count` lookups back.
    pub fn forget(&self, ino: Ino, count: u64) {
        unimplemented!()
    }

    /// What there is to know about a file, birth time and flags among it.
    ///
    /// # Errors
    /// `Stale`.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        unimplemented!()
    }

    /// Changes a file's attributes, all of them or none.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for the size of what has none, `FileTooBig`, `NotPermitted`.
    pub fn setattr(&self, caller: &Caller, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        unimplemented!()
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// Makes a file of any kind but directory and symbolic link; `mode` has the type's bits too
    /// (none: a regular file). Counts a lookup.
    ///
    /// # Errors
    /// `Exists`, `NotDirectory`, `NameTooLong`, `Invalid`.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a directory. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`], and `TooManyLinks`.
    pub fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], mode: u32) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a symbolic link to `target`, 1 to 4095 bytes. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`].
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Gives a file one more name; one that [`Self::tmpfile`] made gets its first. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`]; `NotPermitted` for a directory; `NotFound` for a file that was
    /// unlinked; `TooManyLinks`.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a regular file and opens it, or opens the one that is there. Counts a lookup and an
    /// open.
    ///
    /// # Errors
    /// As [`Self::mknod`] and [`Self::open`].
    pub fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        options: OpenOptions,
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a regular file without a name in `parent`'s file system and opens it (`O_TMPFILE`).
    /// It is gone when closed, unless it was linked. Counts a lookup and an open.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn tmpfile(&self, caller: &Caller, parent: Ino, mode: u32) -> Result<Attr> {
        unimplemented!()
    }

    /// Takes a name of anything but a directory away, and the file with its last name unless it
    /// is open.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotPermitted`.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        unimplemented!()
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`, `Invalid` for `.`.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        unimplemented!()
    }

    /// Renames, replacing what has the new name unless `flags` say otherwise. The caller owns the
    /// whiteout.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotEmpty`, `Exists`, `TooManyLinks`, `Invalid`
    /// when a directory would be moved into itself or the flags don't go together.
    pub fn rename(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Opens a file. Counts an open.
    ///
    /// # Errors
    /// `Stale`; `IsDirectory` for writing one; `ReadOnly`; `NotPermitted`.
    pub fn open(&self, ino: Ino, options: OpenOptions) -> Result<()> {
        unimplemented!()
    }

    /// Takes an open back; the last one removes a file that has no name.
    pub fn release(&self, ino: Ino) {
        unimplemented!()
    }

    /// Reads from `offset` on; fewer bytes than `buf` has at the end of the file alone.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for what has no data.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        unimplemented!()
    }

    /// Writes `data` at `offset`, in one atomic recovery unit. `kill_priv` takes the set-id bits
    /// away (FUSE's `WRITE_KILL_SUIDGID`). Returns how much was written: less than all at the
    /// largest file offset alone.
    ///
    /// # Errors
    /// As [`Self::read`], and `FileTooBig`, `NotPermitted`.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        unimplemented!()
    }

    /// Makes a file durable, and with it everything that was done before the call.
    ///
    /// # Errors
    /// What the disk says.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        unimplemented!()
    }

    /// Makes everything that was done before the call durable, in whatever directory.
    ///
    /// # Errors
    /// What the disk says.
    pub fn fsyncdir(&self, ino: Ino, datasync: bool) -> Result<()> {
        unimplemented!()
    }

    /// Passes a directory's entries after `cookie` (zero: from the start, `.` and `..` first) to
    /// `sink`, until it answers false: then that entry was not taken. No lock is held while it
    /// runs.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        unimplemented!()
    }

    /// As [`Self::readdir`], with attributes. Counts a lookup for each entry that was taken, other
    /// than `.` and `..`.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn readdirplus(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Sets an extended attribute. ACLs (`system.posix_acl_*`) are checked and change the mode.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `AttributeName`, `AttributeTooBig`, `NotSupported` for an unknown
    /// namespace, `Invalid` for a malformed ACL, `Full`.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        unimplemented!()
    }

    /// An extended attribute's value.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// The names of all extended attributes, each ended by a zero byte.
    ///
    /// # Errors
    /// What the disk says.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        unimplemented!()
    }

    /// The first offset at or past `offset` that is in data or in a hole.
    ///
    /// # Errors
    /// `NoData` at or past the end of the file, or when there is no more data.
    pub fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        unimplemented!()
    }

    /// Allocates, punches, zeroes, collapses or inserts. `kill_priv` takes the set-id bits away.
    /// Each GiB of a range to allocate, punch or zero is an atomic recovery unit of its own.
    ///
    /// # Errors
    /// `Invalid` for a range that is empty or, to collapse or insert, not of whole pages;
    /// `FileTooBig`, `NotSupported` for flags that don't go together, `NotPermitted`.
    pub fn fallocate(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        flags: FallocateFlags,
        kill_priv: bool,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Copies up to `len` bytes between files, or between ranges of one file that don't overlap,
    /// keeping holes. Returns how much: less than all at the source's end. Each MiB is an atomic
    /// recovery unit of its own.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::write`]; `Invalid` when the ranges overlap.
    pub fn copy_file_range(
        &self,
        ino_in: Ino,
        offset_in: u64,
        ino_out: Ino,
        offset_out: u64,
        len: u64,
        kill_priv: bool,
    ) -> Result<u64> {
        unimplemented!()
    }
}
