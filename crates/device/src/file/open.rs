//! Opening and creating.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use dendro_base::sync::Mutex;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::device::FileDevice;
use super::lock;
use super::probe::{FileKind, check_block_device, direct_alignment, measure, round_down};
use super::transfer::{self, Alignment};
use crate::buffer::AlignedBuf;
use crate::device::BLOCK_SIZE;
use crate::error::{Error, Result};

/// Whether transfers bypass the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file or device supports it.
    #[default]
    Auto,
    /// Always; opening fails where it is not supported.
    Always,
    /// Writes, where the file or device supports it. Reads go through the page cache, so that what
    /// is read often comes from memory. After a direct write the kernel drops what the page cache
    /// had of that range.
    Writes,
    /// Never.
    Never,
}

/// How to open or create an image file, or open a block device.
///
/// By default: for reading and writing, with direct I/O where it works, without waiting for a lock.
///
/// # What the lock covers
/// An open for writing excludes every other open through this type, and any number of opens for
/// reading exclude one for writing, between processes and within one: by flock(2) on the file, by
/// fcntl(2) (`F_OFD_SETLK`) on the node of a block device. The lock ends when the device is dropped
/// or the process dies, however it dies. udev can examine a block device that is open.
///
/// A block device opened for writing is claimed as well (`O_EXCL`), so it is refused while it is
/// mounted, swapped to, part of an array or claimed by another name, and none of that can happen
/// while it is open. Opened through a loop device, the lock is taken on the file behind it too, so
/// that the image cannot be opened by its own name at the same time; the other order is refused
/// likewise.
///
/// Not covered: programs that neither lock nor claim (such as `dd`), another kind of file system
/// mounted from a loop device over an open image, a partition of a loop device against its image,
/// and network file systems that keep locks to one machine.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read_only: bool,
    unlocked: bool,
    direct: Direct,
    lock_wait: Duration,
    overwrite: bool,
    resizes_backing_file: bool,
}

