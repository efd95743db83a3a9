//! The file system as callers see it: a façade. Each method calls the module that does the work.

use std::ops::Range;

use dendro_base::Clock;
use dendro_base::sync::Arc;
use dendro_disk::{LogicalDisk, View};

use crate::data::{copy, fallocate, read, write};
use crate::error::Result;
use crate::namespace::{create, link, lookup, readdir, remove, rename, symlink};
use crate::privileges::Privileges;
use crate::state::FsState;
use crate::types::{
    AtimePolicy, Attr, Caller, DirEntry, FallocateFlags, FileFlags, FormatOptions, Ino, LongChange,
    MemoryUse, OpenOptions, Options, RenameFlags, Seek, SetAttr, StatFs, XattrFlags,
};
use crate::{attributes, durability, mount, no_space, open, orphans, xattr};

/// A mounted file system. All calls may come from any thread.
///
/// **Lookups.** [`Self::lookup`], [`Self::mknod`], [`Self::mkdir`], [`Self::symlink`],
/// [`Self::link`], [`Self::create`], [`Self::tmpfile`] and [`Self::readdirplus`] (for each entry
/// that the sink takes, except `.` and `..`) return an [`Attr`] and count one lookup of that file.
/// [`Self::forget`] takes lookups back.
///
/// **Views.** Several file systems can be open on one disk: one for each head, which can be
/// written, and any number for snapshots. A file system on a snapshot changes nothing, not even
/// access times or what a crash left unfinished.
///
/// **Opens.** [`Self::open`], [`Self::create`] and [`Self::tmpfile`] count one open of the file.
/// [`Self::release`] takes it back. There are no handles: all calls name i-nodes. A file without a
/// name exists while it is open. Directories need not be opened. A file that was removed and is not
/// forgotten still answers [`Self::getattr`]; other calls fail with
/// [`FsError::Stale`](crate::FsError::Stale).
#[derive(Debug)]
pub struct FileSystem {
    state: Arc<FsState>,
}

/// Creating, opening and closing.
impl FileSystem {
    /// Creates an empty file system on an empty disk, and makes it durable.
    ///
    /// # Errors
    /// [`Exists`](crate::FsError::Exists) if the disk has lists;
    /// [`NameTooLong`](crate::FsError::NameTooLong) for the label; errors of the disk.
    pub fn create_on(
        disk: &dyn LogicalDisk,
        options: &FormatOptions,
        clock: &dyn Clock,
    ) -> Result<()> {
        mount::create_on(disk, options, clock)
    }

    /// Opens the file system on `disk`. Unless it is read-only, this finishes removals and
    /// truncations that a crash interrupted.
    ///
    /// # Errors
    /// [`Corrupted`](crate::FsError::Corrupted) if there is no file system or it is malformed;
    /// [`NotSupported`](crate::FsError::NotSupported) if a later version created it; errors of the
    /// disk.
    pub fn mount(
        disk: Arc<dyn LogicalDisk>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::mount_with_hash_mask(disk, options, clock, u64::MAX)
    }

    /// As [`Self::mount`], but of the hashes of names only the bits in `hash_mask` count.
    pub(crate) fn mount_with_hash_mask(
        disk: Arc<dyn LogicalDisk>,
        options: Options,
        clock: Arc<dyn Clock>,
        hash_mask: u64,
    ) -> Result<Self> {
        mount::mount(disk, &options, clock, hash_mask).map(|state| Self { state })
    }

    /// The state, for modules above the façade.
    pub(crate) fn state(&self) -> &FsState {
        &self.state
    }

    /// The volume's label.
    #[must_use]
    pub fn label(&self) -> &str {
        self.state.label()
    }

    /// The view of the disk that this file system shows.
    #[must_use]
    pub fn view(&self) -> View {
        self.state.view()
    }

    /// Whether all changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.state.is_read_only()
    }

    /// Sets when reads change access times from now on. On a read-only file system they never do.
    pub fn set_atime_policy(&self, policy: AtimePolicy) {
        self.state.set_atime_policy(policy);
    }

    /// Gives what is free in a range of the device back to it, in whole segments. Returns the bytes
    /// of these.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn trim(&self, range: Range<u64>) -> Result<u64> {
        Ok(self.state.disk().trim(range)?)
    }

    /// The used and the available space.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        no_space::statfs(&self.state)
    }

    /// The memory that the file system takes, apart from the disk.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        self.state.memory_use()
    }

    /// Adds the lookups of `other`, another view of the same disk that this one replaces, to its
    /// own. No other call may be running on either of them.
    pub fn take_lookups(&self, other: &Self) {
        self.state.references().take_lookups(other.state.references());
    }

    /// Makes everything durable, and deletes files that existed only because they were open. The
    /// disk stays usable for other views. No other call may be running on this one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn close(&self) -> Result<()> {
        mount::close(&self.state)
    }

    /// As [`Self::close`], and shuts the disk down. No other call may be running.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn shut_down(&self) -> Result<()> {
        mount::shut_down(&self.state)
    }
}

