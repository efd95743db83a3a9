//! A limit on how many do the same thing at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The longest that [`Limit::acquire`] waits, and the pause between its attempts.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(1);

/// Gives out so many permits at a time.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// A permit of a [`Limit`]. Dropping it returns it.
#[derive(Debug)]
pub(super) struct Permit(Arc<AtomicUsize>);

impl Limit {
    pub(super) fn new(max: usize) -> Self {
        Self { taken: Arc::default(), max }
    }

    /// Takes a permit, if one is free.
    fn try_acquire(&self) -> Option<Permit> {
        // Counted first, so that dropping it is right in both cases.
        let before = self.taken.fetch_add(1, Ordering::AcqRel);
        let permit = Permit(Arc::clone(&self.taken));
        (before < self.max).then_some(permit)
    }

    /// Takes a permit, and waits a moment for one: a client may send its next request before the
    /// thread that served the last one has returned its permit.
    pub(super) fn acquire(&self) -> Option<Permit> {
        let mut waited = Duration::ZERO;
        loop {
            match self.try_acquire() {
                None if waited < LONGEST_WAIT => {
                    thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                outcome => return outcome,
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_permits_and_each_is_returned() {
        let limit = Limit::new(2);
        let first = limit.acquire().unwrap();
        let _second = limit.acquire().unwrap();
        assert!(limit.acquire().is_none());
        assert!(limit.try_acquire().is_none(), "what was not acquired is not counted");
        drop(first);
        assert!(limit.acquire().is_some());
    }
}
