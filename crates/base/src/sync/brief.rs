//! A reader-writer lock for short critical sections.

use super::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often a lock is examined before the thread waits for it, each time some tens of processor
/// cycles later: for two or three microseconds in all.
#[cfg(not(feature = "shuttle"))]
const ATTEMPTS: u32 = 100;
/// In a model, a few attempts already allow all orders of events.
#[cfg(feature = "shuttle")]
const ATTEMPTS: u32 = 2;

/// A [`RwLock`] that is locked for microseconds and used by many threads.
///
/// A thread that finds it locked spins for about that long before it waits. A [`RwLock`] soon
/// yields the CPU to other threads instead, and a thread that gets the CPU may keep it for a
/// thousand times as long.
#[derive(Debug, Default)]
pub struct BriefRwLock<T>(RwLock<T>);

impl<T> BriefRwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        spin(|| self.0.is_locked_exclusive(), || self.0.try_read()).unwrap_or_else(|| self.0.read())
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        spin(|| self.0.is_locked(), || self.0.try_write()).unwrap_or_else(|| self.0.write())
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }
}

/// Tries to take a lock whenever it is free. Examining it first does not take it from the caches of
/// other processors.
fn spin<G>(is_locked: impl Fn() -> bool, take: impl Fn() -> Option<G>) -> Option<G> {
    for _ in 0..ATTEMPTS {
        if !is_locked()
            && let Some(guard) = take()
        {
            return Some(guard);
        }
        #[cfg(not(feature = "shuttle"))]
        std::hint::spin_loop();
        #[cfg(feature = "shuttle")]
        shuttle::hint::spin_loop();
    }
    None
}

#[cfg(all(test, not(feature = "shuttle")))]
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
                        // Now and then for longer than any thread spins.
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
    fn try_write_does_not_wait() {
        let lock = BriefRwLock::new(());
        let guard = lock.read();
        assert!(lock.try_write().is_none());
        drop(guard);
        assert!(lock.try_write().is_some());
    }
}