/// Durability.
impl FileSystem {
    /// Makes everything durable that was done before the call.
    ///
    /// # Errors
    /// `NotDurable`; other errors of the disk.
    pub fn sync_all(&self) -> Result<()> {
        durability::sync_all(&self.state)
    }

    /// Makes a file or a directory durable, and everything that was done before the call. Access
    /// times of others stay in memory, and that of this one too if `datasync` is set.
    ///
    /// # Errors
    /// As [`Self::sync_all`].
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        durability::fsync(&self.state, ino, datasync)
    }
}

/// Names.
impl FileSystem {
    /// Finds an entry of a directory. Counts a lookup.
    ///
    /// The names `.` and `..` are known, too. Any file has a `.`: by that name the kernel looks up
    /// the file of an NFS file handle.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`; `Stale` for `.` of a file that does not exist.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        lookup::lookup(&self.state, parent, name)
    }

    /// Takes `count` lookups back.
    pub fn forget(&self, ino: Ino, count: u64) {
        orphans::forget(&self.state, ino, count);
    }

    /// Creates a file of any kind except directories and symbolic links. `mode` includes the bits
    /// of the type; without these the file is regular. Counts a lookup.
    ///
    /// # Errors
    /// `Exists`, `NotDirectory`, `NameTooLong`, `Invalid`.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        create::mknod(&self.state, caller, parent, name, mode, rdev)
    }

    /// Creates a directory. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`], and `TooManyLinks`.
    pub fn mkdir(&self, caller: &Caller<'_>, parent: Ino, name: &[u8], mode: u32) -> Result<Attr> {
        create::mkdir(&self.state, caller, parent, name, mode)
    }

    /// Creates a symbolic link to `target`, which has 1 to 4095 bytes. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`].
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        create::symlink(&self.state, caller, parent, name, target)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for other kinds of files.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        symlink::readlink(&self.state, ino)
    }

    /// Creates a regular file and opens it, or opens the one that exists. Counts a lookup and an
    /// open.
    ///
    /// # Errors
    /// As [`Self::mknod`] and [`Self::open`].
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
        options: OpenOptions,
    ) -> Result<Attr> {
        create::create(&self.state, caller, parent, name, mode, options)
    }

    /// Creates a regular file without a name, as if in the directory `parent`, and opens it
    /// (`O_TMPFILE`). It is deleted when it is closed, unless it was linked. Counts a lookup and an
    /// open.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn tmpfile(&self, caller: &Caller<'_>, parent: Ino, mode: u32) -> Result<Attr> {
        create::tmpfile(&self.state, caller, parent, mode)
    }

    /// Gives a file one more name, or the first name to a file that [`Self::tmpfile`] created.
    /// Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`]; `NotPermitted` for a directory; `NotFound` for a file that was unlinked;
    /// `TooManyLinks`.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        link::link(&self.state, ino, parent, name)
    }

    /// Removes a name that is not a directory's. With its last name the file is deleted, unless it
    /// is open.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotPermitted`.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        remove::unlink(&self.state, parent, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`, `Invalid` for `.`.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        remove::rmdir(&self.state, parent, name)
    }

    /// Renames a file. A file that has the new name is replaced, unless `flags` say otherwise. A
    /// whiteout belongs to the caller.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotEmpty`, `Exists`, `TooManyLinks`; `Invalid`
    /// if a directory would be moved into itself, or if the flags contradict each other.
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        rename::rename(&self.state, caller, parent, name, new_parent, new_name, flags)
    }

    /// Passes a directory's entries after `cookie` to `sink` until `sink` returns false, which
    /// means that it did not take that entry. Cookie 0 is the start; `.` and `..` come first. No
    /// lock is locked while `sink` runs. A directory that was removed has no entries.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        readdir::readdir(&self.state, ino, cookie, sink)
    }

    /// As [`Self::readdir`], with attributes. Counts a lookup for each entry that `sink` took,
    /// except `.` and `..`.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn readdirplus(
        &self,
        ino: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool,
    ) -> Result<()> {
        readdir::readdirplus(&self.state, ino, cookie, sink)
    }
}

/// Data.
impl FileSystem {
    /// Opens a file. Counts an open.
    ///
    /// # Errors
    /// `Stale`; `IsDirectory` for writing to a directory; `ReadOnly`; `NotPermitted`.
    pub fn open(&self, ino: Ino, options: OpenOptions) -> Result<()> {
        open::open(&self.state, ino, options)
    }

    /// Takes an open back. The last one deletes a file that has no name.
    pub fn release(&self, ino: Ino) {
        orphans::release(&self.state, ino);
    }

