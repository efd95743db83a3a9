//! Where segments live: a device is a flat array of bytes that can be read, written, flushed and
//! discarded. It knows nothing of logs.
//!
//! - [`Device`]: what every device does. Each call is one that could be a positioned write or one
//!   object PUT (DESIGN §2).
//! - [`AlignedBuf`]: memory that direct I/O takes as it is.
//! - [`MemoryDevice`]: a device in memory, for tests and benchmarks.
//! - [`OverlayDevice`]: any of them, what is written to it kept in memory.
//! - [`FileDevice`], opened by [`OpenOptions`]: an image file or a block device.
//! - [`LoopDevice`]: an image file as a block device.
//! - [`ReadAhead`]: any of them, reading more than is asked for where reads lie near each other.
//! - [`share_one_arena`]: the memory of a process that reads and replaces much, on many threads.
//! - `sim` (feature `sim`): a simulated device with seeded faults, power cuts and crash images.

mod aligned;
mod block;
mod error;
mod file;
mod heap;
mod loopback;
mod memory;
mod overlay;
mod range;
mod readahead;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use aligned::AlignedBuf;
pub use error::{Error, Result};
pub use file::{Direct, FileDevice, FileKind, OpenOptions};
pub use heap::share_one_arena;
pub use loopback::{LoopDevice, loop_backing_file};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use readahead::ReadAhead;
pub use std::io::{IoSlice, IoSliceMut};

/// Bytes in the unit that writes and discards are made of: their offset and length are multiples
/// of it. Reads may start and end anywhere.
pub const BLOCK_SIZE: usize = 4096;

/// What the file system that holds an image still gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// Bytes that are free on that file system.
    pub free_bytes: u64,
    /// Bytes of the image that have their place there already.
    pub allocated_bytes: u64,
}

/// A flat array of bytes.
///
/// What it promises, and all that the log asks of it:
/// 1. A read returns what the last completed write put there. What was never written, or was
///    discarded, reads as anything.
/// 2. After [`Self::flush`] returns, every write that had returned before the flush began is
///    durable. Without one, any subset of 512-byte sectors may be lost, in any order.
/// 3. After a failed write or flush nothing is promised about what was not flushed before it. A
///    flush that failed must not be tried again and believed.
/// 4. The exception is a write that fails with [`Error::is_no_space`]: only its own range is unknown
///    then, and it may be tried again.
pub trait Device: Send + Sync {
    /// Bytes on the device, a multiple of [`BLOCK_SIZE`].
    fn len_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What there is for writes to places that have none yet, where that may be less than the device is
    /// long: of a sparse image. `None`: all of the device can be written to, or nobody knows.
    fn host_room(&self) -> Option<HostRoom> {
        None
    }

    /// Fills `buf` from `offset`: all of it, or an error.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the end, [`Error::Io`] when the medium fails.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Fills all of `parts`, one after the other, from `offset` on: one transfer where the device can.
    ///
    /// # Errors
    /// As [`Self::read_at`]; some of the parts may be filled then.
    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        let mut offset = offset;
        for part in parts {
            self.read_at(offset, part)?;
            offset = offset.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`; both are multiples of [`BLOCK_SIZE`]. It costs least
    /// when `bytes` lies in an [`AlignedBuf`].
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::ReadOnly`], or [`Error::Io`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes all of `parts`, one after the other, from `offset` on: one transfer where the device can.
    /// The offset and each length are multiples of [`BLOCK_SIZE`].
    ///
    /// # Errors
    /// As [`Self::write_at`]; some of the parts may be written then.
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let mut offset = offset;
        for part in parts {
            self.write_at(offset, part)?;
            offset = offset.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// [`Error::Io`]: the caller must stop writing for good.
    fn flush(&self) -> Result<()>;

    /// Says that a range's contents are no longer wanted; both numbers are multiples of
    /// [`BLOCK_SIZE`]. A device that cannot discard does nothing.
    ///
    /// # Errors
    /// As [`Self::write_at`]. The caller may go on: nothing is lost.
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()>;
}

impl<D: Device + ?Sized> Device for std::sync::Arc<D> {
    fn len_bytes(&self) -> u64 {
        (**self).len_bytes()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
    fn host_room(&self) -> Option<HostRoom> {
        (**self).host_room()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        (**self).read_vectored_at(offset, parts)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        (**self).write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        (**self).write_vectored_at(offset, parts)
    }
    fn flush(&self) -> Result<()> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        (**self).discard(offset, len_bytes)
    }
}
