//! Shuttle's locks with the interface of `parking_lot`: no poisoning, and a condition variable that
//! takes its guard by reference.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::sync as inner;

pub use inner::{RwLockReadGuard, RwLockWriteGuard};

/// A poisoned lock means that the test has failed already.
const POISONED: &str = "no thread has panicked";

/// How often a wait with a timeout lets other threads run before it ends.
const YIELDS_OF_A_TIMEOUT: u32 = 3;

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// The guard of a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a inner::Mutex<T>,
    /// Taken out only while a [`Condvar`] waits.
    guard: Option<inner::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(inner::Mutex::new(value))
    }

    /// Waits until the lock is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, guard: Some(self.0.lock().expect(POISONED)) }
    }

    /// The value of a lock that is no longer shared.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect(POISONED)
    }

    /// The value, while the caller has exclusive access to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISONED)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.0.try_lock().ok()?;
        Some(MutexGuard { mutex: &self.0, guard: Some(guard) })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_deref().expect("it is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("it is locked")
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(inner::Condvar);

/// Whether a wait ended by its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    #[must_use]
    pub const fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(inner::Condvar::new())
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Releases the lock, waits, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.guard.take().expect("it is locked");
        guard.guard = Some(self.0.wait(inner).expect(POISONED));
    }

    /// As [`Self::wait`], for `timeout` at most. There is no time in a model: the wait ends after
    /// some steps of other threads, whether it was notified or not.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        drop(guard.guard.take());
        for _ in 0..YIELDS_OF_A_TIMEOUT {
            shuttle::thread::yield_now();
        }
        guard.guard = Some(guard.mutex.lock().expect(POISONED));
        WaitTimeoutResult(true)
    }

    /// As [`Self::wait_for`], while `condition` holds.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        if condition(guard) { self.wait_for(guard, timeout) } else { WaitTimeoutResult(false) }
    }
}

/// A reader-writer lock.
#[derive(Debug, Default)]
pub struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(inner::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(POISONED)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect(POISONED)
    }

    /// Takes the lock for reading if nobody writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }

    /// The value of a lock that is no longer shared.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect(POISONED)
    }

    /// The value, while the caller has exclusive access to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISONED)
    }
}
