//! Ranges of pages that are being changed. A write of a part of a page reads the page and writes it
//! again, so no other change may come between.

use std::ops::Range;

use dendro_base::sync::{Condvar, Mutex};

/// The ranges that are locked. There are as many as threads, which are few.
#[derive(Debug, Default)]
pub(crate) struct PageLocks {
    held: Mutex<Vec<Range<u64>>>,
    released: Condvar,
}

/// A range that is locked until this is dropped.
pub(crate) struct LockedPages<'a> {
    locks: &'a PageLocks,
    pages: Range<u64>,
}

impl PageLocks {
    /// Waits until no part of `pages` is locked, and locks them. A thread locks one range at a
    /// time.
    pub(crate) fn lock(&self, pages: Range<u64>) -> LockedPages<'_> {
        let mut held = self.held.lock();
        while held.iter().any(|other| other.start < pages.end && pages.start < other.end) {
            self.released.wait(&mut held);
        }
        held.push(pages.clone());
        LockedPages { locks: self, pages }
    }
}

impl Drop for LockedPages<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        let at = held.iter().position(|other| *other == self.pages);
        held.swap_remove(at.expect("it was locked"));
        self.locks.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_range_waits_for_those_that_overlap_it_alone() {
        let locks = PageLocks::default();
        let has_locked = AtomicBool::new(false);
        let first = locks.lock(2..4);
        thread::scope(|scope| {
            scope.spawn(|| {
                drop(locks.lock(0..2));
                drop(locks.lock(4..9));
                let _second = locks.lock(3..5);
                has_locked.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(50));
            assert!(!has_locked.load(Ordering::SeqCst));
            drop(first);
        });
        assert!(has_locked.load(Ordering::SeqCst));
        assert!(locks.held.lock().is_empty());
    }
}
