//! Memory in huge pages, divided into parts.
//!
//! # Invariants
//! 1. Parts of one mapping do not overlap, and each is made once: [`Mapping::split`] consumes the
//!    mapping.
//! 2. A mapping exists as long as a part of it does.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use dendro_base::sync::Arc;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// What huge pages are aligned to, and their size, where pages have 4 KiB.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory. As it is first used, the kernel backs it with huge pages, if it has some.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    mapped_bytes: usize,
    /// The offset of the first huge page.
    first_at: usize,
    len_bytes: usize,
}

// SAFETY: it is plain memory, not bound to the thread that mapped it.
unsafe impl Send for Mapping {}
// SAFETY: the mapping itself is not changed, and its bytes belong to its parts (invariant 1).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `None` when there is no memory for it.
    pub(super) fn new(len_bytes: usize) -> Option<Self> {
        let len_bytes = len_bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let mapped_bytes = len_bytes.checked_add(HUGE_PAGE_BYTES)?;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no other.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        let address = start.addr().get();
        let first_at = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        // Miri does not know the call, and it changes nothing that Miri checks.
        if !cfg!(miri) {
            // SAFETY: the range lies within the new mapping, and the advice changes no byte. An
            // error only means that there are no huge pages.
            let _ = unsafe {
                let first = start.add(first_at).as_ptr().cast();
                rustix::mm::madvise(first, len_bytes, Advice::LinuxHugepage)
            };
        }
        Some(Self { start, mapped_bytes, first_at, len_bytes })
    }

    /// `count` parts of `len_bytes`, one after the other, as far as they fit.
    pub(super) fn split(self, count: usize, len_bytes: usize) -> impl Iterator<Item = Part> {
        let fitting = self.len_bytes.checked_div(len_bytes).unwrap_or(0);
        let mapping = Arc::new(self);
        (0..count.min(fitting)).map(move |index| Part {
            mapping: Arc::clone(&mapping),
            at: index * len_bytes,
            len_bytes,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no part of it is left (invariant 2).
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A part of a mapping, with exclusive access to its bytes.
pub(super) struct Part {
    mapping: Arc<Mapping>,
    at: usize,
    len_bytes: usize,
}

impl Part {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: `split` makes only parts that fit between the first huge page and the end.
        unsafe { self.mapping.start.add(self.mapping.first_at + self.at) }
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped there, initialized by the kernel. To change them, this
        // part has to be borrowed mutably (invariant 1).
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the caller borrows this part exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri is too slow to look at every byte.
    const STEP: usize = if cfg!(miri) { 4096 } else { 1 };

    #[test]
    fn parts_lie_one_after_the_other_from_a_huge_page_on() {
        let mapping = Mapping::new(3 << 20).unwrap();
        let parts: Vec<Part> = mapping.split(4, 1 << 20).collect();
        assert_eq!(parts.len(), 4);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(part.as_ptr().addr() % HUGE_PAGE_BYTES, (index << 20) % HUGE_PAGE_BYTES);
            assert_eq!(part.as_ptr().addr() - parts[0].as_ptr().addr(), index << 20);
        }
        // Parts that do not fit are not made.
        assert_eq!(Mapping::new(1 << 20).unwrap().split(9, 1 << 20).count(), 2);
        assert_eq!(Mapping::new(1 << 20).unwrap().split(9, 0).count(), 0);
    }

    #[test]
    fn a_part_is_there_when_all_others_are_gone() {
        let mut parts: Vec<Part> = Mapping::new(4 << 20).unwrap().split(4, 1 << 20).collect();
        parts.iter_mut().for_each(|part| part.fill(7));
        let mut last = parts.swap_remove(2);
        drop(parts);
        assert!(last.iter().step_by(STEP).all(|&byte| byte == 7));
        last[0] = 8;
        assert_eq!(last[..2], [8, 7]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know a mapping that fails")]
    fn what_cannot_be_mapped_is_none() {
        assert!(Mapping::new(usize::MAX).is_none());
        assert!(Mapping::new(usize::MAX / 2).is_none());
    }
}
