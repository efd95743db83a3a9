//! When threads rest, what they say of failures, and how they are told to end.

use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};

/// How long something has not changed.
#[derive(Default)]
pub(super) struct Quiet {
    last: u64,
    rested: Duration,
}

impl Quiet {
    /// Notes how it is after a rest of so long, at most.
    pub(super) fn note(&mut self, now: u64, rest: Duration) {
        if std::mem::replace(&mut self.last, now) == now {
            self.rested = self.rested.saturating_add(rest);
        } else {
            self.rested = Duration::ZERO;
        }
    }

    pub(super) const fn lasts_for(&self) -> Duration {
        self.rested
    }
}

/// Says once that something has begun to fail, and once that it goes on again.
pub(super) struct Failing {
    what: &'static str,
    is_failing: bool,
}

impl Failing {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, is_failing: false }
    }

    pub(super) fn note<T>(&mut self, answer: Result<T, dendro_disk::Error>) -> Option<T> {
        let was_failing = std::mem::replace(&mut self.is_failing, answer.is_err());
        match answer {
            Ok(value) => {
                if was_failing {
                    log::info!("{} works again", self.what);
                }
                Some(value)
            }
            Err(error) => {
                if !was_failing {
                    log::error!("{}: {error}", self.what);
                }
                None
            }
        }
    }
}

/// Tells threads to end, and lets them sleep until then.
#[derive(Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Waits for at most `timeout`; whether it is set.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set && !timeout.is_zero() {
            // Waking up early does no harm to any of the threads.
            let _ = self.changed.wait_for(&mut is_set, timeout);
        }
        *is_set
    }

    /// Ends all waiting, so that those who wait look how long they are to.
    pub(super) fn wake(&self) {
        let _is_set = self.is_set.lock();
        self.changed.notify_all();
    }
}
