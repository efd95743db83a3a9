//! Whole transfers made of system calls that may transfer less than they are asked for.
//!
//! An aligned transfer is one system call on the caller's memory. With direct I/O, an unaligned one
//! goes through a buffer that each thread keeps.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::AlignedBuf;

/// Bytes of the buffer that unaligned transfers go through.
const BOUNCE_BYTES: usize = 256 << 10;

/// The aligned middle of an unaligned read is read without copying if it has at least so many
/// bytes.
const MIN_MIDDLE_BYTES: usize = 64 << 10;

thread_local! {
    static BOUNCE: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::zeroed(BOUNCE_BYTES));
}

/// How many parts one system call takes (`IOV_MAX`).
const MAX_PARTS: usize = 1024;

/// The system calls, behind a trait so that tests can make them transfer less.
pub(super) trait RawIo {
    /// pread(2).
    fn pread(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize>;
    /// pwrite(2).
    fn pwrite(&self, bytes: &[u8], offset: u64) -> rustix::io::Result<usize>;
    /// preadv(2).
    fn preadv(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> rustix::io::Result<usize>;
    /// pwritev(2).
    fn pwritev(&self, parts: &[IoSlice<'_>], offset: u64) -> rustix::io::Result<usize>;
}

impl RawIo for OwnedFd {
    fn pread(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        rustix::io::pread(self, buf, offset)
    }
    fn pwrite(&self, bytes: &[u8], offset: u64) -> rustix::io::Result<usize> {
        rustix::io::pwrite(self, bytes, offset)
    }
    fn preadv(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> rustix::io::Result<usize> {
        rustix::io::preadv(self, parts, offset)
    }
    fn pwritev(&self, parts: &[IoSlice<'_>], offset: u64) -> rustix::io::Result<usize> {
        rustix::io::pwritev(self, parts, offset)
    }
}

/// The alignment that a file requires of its transfers: powers of two up to [`crate::BLOCK_SIZE`],
/// both 1 with buffered I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Of offsets and lengths in the file.
    pub(super) offset_bytes: usize,
    /// Of addresses in memory.
    pub(super) memory_bytes: usize,
}

impl Alignment {
    /// Buffered I/O requires none.
    pub(super) const NONE: Self = Self { offset_bytes: 1, memory_bytes: 1 };

    fn offset_slack(self, offset: u64) -> usize {
        offset as usize & (self.offset_bytes - 1)
    }

    fn fits(self, offset: u64, memory: *const u8, len_bytes: usize) -> bool {
        self.offset_slack(offset) == 0
            && len_bytes & (self.offset_bytes - 1) == 0
            && memory.addr() & (self.memory_bytes - 1) == 0
    }

    /// Whether all parts of a transfer fit, so that one system call takes them.
    pub(super) fn fits_all<'a>(
        self,
        offset: u64,
        parts: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> bool {
        let mut parts = parts;
        self.offset_slack(offset) == 0
            && parts.len() <= MAX_PARTS
            && parts.all(|part| self.fits(0, part.as_ptr(), part.len()))
    }

    /// How much of a transfer that ended after `len_bytes` counts, so that the next one is aligned.
    pub(super) fn keep(self, len_bytes: usize) -> usize {
        len_bytes & !(self.offset_bytes - 1)
    }
}

/// Fills `buf` from `offset`.
pub(super) fn read(
    io: &impl RawIo,
    alignment: Alignment,
    mut offset: u64,
    mut buf: &mut [u8],
) -> io::Result<()> {
    if alignment.fits(offset, buf.as_ptr(), buf.len()) {
        return read_aligned(io, alignment, offset, buf);
    }
    while !buf.is_empty() {
        let slack = alignment.offset_slack(offset);
        let middle = alignment.keep(buf.len());
        if middle >= MIN_MIDDLE_BYTES && alignment.fits(offset, buf.as_ptr(), middle) {
            let (head, rest) = buf.split_at_mut(middle);
            read_aligned(io, alignment, offset, head)?;
            (offset, buf) = (offset + middle as u64, rest);
            continue;
        }
        // Behind the first bytes, the rest may be aligned both in the file and in memory.
        let to_aligned = (alignment.offset_bytes - slack) & (alignment.offset_bytes - 1);
        let middle = alignment.keep(buf.len().saturating_sub(to_aligned));
        let splits = to_aligned > 0
            && middle >= MIN_MIDDLE_BYTES
            && buf.as_ptr().addr().wrapping_add(to_aligned) & (alignment.memory_bytes - 1) == 0;
        let piece = if splits { to_aligned } else { buf.len().min(BOUNCE_BYTES - slack) };
        let (head, rest) = buf.split_at_mut(piece);
        BOUNCE.with_borrow_mut(|bounce| {
            let span = (slack + piece).next_multiple_of(alignment.offset_bytes);
            read_aligned(io, alignment, offset - slack as u64, &mut bounce[..span])?;
            head.copy_from_slice(&bounce[slack..slack + piece]);
            io::Result::Ok(())
        })?;
        (offset, buf) = (offset + piece as u64, rest);
    }
    Ok(())
}

/// Writes `bytes` at `offset`; offset and length are aligned, the address need not be.
pub(super) fn write(
    io: &impl RawIo,
    alignment: Alignment,
    mut offset: u64,
    bytes: &[u8],
) -> io::Result<()> {
    if alignment.fits(offset, bytes.as_ptr(), bytes.len()) {
        return write_aligned(io, alignment, offset, bytes);
    }
    BOUNCE.with_borrow_mut(|bounce| {
        for piece in bytes.chunks(BOUNCE_BYTES) {
            bounce[..piece.len()].copy_from_slice(piece);
            write_aligned(io, alignment, offset, &bounce[..piece.len()])?;
            offset += piece.len() as u64;
        }
        Ok(())
    })
}

/// Fills `parts` from `offset`, with one system call if possible.
pub(super) fn read_parts(
    io: &impl RawIo,
    alignment: Alignment,
    mut offset: u64,
    mut parts: &mut [IoSliceMut<'_>],
) -> io::Result<()> {
    if !alignment.fits_all(offset, parts.iter().map(|part| &**part)) {
        for part in parts {
            read(io, alignment, offset, part)?;
            offset += part.len() as u64;
        }
        return Ok(());
    }
    // Removes empty parts.
    IoSliceMut::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let count = match io.preadv(parts, offset) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(count) => alignment.keep(count),
        };
        if count == 0 {
            return Err(became_shorter());
        }
        IoSliceMut::advance_slices(&mut parts, count);
        offset += count as u64;
    }
    Ok(())
}

/// Writes `parts` at `offset`, with one system call if possible. Offset and lengths are aligned;
/// addresses need not be.
pub(super) fn write_parts(
    io: &impl RawIo,
    alignment: Alignment,
    mut offset: u64,
    parts: &[IoSlice<'_>],
) -> io::Result<()> {
    if !alignment.fits_all(offset, parts.iter().map(|part| &**part)) {
        for part in parts {
            write(io, alignment, offset, part)?;
            offset += part.len() as u64;
        }
        return Ok(());
    }
    let mut parts = parts.to_vec();
    let mut parts = &mut parts[..];
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let count = match io.pwritev(parts, offset) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(count) => alignment.keep(count),
        };
        if count == 0 {
            return Err(nothing_more());
        }
        IoSlice::advance_slices(&mut parts, count);
        offset += count as u64;
    }
    Ok(())
}

fn became_shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file or device has become shorter")
}

fn nothing_more() -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, "nothing more was written")
}

fn read_aligned(
    io: &impl RawIo,
    alignment: Alignment,
    mut offset: u64,
    mut buf: &mut [u8],
) -> io::Result<()> {
    while !buf.is_empty() {
        let count = match io.pread(buf, offset) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(count) if count == buf.len() => return Ok(()),
            Ok(count) => alignment.keep(count),
        };
        if count == 0 {
            return Err(became_shorter());
        }
        buf = &mut buf[count..];
        offset += count as u64;
    }
    Ok(())
}

fn write_aligned(
    io: &impl RawIo,
    alignment: Alignment,
    mut offset: u64,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = match io.pwrite(bytes, offset) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(count) if count == bytes.len() => return Ok(()),
            Ok(count) => alignment.keep(count),
        };
        if count == 0 {
            return Err(nothing_more());
        }
        bytes = &bytes[count..];
        offset += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