impl OpenOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses writes, and shares the device with others that only read.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Opens for reading only and takes no lock, so that it works while another process writes.
    /// Reads may then return the states of different moments.
    #[must_use]
    pub fn unlocked(mut self) -> Self {
        self.read_only = true;
        self.unlocked = true;
        self
    }

    /// Whether to bypass the page cache.
    #[must_use]
    pub fn direct(mut self, direct: Direct) -> Self {
        self.direct = direct;
        self
    }

    /// How long to try when another process has the device open: umount(8) of a FUSE mount returns
    /// before its daemon has finished. On a block device, at least a second.
    #[must_use]
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// Lets [`Self::create`] replace a file that exists; its contents are lost.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether [`Device::extend`](crate::Device::extend) and
    /// [`Device::truncate`](crate::Device::truncate) of a loop device change the file behind it.
    /// Otherwise they do not change a block device at all.
    #[must_use]
    pub fn resizes_backing_file(mut self, resizes_backing_file: bool) -> Self {
        self.resizes_backing_file = resizes_backing_file;
        self
    }

    /// Opens an image file or block device. A length that is not a multiple of [`BLOCK_SIZE`] is
    /// rounded down.
    ///
    /// # Errors
    /// [`Error::InUse`] when it is locked, claimed or mounted; [`Error::Open`] when it cannot be
    /// opened, is neither a regular file nor a block device, is shorter than a block, has blocks
    /// larger than [`BLOCK_SIZE`], is write-protected, is longer than the process may write a file
    /// (RLIMIT_FSIZE), or can't do direct I/O where that was asked for.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let fail = |source| open_error(path, source);
        // Checked before it is opened: opening a pipe would wait, and opening a terminal or a tape
        // can have effects.
        let stat = rustix::fs::stat(path).map_err(|errno| fail(errno.into()))?;
        check_type(stat.st_mode).map_err(fail)?;
        let flags = if self.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let (fd, is_direct) = self.open_fd(path, flags).map_err(fail)?;
        self.adopt(path, fd, is_direct)
    }

    /// Makes a sparse image file of `len_bytes`, rounded down to whole blocks, and opens it for
    /// writing. An existing file is an error, unless [`Self::overwrite`] allows to replace what is
    /// in it.
    ///
    /// # Errors
    /// [`Error::InUse`] when the existing file is locked; [`Error::Open`] when it exists, is not a
    /// regular file, cannot be made that long, or `len_bytes` is less than a block.
    pub fn create(&self, path: impl AsRef<Path>, len_bytes: u64) -> Result<FileDevice> {
        let path = path.as_ref();
        let fail = |source| open_error(path, source);
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let len_bytes = round_down(len_bytes);
        check_len(len_bytes).map_err(fail)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let (fd, is_new) = match self.open_fd(path, flags) {
            Ok((fd, _)) => (fd, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.overwrite => {
                let stat = rustix::fs::stat(path).map_err(|errno| fail(errno.into()))?;
                check_regular(stat.st_mode).map_err(fail)?;
                (self.open_fd(path, OFlags::RDWR).map_err(fail)?.0, false)
            }
            Err(error) => return Err(fail(error)),
        };
        let created = self.fill_and_adopt(path, fd, len_bytes);
        if created.is_err() && is_new {
            // The new file is of no use. An error here matters less than the first one.
            let _ = rustix::fs::unlink(path);
        }
        created
    }

    fn fill_and_adopt(&self, path: &Path, fd: OwnedFd, len_bytes: u64) -> Result<FileDevice> {
        let fail = |errno: Errno| open_error(path, errno.into());
        let stat = rustix::fs::fstat(&fd).map_err(fail)?;
        check_regular(stat.st_mode).map_err(|source| open_error(path, source))?;
        // Locked before it is emptied: the file may be in use. The lock is on the open file, and
        // adopt() takes the same one once more.
        lock::lock(&fd, path, &stat, false, self.lock_wait)?;
        rustix::fs::ftruncate(&fd, 0).map_err(fail)?;
        rustix::fs::ftruncate(&fd, len_bytes).map_err(fail)?;
        rustix::fs::fsync(&fd).map_err(fail)?;
        sync_parent(path).map_err(fail)?;
        let is_direct = rustix::fs::fcntl_getfl(&fd).map_err(fail)?.contains(OFlags::DIRECT);
        self.adopt(path, fd, is_direct)
    }

    /// Opens `path`, and with `O_DIRECT` according to [`Direct`].
    fn open_fd(&self, path: &Path, flags: OFlags) -> io::Result<(OwnedFd, bool)> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, mode));
        match self.direct {
            Direct::Never => Ok((open(flags)?, false)),
            Direct::Always => {
                open(flags | OFlags::DIRECT).map(|fd| (fd, true)).map_err(|errno| match errno {
                    Errno::INVAL => no_direct_io(),
                    errno => errno.into(),
                })
            }
            Direct::Auto | Direct::Writes => match open(flags | OFlags::DIRECT) {
                // Some file systems refuse only after they have created the file.
                Err(Errno::INVAL) if flags.contains(OFlags::EXCL) => {
                    Ok((open((flags - OFlags::EXCL) | OFlags::NOFOLLOW)?, false))
                }
                Err(Errno::INVAL) => Ok((open(flags)?, false)),
                answer => Ok((answer?, true)),
            },
        }
    }

    /// Locks the open file, examines it, and makes a device of it.
    fn adopt(&self, path: &Path, fd: OwnedFd, is_direct: bool) -> Result<FileDevice> {
        let fail = |source| open_error(path, source);
        let stat: Stat = rustix::fs::fstat(&fd).map_err(|errno| fail(errno.into()))?;
        check_type(stat.st_mode).map_err(fail)?;
        let held = match self.unlocked {
            true => lock::Held::default(),
            false => lock::lock(&fd, path, &stat, self.read_only, self.lock_wait)?,
        };
        let (kind, len_bytes) = measure(&fd).map_err(fail)?;
        check_len(len_bytes).map_err(fail)?;
        if kind == FileKind::BlockDevice {
            check_block_device(&fd, self.read_only).map_err(fail)?;
        } else if !self.read_only {
            check_limit(len_bytes).map_err(fail)?;
        }
        let direct = if is_direct { self.settle_direct(&fd).map_err(fail)? } else { None };
        let cached = match (self.direct, direct) {
            (Direct::Writes, Some(_)) => {
                Some(open_cached(&fd).map_err(|errno| fail(errno.into()))?)
            }
            _ => None,
        };
        Ok(FileDevice {
            path: absolute(path),
            fd,
            cached,
            held: Mutex::new(held),
            kind,
            read_only: self.read_only,
            direct,
            len_bytes: AtomicU64::new(len_bytes),
            discards: AtomicBool::new(true),
            resizes_backing_file: self.resizes_backing_file,
        })
    }

    /// The alignment that direct I/O requires on `fd`, which was opened for it. Where it turns out
    /// not to work, switches `fd` to buffered I/O and returns `None`.
    fn settle_direct(&self, fd: &OwnedFd) -> io::Result<Option<Alignment>> {
        let alignment = direct_alignment(fd);
        let probe = match alignment {
            Some(alignment) => {
                transfer::read(fd, alignment, 0, &mut AlignedBuf::zeroed(BLOCK_SIZE))
                    .map(|()| alignment)
            }
            None => Err(no_direct_io()),
        };
        match probe {
            Ok(alignment) => Ok(Some(alignment)),
            Err(_) if self.direct != Direct::Always => {
                let flags = rustix::fs::fcntl_getfl(fd)?;
                rustix::fs::fcntl_setfl(fd, flags - OFlags::DIRECT)?;
                Ok(None)
            }
            // Reading may fail for other reasons; only this error is about direct I/O.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                Err(no_direct_io())
            }
            Err(error) => Err(error),
        }
    }
}

