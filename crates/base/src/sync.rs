//! The locks of the system, in one place so that a model checker can take their place.
//!
//! They do not poison: a panic is a bug that ends the process, and the log on disk is what survives.

pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use std::sync::Arc;
pub use std::sync::atomic;

/// So often is looked whether a lock is free, each time some tens of processor cycles later: two or
/// three microseconds.
const LOOKS: u32 = 100;

/// A [`RwLock`] that is held for microseconds and wanted by many.
///
/// Whoever finds it taken waits about that long on the spot. A [`RwLock`] soon offers the CPU to other
/// threads instead, and one that takes it may keep it for a thousand times as long.
#[derive(Debug, Default)]
pub struct BriefRwLock<T>(RwLock<T>);

impl<T> BriefRwLock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        look_often(|| self.0.is_locked_exclusive(), || self.0.try_read())
            .unwrap_or_else(|| self.0.read())
    }

    /// Waits until nobody else reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        look_often(|| self.0.is_locked(), || self.0.try_write()).unwrap_or_else(|| self.0.write())
    }

    /// As [`Self::write`], if it need not wait.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }
}

/// Tries to take a lock whenever it is free. Looking takes it from no other processor's cache.
fn look_often<G>(is_taken: impl Fn() -> bool, take: impl Fn() -> Option<G>) -> Option<G> {
    for _ in 0..LOOKS {
        if !is_taken()
            && let Some(guard) = take()
        {
            return Some(guard);
        }
        std::hint::spin_loop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_brief_lock_is_written_by_one_at_a_time_and_read_by_none_meanwhile() {
        let lock = BriefRwLock::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        // Now and then longer than anybody looks.
                        if round % 1000 == 0 {
                            std::thread::sleep(Duration::from_micros(50));
                        }
                        pair.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*lock.read(), (60_000, 60_000));
    }

    #[test]
    fn who_need_not_have_a_brief_lock_does_not_wait_for_it() {
        let lock = BriefRwLock::new(());
        let held = lock.read();
        assert!(lock.try_write().is_none());
        drop(held);
        assert!(lock.try_write().is_some());
    }
}
