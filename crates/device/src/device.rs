//! What a device is.

use std::io::{IoSlice, IoSliceMut};

#[allow(unused_imports, reason = "named in the documentation")]
use crate::error::Error;
use crate::error::Result;

/// Bytes in the unit that writes and discards are made of: their offset and length are multiples
/// of it. Reads may start and end anywhere.
pub const BLOCK_SIZE: usize = 4096;

/// The room for a sparse image on the file system that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// Bytes that are free on that file system.
    pub free_bytes: u64,
    /// Bytes of the image that are allocated there already.
    pub allocated_bytes: u64,
}

/// One of several devices of which a device is made, that holds something alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number: what has the same is lost together.
    pub number: u32,
    /// Whether it is one of the fast ones, on which is to be written what somebody waits for.
    pub is_fast: bool,
}

/// One of several reads that are made together.
#[derive(Debug)]
pub struct ReadOf<'p, 'b> {
    /// Where it begins.
    pub offset: u64,
    /// What is filled, one part after the other.
    pub parts: &'p mut [IoSliceMut<'b>],
}

impl ReadOf<'_, '_> {
    /// The length of all parts.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// A flat array of bytes.
///
/// These are its promises, and the log relies on nothing else:
/// 1. A read returns what the last completed write has written. Bytes that were never written, or
///    were discarded, may have any value.
/// 2. After [`Self::flush`] returns, every write that had returned before the flush began is
///    durable. Without one, any subset of 512-byte sectors may be lost, in any order.
/// 3. After a failed flush, nothing is promised about writes that were not flushed before it. A
///    success of a flush that is repeated after a failure proves nothing.
/// 4. A failed write has changed nothing but its own range, which is unknown then. It may be tried
///    again. Other writes are not affected.
pub trait Device: Send + Sync {
    /// Bytes on the device, a multiple of [`BLOCK_SIZE`]. [`Self::extend`] and [`Self::truncate`]
    /// alone change them.
    fn len_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The room for writes to ranges that are not allocated yet, where that may be less than the
    /// length of the device: for a sparse image. `None`: all of the device can be written to, or
    /// the room is not known.
    fn host_room(&self) -> Option<HostRoom> {
        None
    }

    /// The first offset from `offset` on for which a sparse image has storage that was written.
    /// `None`: there is none up to the end, or the device does not know.
    fn next_written(&self, _offset: u64) -> Option<u64> {
        None
    }

    /// Fills all of `buf` from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the end,
    /// [`Error::Io`] when the medium fails.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Fills all of `parts`, one after the other, from `offset` on, with one transfer if the device
    /// can do that.
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

    /// Makes several reads in any order, as many at a time as the device can.
    ///
    /// # Errors
    /// As [`Self::read_at`], about one of the reads; others may have been made then or not.
    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        reads.iter_mut().try_for_each(|read| self.read_vectored_at(read.offset, read.parts))
    }

    /// Writes all of `bytes` at `offset`; both are multiples of [`BLOCK_SIZE`]. It costs least
    /// when `bytes` lies in an [`AlignedBuf`](crate::AlignedBuf).
    ///
    /// # Errors
    /// [`Error::OutOfRange`],
    /// [`Error::Misaligned`],
    /// [`Error::ReadOnly`], or [`Error::Io`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes all of `parts`, one after the other, from `offset` on, with one transfer if the
    /// device can do that. The offset and each length are multiples of [`BLOCK_SIZE`].
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

    /// Makes every completed write durable that lies in a range, and perhaps others too.
    ///
    /// # Errors
    /// As [`Self::flush`], about that range.
    fn flush_range(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        self.flush()
    }

    /// Gives up the contents of a range, so that the device can free it. Both numbers are multiples
    /// of [`BLOCK_SIZE`]. A device that cannot discard does nothing.
    ///
    /// # Errors
    /// As [`Self::write_at`]. The caller may go on: nothing is lost.
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()>;

    /// Looks for a copy of a range of which `is_right` holds, after `buf` was read there and is not
    /// right, or the read failed. Fills `buf` from it, and writes it over copies of which it does
    /// not hold. Returns whether one was found. Nobody may write to the range meanwhile. A device
    /// that keeps everything once has no other copy.
    fn mend(&self, _offset: u64, _buf: &mut [u8], _is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        false
    }