    /// Reads from `offset` on. Returns how many bytes: fewer than `buf` has only at the end of the
    /// file. The bytes of `buf` behind these may change.
    ///
    /// # Errors
    /// `IsDirectory`; `Invalid` for other files without data.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        read::read(&self.state, ino, offset, buf)
    }

    /// Writes `data` at `offset`, in one atomic recovery unit. `kill_priv` clears the set-id bits
    /// (FUSE's `WRITE_KILL_SUIDGID`). Returns how many bytes were written: fewer than all only at
    /// the largest file offset.
    ///
    /// # Errors
    /// As [`Self::read`], and `FileTooBig`, `NotPermitted`.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        write::write(&self.state, ino, offset, data, Privileges::of_change(kill_priv))
    }

    /// Writes `data` at `offset`, as [`Self::write`] does, that the kernel has collected. When the
    /// program wrote it, the kernel removed the privileges that a write removes. Those that the
    /// file has by now were given to it later, and stay.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_back(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        write::write(&self.state, ino, offset, data, Privileges::None)
    }

    /// The first offset that is not below `offset` and lies in data, or in a hole.
    ///
    /// # Errors
    /// `NoData` if `offset` is not below the size of the file, or if there is no more data.
    pub fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        read::seek(&self.state, ino, offset, seek)
    }

    /// Allocates, punches, zeroes, collapses or inserts a range. To allocate or zero, each 32 MiB
    /// of the range are an atomic recovery unit of their own. A size that changes does so in the
    /// last unit. A hole is there with the first unit, however many units free the space.
    ///
    /// Allocated pages read as zeros and count as data. The disk counts them in full, so they can
    /// be written on a full volume, too, as long as no other version shares them.
    ///
    /// # Errors
    /// `Invalid` for an empty range and, to collapse or insert, for a range that is not of whole
    /// pages; `FileTooBig`; `NotSupported` for flags that contradict each other; `NotPermitted`;
    /// `Interrupted` if the caller cancelled it in the middle, after which a part is done.
    pub fn fallocate(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        flags: FallocateFlags,
        how: &LongChange<'_>,
    ) -> Result<()> {
        fallocate::fallocate(&self.state, ino, offset, len, flags, how)
    }

    /// Copies up to `len` bytes between files, or between ranges of one file that do not overlap.
    /// Holes stay holes. Returns how many bytes were copied: fewer than `len` at the end of the
    /// source. Each MiB, and each run of data or holes, is an atomic recovery unit of its own. If
    /// the caller cancels it, the copy ends after one of these.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::write`]; `Invalid` if the ranges overlap.
    pub fn copy_file_range(
        &self,
        ino_in: Ino,
        offset_in: u64,
        ino_out: Ino,
        offset_out: u64,
        len: u64,
        how: &LongChange<'_>,
    ) -> Result<u64> {
        copy::copy_file_range(&self.state, ino_in, offset_in, ino_out, offset_out, len, how)
    }
}

/// Attributes.
impl FileSystem {
    /// The attributes of a file, with creation time and flags.
    ///
    /// # Errors
    /// `Stale`.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        attributes::get(&self.state, ino)
    }

    /// Changes attributes of a file, all of them or none. Only the superuser may set or clear the
    /// flags immutable and append-only.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for the size of a file without data, `FileTooBig`,
    /// `NotPermitted`.
    pub fn setattr(&self, caller: &Caller<'_>, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        attributes::set(&self.state, caller, ino, changes)
    }

    /// Changes the flags of a file. Only a caller who `is_privileged` may set or clear the flags
    /// immutable and append-only.
    ///
    /// # Errors
    /// `NotPermitted`, `NotSupported`.
    pub fn set_flags(&self, ino: Ino, flags: FileFlags, is_privileged: bool) -> Result<Attr> {
        attributes::set_flags(&self.state, ino, flags, is_privileged)
    }

    /// Clears the set-id bits and removes the capabilities of a file, before a user changes its
    /// data who may not keep them. The set-group-id bit of a file that its group cannot execute
    /// stays if `is_member` returns that the user is in the file's group. Directories keep the
    /// bits, which give no privileges there.
    ///
    /// # Errors
    /// `Stale`, `NotPermitted`.
    pub fn drop_set_ids(&self, ino: Ino, is_member: impl FnOnce(u32) -> bool) -> Result<Attr> {
        attributes::drop_set_ids(&self.state, ino, is_member)
    }

    /// Sets an extended attribute. ACLs (`system.posix_acl_*`) are checked, and change the mode.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `AttributeName`, `AttributeTooBig`; `NotSupported` for an unknown
    /// namespace; `Invalid` for a malformed ACL; `Full`.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        xattr::set(&self.state, ino, name, value, flags)
    }

    /// The value of an extended attribute. A file that was removed has none.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(&self.state, ino, name)
    }

    /// The names of all extended attributes, each with a zero byte behind it. A file that was
    /// removed has none.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        xattr::list(&self.state, ino)
    }

    /// Removes an extended attribute. It is no error if an ACL does not exist: the mode expresses
    /// the whole list then.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        xattr::remove(&self.state, ino, name)
    }
}
