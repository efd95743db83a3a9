//! Several reads of one file at the same time, through io_uring.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};

use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsRawFd, OwnedFd};

use super::transfer::{self, Alignment};
use crate::device::ReadOf;

/// The most reads that are under way at a time. More gain nothing on a device of a machine.
const MAX_READS: usize = 64;

/// The ring of a thread.
enum Ring {
    /// None was wanted yet.
    Unused,
    Ready(Box<IoUring>),
    /// The system has none for this process.
    Missing,
}

thread_local! {
    static RING: RefCell<Ring> = const { RefCell::new(Ring::Unused) };
}

/// Fills what each read asks for, as many at a time as possible. All reads are within the file.
pub(super) fn read_each(
    file: &OwnedFd,
    alignment: Alignment,
    reads: &mut [ReadOf<'_, '_>],
) -> Result<(), (usize, io::Error)> {
    let mut done = [0_usize; MAX_READS];
    for (number, batch) in reads.chunks_mut(MAX_READS).enumerate() {
        let done = &mut done[..batch.len()];
        done.fill(0);
        RING.with_borrow_mut(|ring| read_batch(ring, file, alignment, batch, done));
        for (at, (read, &done_bytes)) in batch.iter_mut().zip(&*done).enumerate() {
            let finished = finish(file, alignment, read, done_bytes);
            finished.map_err(|error| (number * MAX_READS + at, error))?;
        }
    }
    Ok(())
}

/// Makes a read whole of which the first `done_bytes` are there: all of it if the ring did not read
/// it, and what is missing if it stopped short.
fn finish(
    file: &OwnedFd,
    alignment: Alignment,
    read: &mut ReadOf<'_, '_>,
    done_bytes: usize,
) -> io::Result<()> {
    if done_bytes == read.len_bytes() {
        return Ok(());
    }
    let done_bytes = alignment.keep(done_bytes);
    let offset = read.offset + done_bytes as u64;
    let mut rest: Vec<_> = read.parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let mut parts = &mut rest[..];
    IoSliceMut::advance_slices(&mut parts, done_bytes);
    transfer::read_parts(file, alignment, offset, parts)
}

/// Reads what fits the alignment, and notes in `done` how many bytes of each read are there. A read
/// that fails counts as none: it is made again by itself, which tells the error.
fn read_batch(
    ring: &mut Ring,
    file: &OwnedFd,
    alignment: Alignment,
    batch: &mut [ReadOf<'_, '_>],
    done: &mut [usize],
) {
    if matches!(ring, Ring::Unused) {
        *ring = IoUring::new(MAX_READS as u32)
            .map_or(Ring::Missing, |uring| Ring::Ready(Box::new(uring)));
    }
    let Ring::Ready(uring) = &mut *ring else { return };
    let mut count = 0;
    for (at, read) in batch.iter_mut().enumerate() {
        let parts = read.parts.iter().map(|part| &**part);
        if !alignment.fits_all(read.offset, parts) {
            continue;
        }
        let (parts, parts_count) = (read.parts.as_mut_ptr().cast(), read.parts.len() as u32);
        let entry = opcode::Readv::new(types::Fd(file.as_raw_fd()), parts, parts_count)
            .offset(read.offset)
            .build()
            .user_data(at as u64);
        // SAFETY: an `IoSliceMut` is an iovec. The parts and what they lead to are borrowed by
        // `batch` until this function returns, and it does not return, nor unwind, before as many
        // completions as entries have been seen, or the ring is gone. `file` is open for as long.
        let pushed = unsafe { uring.submission().push(&entry) };
        // The ring has as many entries as a batch has reads, and is empty before.
        count += usize::from(pushed.is_ok());
    }
    let mut seen = 0;
    while seen < count {
        if let Err(error) = uring.submit_and_wait(count - seen)
            && error.kind() != io::ErrorKind::Interrupted
        {
            // What the kernel has not taken will never be read, and what it has taken ends with
            // the ring: dropping a ring waits for nothing, so it is waited for here.
            abandon(uring, count, &mut seen, done);
            *ring = Ring::Missing;
            return;
        }
        seen += take_completed(uring, done);
    }
}

/// Notes the reads that are complete. Returns how many these are.
fn take_completed(uring: &mut IoUring, done: &mut [usize]) -> usize {
    let mut seen = 0;
    for completion in uring.completion() {
        if let Some(bytes) = done.get_mut(completion.user_data() as usize) {
            *bytes = usize::try_from(completion.result()).unwrap_or(0);
        }
        seen += 1;
    }
    seen
}

/// After a failed submission: waits until the kernel writes to no part any more.
fn abandon(uring: &mut IoUring, count: usize, seen: &mut usize, done: &mut [usize]) {
    // Entries that are still in the queue were not taken.
    let left = uring.submission().len();
    while *seen < count - left {
        *seen += take_completed(uring, done);
        std::thread::yield_now();
    }
}
