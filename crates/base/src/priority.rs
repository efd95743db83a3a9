//! The CPU priority of threads that clients do not wait for, while they do what clients wait for.
//!
//! A thread of low priority that is preempted while clients wait for it stops them for as long as
//! other programs keep the CPUs busy. So such a thread raises its priority before work that clients
//! may wait for, and lowers it afterwards (a priority ceiling: Sha, Rajkumar, Lehoczky 1990). Both
//! are system calls, so that this is for work of a millisecond, and not for each short hold of a
//! lock.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

use rustix::process::setpriority_process;
use rustix::time::{ClockId, clock_gettime};

/// The nice value of threads that clients wait for: nine times the weight of others.
pub const SERVING_NICENESS: i32 = -10;

/// How long a thread of low priority computes before it gives way.
const MAX_COMPUTING: Duration = Duration::from_micros(100);

/// What is known of a thread whose priority was lowered.
#[derive(Clone, Copy)]
struct Lowered {
    niceness: i32,
    /// How many [`Raised`] there are.
    raised_count: u32,
    /// The time for which the thread had computed when it gave way last.
    computed: Duration,
}

thread_local! {
    static LOWERED: Cell<Option<Lowered>> = const { Cell::new(None) };
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
        LOWERED.set(Some(Lowered { niceness, raised_count: 0, computed: Duration::ZERO }));
    }
}

/// While it exists, the thread that made it has the priority of those that clients wait for.
#[derive(Debug)]
#[must_use]
pub struct Raised {
    is_counted: bool,
    /// It counts for one thread.
    _thread: PhantomData<*const ()>,
}

/// Raises the priority of this thread, if it was lowered, until what this returns is dropped.
pub fn raise() -> Raised {
    let lowered = LOWERED.get();
    if let Some(lowered) = lowered {
        if lowered.raised_count == 0 {
            raise_thread();
        }
        LOWERED.set(Some(Lowered { raised_count: lowered.raised_count + 1, ..lowered }));
    }
    Raised { is_counted: lowered.is_some(), _thread: PhantomData }
}

/// Whether this thread has a low priority now.
pub fn is_low() -> bool {
    LOWERED.get().is_some_and(|lowered| lowered.raised_count == 0)
}

/// Lets other threads have this thread's CPU, if its priority is low now and it has computed for a
/// tenth of a millisecond. To be called more often than that, without a lock that clients wait for.
///
/// A thread that is woken waits until the one that computes on its CPU has used up its slice, some
/// milliseconds, even if its own priority is higher. So this thread sleeps for the shortest time
/// that there is, about 50 microseconds. (To yield is not enough: that chooses among the threads
/// of one scheduling group, and each session may have a group of its own.)
pub fn give_way() {
    let Some(lowered) = LOWERED.get().filter(|lowered| lowered.raised_count == 0) else { return };
    let computed = computed();
    if computed.saturating_sub(lowered.computed) >= MAX_COMPUTING {
        std::thread::sleep(Duration::from_nanos(1));
        LOWERED.set(Some(Lowered { computed, ..lowered }));
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let Some(lowered) = LOWERED.get().filter(|_| self.is_counted) else { return };
        let raised_count = lowered.raised_count.saturating_sub(1);
        LOWERED.set(Some(Lowered { raised_count, ..lowered }));
        if raised_count == 0 {
            set(lowered.niceness);
        }
    }
}

/// For how long this thread has had a CPU.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
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

    /// How often this thread has given up its CPU.
    fn switches() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("Linux counts them").trim().parse().expect("a number")
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn a_thread_gives_way_while_its_priority_is_low() {
        let given_up = |times: u32| {
            let before = switches();
            let began = computed();
            while computed() - began < MAX_COMPUTING * times {
                give_way();
            }
            switches() - before
        };
        let thread = || {
            assert!(given_up(100) < 50, "a thread that was not lowered goes on");
            lower_thread(5);
            if is_low() {
                assert!((50..=101).contains(&given_up(100)));
            }
            let _raised = raise();
            assert!(given_up(100) < 50, "clients wait for this thread");
        };
        std::thread::scope(|scope| drop(scope.spawn(thread)));
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
            assert_eq!(is_low(), low == 5);
            let outer = raise();
            assert!(!is_low());
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
