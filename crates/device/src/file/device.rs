//! An open image file or block device.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dendro_base::sync::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::lock::{self, Held};
use super::probe::{self, FileKind};
use super::transfer::{self, Alignment};
use super::{at_once, length};
use crate::device::{BLOCK_SIZE, Device, HostRoom, ReadOf};
use crate::error::{Error, Result};
use crate::{block_device, range};

/// An image file or a block device; [`OpenOptions`](crate::OpenOptions) opens it and says what its
/// lock covers.
///
/// A transfer that is aligned (always so with buffered I/O) is one system call and no copy; with
/// direct I/O, others go through a buffer that each thread keeps. Transfers that stop short are
/// completed and interrupted ones tried again. Calls on several threads run at the same time.
pub struct FileDevice {
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
    /// What reads go through where they, unlike writes, use the page cache.
    pub(super) cached: Option<OwnedFd>,
    pub(super) held: Mutex<Held>,
    pub(super) kind: FileKind,
    pub(super) read_only: bool,
    /// `None` with buffered I/O.
    pub(super) direct: Option<Alignment>,
    pub(super) len_bytes: AtomicU64,
    pub(super) discards: AtomicBool,
    /// Whether the file behind a loop device is made longer and shorter with it.
    pub(super) resizes_backing_file: bool,
}

impl FileDevice {
    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it lies on.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Whether writes bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Whether [`Device::discard`] has an effect. It has until the file system or device has
    /// answered that it cannot discard.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.discards.load(Ordering::Relaxed)
    }

    /// Allocates all of an image on the file system that holds it, so that no write to it can find
    /// that file system full. The contents do not change.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Open`] when there is not enough room, or when this is not
    /// possible, as on a block device.
    pub fn allocate(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let answer = match self.kind {
            FileKind::Image => retry_on_intr(|| {
                rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, self.len_bytes())
            }),
            FileKind::BlockDevice => Err(Errno::NODEV),
        };
        answer.and_then(|()| rustix::fs::fsync(&self.fd)).map_err(|errno| Error::Open {
            path: self.path.display().to_string(),
            source: errno.into(),
        })
    }

    /// Releases the claim on a block device, so that the kernel can claim it for a mount of type
    /// fuseblk that this process serves. The lock stays. For an image this does nothing.
    pub fn release_claim(&self) {
        self.held.lock().claim = None;
    }

    /// Releases the lock as well, so that another process can take it. Nothing may be written to
    /// the device through this value any more.
    pub fn release(&self) {
        *self.held.lock() = Held::default();
        lock::unlock(&self.fd, self.kind);
    }

    /// Claims a block device again after [`Self::release_claim`], when the mount that had the claim
    /// is gone. For an image, or a device that is open for reading only, this does nothing.
    ///
    /// # Errors
    /// [`Error::InUse`] when another process has claimed the device meanwhile: nothing may be
    /// written to it any more. [`Error::Open`] otherwise.
    pub fn claim_again(&self) -> Result<()> {
        let mut held = self.held.lock();
        if self.kind == FileKind::Image || self.read_only || held.claim.is_some() {
            return Ok(());
        }
        let path = || self.path.display().to_string();
        let claim = block_device::claim(&self.path).map_err(|errno| match errno {
            Errno::BUSY => Error::InUse { path: path() },
            errno => Error::Open { path: path(), source: errno.into() },
        })?;
        held.claim = Some(claim);
        Ok(())
    }

    /// The length that it has outside: of the file, of the file behind the loop device if that is
    /// resized with it, or of the block device; rounded down to whole blocks. It is more than
    /// [`Device::len_bytes`] if somebody else has made it longer since it was opened.
    ///
    /// # Errors
    /// [`Error::Open`] when the system does not tell it.
    pub fn present_len_bytes(&self) -> Result<u64> {
        let backing = self.open_backing_file()?;
        let measured = probe::measure(backing.as_ref().unwrap_or(&self.fd));
        measured.map(|(_, len_bytes)| len_bytes).map_err(|source| self.fail(source))
    }

    /// Whether [`Device::extend`] and [`Device::truncate`] change the length of what it lies on.
    #[must_use]
    pub fn is_resizable(&self) -> bool {
        self.kind == FileKind::Image
            || self.resizes_backing_file && self.held.lock().backing_file.is_some()
    }

    fn fail(&self, source: io::Error) -> Error {
        Error::Open { path: self.path.display().to_string(), source }
    }

    /// The file behind a loop device, opened again, if it is resized with the device.
    fn open_backing_file(&self) -> Result<Option<OwnedFd>> {
        let held = self.held.lock();
        let locked = held.backing_file.as_ref().filter(|_| self.resizes_backing_file);
        let opened = locked.map(|file| length::open_again(file, self.read_only));
        opened.transpose().map_err(|source| self.fail(source))
    }

    /// See [`Device::extend`].
    fn extend_to(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
        let (from, tail_len_bytes) = (self.len_bytes(), tail.len() as u64);
        let failed = |source| Error::Io {
            operation: "write",
            offset: len_bytes - tail_len_bytes,
            len_bytes: tail_len_bytes,
            source,
        };
        let extend = |file, alignment| {
            length::extend(file, alignment, from, len_bytes, tail, allocates).map_err(failed)
        };
        if self.kind == FileKind::Image {
            extend(&self.fd, self.alignment())?;
            return self.sync(&self.fd);
        }
        if let Some(file) = self.open_backing_file()? {
            extend(&file, Alignment::NONE)?;
            self.sync(&file)?;
            return block_device::follow_backing_file(&self.fd)
                .map_err(|errno| self.fail(errno.into()));
        }
        let actual_len_bytes = self.present_len_bytes()?;
        if actual_len_bytes < len_bytes {
            return Err(Error::FixedLen { len_bytes: actual_len_bytes, wanted_bytes: len_bytes });
        }
        transfer::write(&self.fd, self.alignment(), len_bytes - tail_len_bytes, tail)
            .map_err(failed)?;
        self.flush()
    }

    /// See [`Device::truncate`].
    fn truncate_to(&self, len_bytes: u64) -> Result<()> {
        let truncate = |file: &OwnedFd| {
            rustix::fs::ftruncate(file, len_bytes).map_err(|errno| self.fail(errno.into()))?;
            self.sync(file)
        };
        if self.kind == FileKind::Image {
            return truncate(&self.fd);
        }
        let Some(file) = self.open_backing_file()? else {
            return Err(Error::FixedLen {
                len_bytes: self.present_len_bytes()?,
                wanted_bytes: len_bytes,
            });
        };
        truncate(&file)?;
        block_device::follow_backing_file(&self.fd).map_err(|errno| self.fail(errno.into()))
    }

    /// Makes durable what was written to `file`, and its length.
    fn sync(&self, file: &OwnedFd) -> Result<()> {
        rustix::fs::fsync(file).map_err(|errno| self.flush_failed(errno))
    }

    fn flush_failed(&self, errno: Errno) -> Error {
        let len_bytes = self.len_bytes();
        Error::Io { operation: "flush", offset: 0, len_bytes, source: errno.into() }
    }

    fn alignment(&self) -> Alignment {
        self.direct.unwrap_or(Alignment::NONE)
    }

    /// What reads go through, and the alignment that it requires.
    fn for_reads(&self) -> (&OwnedFd, Alignment) {
        match &self.cached {
            Some(cached) => (cached, Alignment::NONE),
            None => (&self.fd, self.alignment()),
        }
    }

    fn check_write(&self, offset: u64, len_bytes: u64) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        range::check_blocks(self.len_bytes(), offset, len_bytes)
    }
}

