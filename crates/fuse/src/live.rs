//! The file system that a mount shows, which can be exchanged while it is mounted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dendro_base::sync::{Mutex, RwLock, RwLockReadGuard};
use dendro_fs::FileSystem;

/// How many locks there are, so that threads which serve requests do not meet at one.
const GATES: usize = 16;

/// One of the locks, on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Gate(RwLock<Arc<FileSystem>>);

/// What requests are served from. A request holds one gate, so that it sees one file system from
/// beginning to end; an exchange holds them all.
#[derive(Debug)]
pub(crate) struct Live {
    gates: Vec<Gate>,
    /// The same, for those who only ask which it is, and do not wait for an exchange.
    current: Mutex<Arc<FileSystem>>,
}

/// The gate of this thread.
fn own_gate() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % GATES;
    }
    OWN.with(|own| *own)
}

impl Live {
    pub(crate) fn new(fs: Arc<FileSystem>) -> Self {
        let gates = (0..GATES).map(|_| Gate(RwLock::new(Arc::clone(&fs)))).collect();
        Self { gates, current: Mutex::new(fs) }
    }

    /// The file system, which stays the one for as long as the guard is held. A thread must not hold
    /// two guards: an exchange that waits comes between them.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, Arc<FileSystem>> {
        self.gates[own_gate()].0.read()
    }

    /// The file system, at once: while it is being exchanged, the one before.
    pub(crate) fn get(&self) -> Arc<FileSystem> {
        Arc::clone(&self.current.lock())
    }

    /// Calls `change` while no request is served, and serves the file system that it answers from
    /// then on.
    pub(crate) fn exchange<T, E>(
        &self,
        change: impl FnOnce(&Arc<FileSystem>) -> Result<(Option<Arc<FileSystem>>, T), E>,
    ) -> Result<T, E> {
        let mut gates: Vec<_> = self.gates.iter().map(|gate| gate.0.write()).collect();
        let (new, rest) = change(&gates[0])?;
        if let Some(new) = new {
            gates.iter_mut().for_each(|gate| **gate = Arc::clone(&new));
            *self.current.lock() = new;
        }
        Ok(rest)
    }
}
