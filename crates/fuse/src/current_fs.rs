//! The file system that a mount shows, which can be replaced while it is mounted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dendro_base::sync::{Mutex, RwLock, RwLockReadGuard};
use dendro_fs::FileSystem;

/// The number of locks. Threads that serve requests use different ones, so that they do not
/// contend.
const LOCK_COUNT: usize = 16;

/// One of the locks, on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Lock(RwLock<Arc<FileSystem>>);

/// The file system that serves requests. A request locks one of the locks for reading, so that it
/// uses the same file system from beginning to end. An exchange locks all of them.
#[derive(Debug)]
pub(crate) struct CurrentFs {
    locks: Vec<Lock>,
    /// The same file system, for callers that must not wait for an exchange.
    current: Mutex<Arc<FileSystem>>,
}

/// The lock that this thread uses.
fn own_lock() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LOCK_COUNT;
    }
    OWN.with(|own| *own)
}

impl CurrentFs {
    pub(crate) fn new(fs: Arc<FileSystem>) -> Self {
        let locks = (0..LOCK_COUNT).map(|_| Lock(RwLock::new(Arc::clone(&fs)))).collect();
        Self { locks, current: Mutex::new(fs) }
    }

    /// The file system, which is not replaced while the guard exists. A thread must not have two
    /// guards: it would deadlock with an exchange that waits between them.
    pub(crate) fn lock(&self) -> RwLockReadGuard<'_, Arc<FileSystem>> {
        self.locks[own_lock()].0.read()
    }

    /// The file system, without waiting. During an exchange this is still the old one.
    pub(crate) fn get(&self) -> Arc<FileSystem> {
        Arc::clone(&self.current.lock())
    }

    /// Calls `change` while no request is being served. If it returns a file system, requests are
    /// served from that one from then on.
    pub(crate) fn exchange<T, E>(
        &self,
        change: impl FnOnce(&Arc<FileSystem>) -> Result<(Option<Arc<FileSystem>>, T), E>,
    ) -> Result<T, E> {
        let mut locks: Vec<_> = self.locks.iter().map(|lock| lock.0.write()).collect();
        let (new, rest) = change(&locks[0])?;
        if let Some(new) = new {
            locks.iter_mut().for_each(|lock| **lock = Arc::clone(&new));
            *self.current.lock() = new;
        }
        Ok(rest)
    }
}
