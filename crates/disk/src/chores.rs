//! Work of clients that the disk does for them in the background.

use std::collections::VecDeque;

use dendro_base::sync::{Mutex, Weak};

/// Work that a client of a disk has left to be done bit by bit.
/// See [`LogicalDisk::do_later`](crate::LogicalDisk::do_later).
pub trait Chore: Send + Sync {
    /// Does a bit of the work, about a millisecond of it, and waits for no lock of the client: who
    /// calls it may be in the middle of a change of the same client.
    fn step(&self) -> ChoreStep;
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoreStep {
    /// Something was done, and there may be more.
    Done,
    /// Nothing can be done now.
    Waits,
    /// Nothing is left. The chore is not called again unless it is handed over again.
    Finished,
}

/// The chores that the clients of one disk have handed over.
#[derive(Default)]
pub struct Chores {
    waiting: Mutex<VecDeque<Weak<dyn Chore>>>,
    /// Held by who does a step.
    working: Mutex<()>,
}

impl std::fmt::Debug for Chores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chores").field("waiting", &self.waiting.lock().len()).finish()
    }
}

impl Chores {
    /// Takes over a chore, until it is finished or dropped.
    pub fn add(&self, chore: Weak<dyn Chore>) {
        self.waiting.lock().push_back(chore);
    }

    /// Does a step of a chore that can do one, unless another thread does, or a step of a chore is
    /// what calls this. Returns whether it did.
    pub fn step(&self) -> bool {
        let Some(_working) = self.working.try_lock() else { return false };
        let count = self.waiting.lock().len();
        (0..count).any(|_| self.step_next())
    }

    /// Does a step of the chore that has waited longest.
    fn step_next(&self) -> bool {
        let Some(next) = self.waiting.lock().pop_front() else { return false };
        // Not while the queue is locked: a step may hand over a chore.
        let stepped = next.upgrade().map_or(ChoreStep::Finished, |chore| chore.step());
        if stepped != ChoreStep::Finished {
            self.waiting.lock().push_back(next);
        }
        stepped == ChoreStep::Done
    }
}

/// A chore that is done by a function, for tests and for clients that keep no state of their own.
impl<F: Fn() -> ChoreStep + Send + Sync> Chore for F {
    fn step(&self) -> ChoreStep {
        self()
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::sync::Arc;
    use dendro_base::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn chores_are_done_in_turns_until_they_are_finished_or_dropped() {
        let chores = Chores::default();
        let left = [AtomicU32::new(3), AtomicU32::new(2)].map(Arc::new);
        let made = left.clone().map(|left| -> Arc<dyn Chore> {
            Arc::new(move || match left.fetch_sub(1, Ordering::Relaxed) {
                0 => unreachable!("it was finished"),
                1 => ChoreStep::Finished,
                _ => ChoreStep::Done,
            })
        });
        let waits: Arc<dyn Chore> = Arc::new(|| ChoreStep::Waits);
        for chore in [&waits, &made[0], &made[1]] {
            chores.add(Arc::downgrade(chore));
        }
        let counts = || [0, 1].map(|number| left[number].load(Ordering::Relaxed));
        assert!(chores.step());
        assert_eq!(counts(), [2, 2]);
        assert!(chores.step());
        assert_eq!(counts(), [2, 1]);
        assert!(chores.step());
        assert!(!chores.step());
        assert_eq!(counts(), [0, 0]);
        drop(waits);
        assert!(!chores.step());
        assert_eq!(chores.waiting.lock().len(), 0);
    }

    #[test]
    fn a_step_that_comes_back_to_the_chores_does_no_other_one() {
        let chores = Arc::new(Chores::default());
        let nested = Arc::clone(&chores);
        let chore: Arc<dyn Chore> = Arc::new(move || {
            assert!(!nested.step());
            ChoreStep::Done
        });
        chores.add(Arc::downgrade(&chore));
        assert!(chores.step());
    }
}