    /// Whether copies of a range differ, or one of them cannot be read. A device that keeps
    /// everything once has nothing to compare.
    fn copies_differ(&self, _offset: u64, _len_bytes: u64) -> bool {
        false
    }

    /// In how many places of their own the device keeps what is written now, so that all but one of
    /// them may be lost.
    fn copy_count(&self) -> u32 {
        1
    }

    /// Which of several devices below holds a byte alone. `None`: all of it is on one device, or on
    /// each of them.
    fn part_at(&self, _offset: u64) -> Option<Part> {
        None
    }

    /// A number that changes whenever [`Self::part_at`] may answer otherwise than before; 0 as long
    /// as it has only answered `None`.
    fn parts_version(&self) -> u64 {
        0
    }

    /// If it is a set of several devices, the bytes at which those end that are there, or are about
    /// to. What lies on them states it, so that each is found although it has become longer by
    /// other means.
    fn member_ends(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Makes the device longer, and writes `tail` to its new end. A crash leaves it as it was, or
    /// longer and with the tail; when this returns, the latter is durable. What lies before the
    /// tail, behind the old end, may have any value. If the device has become as long already by
    /// other means, only the tail is written. With `allocates`, what is added is allocated where
    /// the device is an image.
    ///
    /// # Errors
    /// [`Error::FixedLen`] when it cannot be made that long, [`Error::OutOfRange`] when it is
    /// longer already, [`Error::Misaligned`], [`Error::ReadOnly`], [`Error::Open`] or
    /// [`Error::Io`]: it may be as long as before, or longer without the tail. If that error is of
    /// a flush, what was written before may be lost too ([`Self::flush`]).
    fn extend(&self, len_bytes: u64, _tail: &[u8], _allocates: bool) -> Result<()> {
        Err(Error::FixedLen { len_bytes: self.len_bytes(), wanted_bytes: len_bytes })
    }

    /// Makes the device shorter, to a multiple of [`BLOCK_SIZE`]; that is durable when this
    /// returns. What lay behind the new end is lost.
    ///
    /// # Errors
    /// As [`Self::extend`]; nothing has changed then.
    fn truncate(&self, len_bytes: u64) -> Result<()> {
        Err(Error::FixedLen { len_bytes: self.len_bytes(), wanted_bytes: len_bytes })
    }
}

/// Implements [`Device`] for something that leads to one.
macro_rules! forward_to_device {
    ($pointer:ty) => {
        impl<D: Device + ?Sized> Device for $pointer {
            fn len_bytes(&self) -> u64 {
                (**self).len_bytes()
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn host_room(&self) -> Option<HostRoom> {
                (**self).host_room()
            }
            fn next_written(&self, offset: u64) -> Option<u64> {
                (**self).next_written(offset)
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                (**self).read_at(offset, buf)
            }
            fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
                (**self).read_vectored_at(offset, parts)
            }
            fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
                (**self).read_each(reads)
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
            fn flush_range(&self, offset: u64, len_bytes: u64) -> Result<()> {
                (**self).flush_range(offset, len_bytes)
            }
            fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
                (**self).discard(offset, len_bytes)
            }
            fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
                (**self).mend(offset, buf, is_right)
            }
            fn copies_differ(&self, offset: u64, len_bytes: u64) -> bool {
                (**self).copies_differ(offset, len_bytes)
            }
            fn copy_count(&self) -> u32 {
                (**self).copy_count()
            }
            fn part_at(&self, offset: u64) -> Option<Part> {
                (**self).part_at(offset)
            }
            fn parts_version(&self) -> u64 {
                (**self).parts_version()
            }
            fn member_ends(&self) -> Vec<u64> {
                (**self).member_ends()
            }
            fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
                (**self).extend(len_bytes, tail, allocates)
            }
            fn truncate(&self, len_bytes: u64) -> Result<()> {
                (**self).truncate(len_bytes)
            }
        }
    };
}

forward_to_device!(&D);
forward_to_device!(std::sync::Arc<D>);
