//! Memory for requests and replies.
//!
//! Direct I/O to a buffer of 1 MiB needs 256 pages of 4 KiB, which are scattered in physical
//! memory. So the kernel sends many small requests to the device, and reads are half as fast as
//! into a huge page. But a huge page is allocated as a whole as soon as one byte of it is used, and
//! most buffers never hold more than a name. So memory consists of small pages until large requests
//! have used it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The size and alignment of huge pages if pages have 4 KiB. On machines with larger pages the
/// kernel refuses to collapse them, which does no harm.
const HUGE_PAGE_LEN: usize = 2 << 20;

/// From this length on, a request or reply counts as large.
const LARGE_LEN: usize = 256 << 10;

/// A memory mapping of whole pages. They are zeroed, and allocated when they are first used. A
/// front part is directly followed by the main part, which begins at a boundary of huge pages.
pub(super) struct Mapping {
    start: NonNull<u8>,
    mapped_len: usize,
    /// The offset of the front part.
    front_at: usize,
    front_len: usize,
    main_len: usize,
    collapse: Collapse,
    /// Whether the kernel may still write to it.
    is_shared: bool,
}

/// Whether the main part was collapsed to huge pages.
#[derive(Default)]
struct Collapse {
    is_done: bool,
    large_count: u32,
}

// SAFETY: this is plain memory, which does not belong to the thread that mapped it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps memory. `front_len` is a multiple of the page size.
    pub(super) fn new(front_len: usize, main_len: usize) -> io::Result<Self> {
        let room = main_len.checked_next_multiple_of(HUGE_PAGE_LEN);
        let mapped_len = room
            .and_then(|room| room.checked_add(HUGE_PAGE_LEN)?.checked_add(front_len))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let start = map(mapped_len)?;
        let main = (start.addr().get() + front_len).next_multiple_of(HUGE_PAGE_LEN);
        let front_at = main - front_len - start.addr().get();
        let collapse = Collapse::default();
        Ok(Self { start, mapped_len, front_at, front_len, main_len, collapse, is_shared: false })
    }

    /// The address of byte `at`, counted from the start of the front part.
    pub(super) fn address(&self, at: usize) -> *mut u8 {
        assert!(at < self.front_len + self.main_len, "the address is within the mapping");
        // SAFETY: the mapping has room for both parts from `front_at` on.
        unsafe { self.start.as_ptr().add(self.front_at + at) }
    }

    /// States whether the kernel may write to the mapping. While it may, dropping does not unmap.
    pub(super) fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// Records that one request or reply has used `len` bytes of the main part. Nothing uses them
    /// now. After several large ones the kernel is asked to collapse the pages to huge pages.
    pub(super) fn note_use(&mut self, len: usize) {
        if len < LARGE_LEN || self.collapse.is_done {
            return;
        }
        self.collapse.large_count = self.collapse.large_count.wrapping_add(1);
        // The kernel may have no huge page right now. The request is repeated, less and less often.
        if self.collapse.large_count.is_power_of_two() {
            self.collapse.is_done = self.collapse_pages().is_ok();
        }
    }

    fn collapse_pages(&self) -> io::Result<()> {
        let len = self.main_len.next_multiple_of(HUGE_PAGE_LEN);
        let main = self.address(self.front_len).cast();
        if cfg!(miri) {
            // Miri has no pages.
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the range lies within the mapping, which has room for whole huge pages from the
        // start of the main part on. Collapsing pages changes no byte and no address.
        match unsafe { libc::madvise(main, len, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Maps `len` bytes of zeroed memory.
#[cfg(not(miri))]
fn map(len: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: a new private mapping at an address that the kernel chooses overlaps no other.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    NonNull::new(start.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Unmaps what [`map`] has mapped.
///
/// # Safety
/// `start` and `len` are of one call of [`map`], and nothing refers to the memory.
#[cfg(not(miri))]
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller has promised it.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) };
}

/// For Miri, memory of the allocator stands for a mapping: so it finds uses outside of it, and
/// after it was freed.
#[cfg(miri)]
fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: the length is not 0.
    let start = unsafe { std::alloc::alloc_zeroed(layout(len)?) };
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(miri)]
fn layout(len: usize) -> io::Result<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(len, 4096).map_err(io::Error::other)
}

/// Frees what [`map`] has allocated.
///
/// # Safety
/// `start` and `len` are of one call of [`map`], and nothing refers to the memory.
#[cfg(miri)]
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    if let Ok(layout) = layout(len) {
        // SAFETY: the caller has promised it.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_shared {
            // SAFETY: the mapping belongs to this value. No reference to its memory outlives the
            // owner (rule 1 of rings; borrows of a `Buffer`), and the kernel does not use it (rule
            // 2).
            unsafe { unmap(self.start, self.mapped_len) };
        }
    }
}

/// A buffer for system calls.
pub(crate) struct Buffer(Mapping);

impl Buffer {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        Mapping::new(0, len.max(1)).map(Self)
    }

    /// See [`Mapping::note_use`].
    pub(crate) fn note_use(&mut self, len: usize) {
        self.0.note_use(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: that many bytes are mapped there, initialized, and belong to this value.
        unsafe { std::slice::from_raw_parts(self.0.address(0), self.0.main_len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the caller has the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.0.address(0), self.0.main_len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri takes long for each byte.
    const LEN: usize = if cfg!(miri) { 8192 } else { 1 << 20 };

    #[test]
    fn the_main_part_is_aligned_and_the_front_part_lies_right_before_it() {
        for (front_len, main_len) in [(0, 1), (4096, 1 << 20), (8192, 3 << 20)] {
            let mapping = Mapping::new(front_len, main_len).expect("there is memory");
            let front = mapping.address(0);
            let last = mapping.address(front_len + main_len - 1);
            assert!((front.addr() + front_len).is_multiple_of(HUGE_PAGE_LEN));
            assert_eq!(last.addr() - front.addr(), front_len + main_len - 1);
            let end = mapping.start.addr().get() + mapping.mapped_len;
            assert!(front >= mapping.start.as_ptr() && last.addr() < end);
        }
    }

    #[test]
    fn collapsing_pages_changes_no_byte() {
        let mut buffer = Buffer::new(LEN).expect("there is memory");
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        for _ in 0..5 {
            buffer.note_use(LARGE_LEN);
            assert!(buffer.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        }
    }

    #[test]
    fn pages_are_collapsed_after_large_requests_only() {
        let mut mapping = Mapping::new(0, 1 << 20).expect("there is memory");
        for _ in 0..100 {
            mapping.note_use(LARGE_LEN - 1);
        }
        assert_eq!(mapping.collapse.large_count, 0);
        // Whether there is a huge page depends on the machine.
        for _ in 0..100 {
            mapping.note_use(LARGE_LEN);
        }
        let Collapse { is_done, large_count } = mapping.collapse;
        assert!(is_done || large_count == 100);
    }
}
