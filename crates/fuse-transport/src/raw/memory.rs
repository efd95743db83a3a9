//! Memory that requests and answers lie in.
//!
//! Direct I/O takes memory by pieces that lie together in the machine: a MiB of pages of 4 KiB are 256
//! of them, which make requests to a device small and many, and reading from it half as fast as into a
//! huge page. But a huge page is there as a whole as soon as a byte of it is used, and most buffers
//! never see more than a name. So memory consists of small pages until much has gone through it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// What huge pages are aligned to, and their size, where pages have 4 KiB. Where they have more, the
/// kernel refuses to join them, and nothing is lost.
const HUGE_PAGE_LEN: usize = 2 << 20;

/// What goes through memory at a time that it is worth while to join pages for.
const LARGE_LEN: usize = 256 << 10;

/// Memory of whole pages, zeroed at first and taken page by page as it is used: a front part, and
/// right behind it, at a boundary of huge pages, the main part.
pub(super) struct Mapping {
    start: NonNull<u8>,
    mapped_len: usize,
    /// Where the front part begins.
    front_at: usize,
    front_len: usize,
    main_len: usize,
    joining: Joining,
    /// Whether the kernel may still write there.
    pub(super) is_shared: bool,
}

/// Whether the main part consists of huge pages yet.
#[derive(Default)]
struct Joining {
    is_done: bool,
    large_count: u32,
}

// SAFETY: it is plain memory; `start` is not bound to the thread that mapped it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `front_len` is a multiple of the page size.
    pub(super) fn new(front_len: usize, main_len: usize) -> io::Result<Self> {
        let room = main_len.checked_next_multiple_of(HUGE_PAGE_LEN);
        let mapped_len = room
            .and_then(|room| room.checked_add(HUGE_PAGE_LEN)?.checked_add(front_len))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no other.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let main = (start.addr().get() + front_len).next_multiple_of(HUGE_PAGE_LEN);
        let front_at = main - front_len - start.addr().get();
        let joining = Joining::default();
        Ok(Self { start, mapped_len, front_at, front_len, main_len, joining, is_shared: false })
    }

    /// The address of byte `at`, counted from the front part's first on.
    pub(super) fn address(&self, at: usize) -> *mut u8 {
        assert!(at < self.front_len + self.main_len, "an entry lies within its ring's memory");
        // SAFETY: within the mapping: it was made long enough for both parts from `front_at` on.
        unsafe { self.start.as_ptr().add(self.front_at + at) }
    }

    /// So many bytes have gone through the main part at once, which nothing is using now: if that
    /// happens more often, the kernel had better join its pages.
    pub(super) fn note_use(&mut self, len: usize) {
        if len < LARGE_LEN || self.joining.is_done {
            return;
        }
        self.joining.large_count = self.joining.large_count.wrapping_add(1);
        // It may find no huge page just then, so it is asked again, less and less often.
        if self.joining.large_count.is_power_of_two() {
            self.joining.is_done = self.join().is_ok();
        }
    }

    fn join(&self) -> io::Result<()> {
        let len = self.main_len.next_multiple_of(HUGE_PAGE_LEN);
        let main = self.address(self.front_len).cast();
        // SAFETY: the range lies within the mapping, which has room for whole huge pages from the
        // main part's start on; joining pages changes no byte and no address.
        match unsafe { libc::madvise(main, len, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_shared {
            // SAFETY: the mapping is this value's own, nothing that leads into it outlives the owner
            // (rule 1 of the rings; borrows of a `Buffer`), and the kernel has given all of it back
            // (rule 2).
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped_len) };
        }
    }
}

/// Bytes of its own for whoever reads and writes by system calls.
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
        // SAFETY: so many bytes are mapped there, initialized by the kernel, and this value's own.
        unsafe { std::slice::from_raw_parts(self.0.address(0), self.0.main_len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and borrowed by the caller alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.address(0), self.0.main_len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn joining_pages_changes_no_byte() {
        let mut buffer = Buffer::new(1 << 20).expect("there is memory");
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        for _ in 0..5 {
            buffer.note_use(LARGE_LEN);
            assert!(buffer.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        }
    }

    #[test]
    fn pages_are_joined_where_much_goes_through_them_and_nowhere_else() {
        let mut mapping = Mapping::new(0, 1 << 20).expect("there is memory");
        for _ in 0..100 {
            mapping.note_use(LARGE_LEN - 1);
        }
        assert_eq!(mapping.joining.large_count, 0);
        // Whether there is a huge page is the machine's matter; it is not asked forever.
        for _ in 0..100 {
            mapping.note_use(LARGE_LEN);
        }
        let Joining { is_done, large_count } = mapping.joining;
        assert!(is_done || large_count == 100);
    }
}
