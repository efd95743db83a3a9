//! A reader-writer lock for short critical sections.

#[cfg(feature = "shuttle")]
use shuttle::sync as inner;
#[cfg(not(feature = "shuttle"))]
use std::sync as inner;
use std::sync::{PoisonError, TryLockError};

/// Access for reading to what a [`BriefRwLock`] holds.
pub type BriefReadGuard<'a, T> = inner::RwLockReadGuard<'a, T>;
/// Access for writing to what a [`BriefRwLock`] holds.
pub type BriefWriteGuard<'a, T> = inner::RwLockWriteGuard<'a, T>;

/// A [`RwLock`](super::RwLock) that is locked for microseconds and used by many threads.
///
/// A thread that finds it locked spins for some microseconds, and then sleeps until it is woken.
/// A [`RwLock`](super::RwLock) yields the CPU before it sleeps. It cannot be woken then: another
/// thread that gets the CPU keeps it for a whole slice of the scheduler, which is a thousand times
/// as long as this lock is held.
#[derive(Debug, Default)]
pub struct BriefRwLock<T>(inner::RwLock<T>);

impl<T> BriefRwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(inner::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> BriefReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> BriefWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> Option<BriefWriteGuard<'_, T>> {
        match self.0.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
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