/// The lock of an image is released here, as that of the file behind a loop device is.
impl Drop for FileDevice {
    fn drop(&mut self) {
        lock::unlock(&self.fd, self.kind);
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .field("len_bytes", &self.len_bytes())
            .field("read_only", &self.read_only)
            .field("direct", &self.is_direct())
            .finish_non_exhaustive()
    }
}

/// File systems whose free blocks that others may not use root may not use either: Btrfs, FUSE,
/// NFS, CIFS (1, 2 and the old one), Ceph, 9P.
const WITHOUT_ROOTS_RESERVE: [u32; 8] =
    [0x9123_683E, 0x6573_5546, 0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x517B, 0x00C3_6400, 0x0102_1997];

/// What the file system of `file` gives it, if it says so: to root, if `by_root`, also what it
/// keeps for root.
fn room_of(file: &OwnedFd, by_root: bool) -> Option<HostRoom> {
    let (host, stat) = (rustix::fs::fstatvfs(file).ok()?, rustix::fs::fstat(file).ok()?);
    // Some file systems report no sizes at all.
    if host.f_blocks == 0 {
        return None;
    }
    // The type is 32 bits wide, whatever the field is.
    let has_reserve = || {
        rustix::fs::fstatfs(file)
            .is_ok_and(|of| !WITHOUT_ROOTS_RESERVE.contains(&(of.f_type as u32)))
    };
    let free_blocks = match by_root && has_reserve() {
        true => host.f_bavail.max(free_to_root(host.f_bfree, host.f_blocks)),
        false => host.f_bavail,
    };
    Some(HostRoom {
        free_bytes: free_blocks.saturating_mul(host.f_frsize),
        allocated_bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
    })
}