impl FileDevice {
    /// Opens an image or block device for reading and writing: [`OpenOptions::open`] with its
    /// defaults.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Makes a new, sparse image of `len_bytes`: [`OpenOptions::create`] with its defaults.
    ///
    /// # Errors
    /// As [`OpenOptions::create`].
    pub fn create(path: impl AsRef<Path>, len_bytes: u64) -> Result<Self> {
        OpenOptions::new().create(path, len_bytes)
    }
}

/// Opens the file of `fd` once more, for reading through the page cache.
fn open_cached(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::io::retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()))
}

fn open_error(path: &Path, source: io::Error) -> Error {
    Error::Open { path: path.display().to_string(), source }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}

fn no_direct_io() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "direct I/O does not work on this file")
}

fn check_type(mode: u32) -> io::Result<()> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile | FileType::BlockDevice => Ok(()),
        FileType::Directory => Err(invalid("is a directory, not an image file or block device")),
        _ => Err(invalid("is neither a regular file nor a block device")),
    }
}

fn check_regular(mode: u32) -> io::Result<()> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        FileType::BlockDevice => Err(invalid("is a block device, which cannot be created")),
        _ => check_type(mode),
    }
}

/// Writes behind the limit would fail one by one, after others had been taken.
fn check_limit(len_bytes: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len_bytes => Err(invalid(format!(
            "has {len_bytes} bytes, of which this process may write the first {limit} alone; raise \
             the limit with `ulimit -f`"
        ))),
        _ => Ok(()),
    }
}

fn check_len(len_bytes: u64) -> io::Result<()> {
    if len_bytes == 0 {
        return Err(invalid(format!("is too small: a device has at least {BLOCK_SIZE} bytes")));
    }
    Ok(())
}

/// The path in a form that stays right when the process changes its directory, as a daemon does.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Makes the name of a new file durable.
fn sync_parent(path: &Path) -> rustix::io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(directory) => rustix::fs::fsync(&directory),
        // A directory that may be written to but not read. Its file system will write it in time.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
