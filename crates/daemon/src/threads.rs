//! Threads that end with their scope, and how they are told to stop.

use std::io;
use std::thread::{self, Scope};
use std::time::Duration;

use dendro_base::priority;
use dendro_base::sync::{Condvar, Mutex};

/// Starts a thread that is waited for at the end of `scope`. Clients wait for what it does, unless
/// it lowers its priority.
pub(crate) fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    let work = move || {
        priority::raise_thread();
        work();
    };
    thread::Builder::new().name(name.into()).spawn_scoped(scope, work).map(|_| ())
}

/// Tells threads to stop, and lets them sleep until then.
#[derive(Default)]
pub(crate) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(crate) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Waits for at most `timeout`; returns whether threads are to stop.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set && !timeout.is_zero() {
            // Waking up early does no harm.
            let _ = self.changed.wait_for(&mut is_set, timeout);
        }
        *is_set
    }

    /// Wakes all waiting threads, so that they look again how long they are to wait.
    pub(crate) fn wake(&self) {
        let _is_set = self.is_set.lock();
        self.changed.notify_all();
    }
}