/// Of so many blocks, `free` among them, what root can have: all but what ext4 keeps from everybody
/// for its own use, which is a fiftieth of all of its blocks, f_blocks being a part of these, and
/// 4096 at most.
fn free_to_root(free: u64, blocks: u64) -> u64 {
    free.saturating_sub((blocks / 40).min(4096))
}

/// Whether this process is root where file systems keep blocks for root: not only in a user
/// namespace.
fn is_root() -> bool {
    let maps_all = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    rustix::process::geteuid().is_root()
        && std::fs::read_to_string("/proc/self/uid_map").is_ok_and(maps_all)
}

impl Device for FileDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// For a loop device, the room for the file behind it.
    fn host_room(&self) -> Option<HostRoom> {
        let room = match self.kind {
            FileKind::Image => room_of(&self.fd, is_root())?,
            // The kernel writes to it, as root.
            FileKind::BlockDevice => room_of(self.held.lock().backing_file.as_ref()?, true)?,
        };
        (room.allocated_bytes < self.len_bytes()).then_some(room)
    }

    /// For a loop device, it is asked of the file behind it.
    fn next_written(&self, offset: u64) -> Option<u64> {
        let next = |file: &OwnedFd| rustix::fs::seek(file, SeekFrom::Data(offset)).ok();
        match self.kind {
            FileKind::Image => next(&self.fd),
            FileKind::BlockDevice => next(self.held.lock().backing_file.as_ref()?),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len_bytes = buf.len() as u64;
        range::check_bounds(self.len_bytes(), offset, len_bytes)?;
        let (fd, alignment) = self.for_reads();
        transfer::read(fd, alignment, offset, buf).map_err(|source| Error::Io {
            operation: "read",
            offset,
            len_bytes,
            source,
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let len_bytes = bytes.len() as u64;
        self.check_write(offset, len_bytes)?;
        transfer::write(&self.fd, self.alignment(), offset, bytes).map_err(|source| Error::Io {
            operation: "write",
            offset,
            len_bytes,
            source,
        })
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        range::check_bounds(self.len_bytes(), offset, len_bytes)?;
        let (fd, alignment) = self.for_reads();
        transfer::read_parts(fd, alignment, offset, parts).map_err(|source| Error::Io {
            operation: "read",
            offset,
            len_bytes,
            source,
        })
    }

    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        for read in &*reads {
            range::check_bounds(self.len_bytes(), read.offset, read.len_bytes() as u64)?;
        }
        if let [read] = reads {
            return self.read_vectored_at(read.offset, read.parts);
        }
        let (fd, alignment) = self.for_reads();
        at_once::read_each(fd, alignment, reads).map_err(|(at, source)| Error::Io {
            operation: "read",
            offset: reads[at].offset,
            len_bytes: reads[at].len_bytes() as u64,
            source,
        })
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.check_write(offset, len_bytes)?;
        if let Some(part) = parts.iter().find(|part| !part.len().is_multiple_of(BLOCK_SIZE)) {
            return Err(Error::Misaligned { offset, len_bytes: part.len() as u64 });
        }
        transfer::write_parts(&self.fd, self.alignment(), offset, parts)
            .map_err(|source| Error::Io { operation: "write", offset, len_bytes, source })
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        // Not repeated after an error, EINTR included: the kernel reports a lost write only once.
        rustix::fs::fdatasync(&self.fd).map_err(|errno| self.flush_failed(errno))
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_write(offset, len_bytes)?;
        if len_bytes == 0 || !self.discards() {
            return Ok(());
        }
        let answer = retry_on_intr(|| match self.kind {
            FileKind::Image => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.fd, flags, offset, len_bytes)
            }
            FileKind::BlockDevice => block_device::discard(&self.fd, offset, len_bytes),
        });
        match answer {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
                self.discards.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(errno) => {
                Err(Error::Io { operation: "discard", offset, len_bytes, source: errno.into() })
            }
        }
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
        let start = len_bytes.saturating_sub(tail.len() as u64);
        let device_len_bytes = self.len_bytes();
        if len_bytes < device_len_bytes {
            return Err(Error::OutOfRange { offset: start, len_bytes, device_len_bytes });
        }
        range::check_blocks(len_bytes, start, tail.len() as u64)?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.extend_to(len_bytes, tail, allocates)?;
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn truncate(&self, len_bytes: u64) -> Result<()> {
        self.check_write(len_bytes, 0)?;
        // Nothing behind the new end is accepted any more when the file gets shorter.
        let before = self.len_bytes.swap(len_bytes, Ordering::Relaxed);
        self.truncate_to(len_bytes).inspect_err(|_| self.len_bytes.store(before, Ordering::Relaxed))
    }
}
