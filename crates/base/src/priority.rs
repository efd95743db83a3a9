//! The CPU priority of threads that clients do not wait for, while they hold what clients wait for.
//!
//! A thread of low priority that is preempted while it holds a lock stops everybody who needs the
//! lock, for as long as other programs keep the CPUs busy. So such a thread raises its priority
//! before it takes the lock, and lowers it after it has released it (a priority ceiling: Sha,
//! Rajkumar, Lehoczky 1990). Both are system calls, so that this is for work of a millisecond, and
//! not for each short hold.

use std::cell::Cell;

use rustix::process::setpriority_process;

/// The nice value of threads that clients wait for: nine times the weight of others.
pub const SERVING_NICENESS: i32 = -10;

thread_local! {
    /// How often this thread has raised its priority; none if it was never lowered.
    static RAISED: Cell<Option<u32>> = const { Cell::new(None) };
    static LOWERED: Cell<i32> = const { Cell::new(0) };
}

/// Gives this thread the priority of those that clients wait for. Returns false if it may not have
/// it (RLIMIT_NICE).
pub fn raise_thread() -> bool {
    set(SERVING_NICENESS)
}

/// Gives this thread a low priority, except while it holds a [`Raised`]. A thread that may not
/// raise it again keeps the priority that it has.
pub fn lower_thread(niceness: i32) {
    if raise_thread() && set(niceness) {
        LOWERED.set(niceness);
        RAISED.set(Some(0));
    }
}

/// While it exists, the thread that made it has the priority of those that clients wait for.
#[derive(Debug)]
#[must_use]
pub struct Raised {
    is_counted: bool,
    /// It counts for one thread.
    _thread: std::marker::PhantomData<*const ()>,
}

/// Raises the priority of this thread, if it was lowered, until what this returns is dropped.
#[inline]
pub fn raise() -> Raised {
    let times = RAISED.get();
    if let Some(times) = times {
        count(times);
    }
    Raised { is_counted: times.is_some(), _thread: std::marker::PhantomData }
}

#[cold]
fn count(times: u32) {
    if times == 0 {
        raise_thread();
    }
    RAISED.set(Some(times + 1));
}

impl Drop for Raised {
    #[inline]
    fn drop(&mut self) {
        if self.is_counted {
            uncount();
        }
    }
}

#[cold]
fn uncount() {
    let times = RAISED.get().map_or(0, |times| times.saturating_sub(1));
    RAISED.set(Some(times));
    if times == 0 {
        set(LOWERED.get());
    }
}

fn set(niceness: i32) -> bool {
    setpriority_process(None, niceness).is_ok()
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    fn niceness() -> i32 {
        getpriority_process(None).expect("a thread has a priority")
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn a_lowered_thread_has_the_priority_of_those_that_serve_while_it_needs_it() {
        let thread = || {
            let before = niceness();
            drop(raise());
            assert_eq!(niceness(), before, "a thread that was not lowered stays as it is");
            lower_thread(5);
            // Without the privilege nothing changes, so that nothing is lowered for good.
            let (low, high) = match niceness() {
                5 => (5, SERVING_NICENESS),
                same => (same, same),
            };
            assert!(low == 5 || low == before);
            let outer = raise();
            let inner = raise();
            assert_eq!(niceness(), high);
            drop(outer);
            assert_eq!(niceness(), high, "somebody still needs it");
            drop(inner);
            assert_eq!(niceness(), low);
        };
        std::thread::scope(|scope| drop(scope.spawn(thread)));
    }
}
