//! Which CPUs there may be, which there are, staying on one, and its scheduler.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// No kernel has more; a longer list is a mistake.
const MOST: usize = 1 << 16;

/// How many CPUs the kernel counts with, present or not; it has as many queues.
pub(crate) fn possible() -> Option<usize> {
    numbers(&fs::read_to_string(POSSIBLE).ok()?)?.last()?.checked_add(1)
}

/// The numbers of the CPUs that run.
pub(crate) fn online() -> Option<BTreeSet<usize>> {
    numbers(&fs::read_to_string(ONLINE).ok()?)
}

/// The numbers in a list like `0-3,8`.
fn numbers(list: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Keeps this thread on `cpu`, if that is online and allowed.
pub(crate) fn stay_on(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// How nice the threads are that serve rings, if they may: nine times the weight of others.
const NICENESS: i32 = -10;

/// Gives this thread more weight than those who wait for its answers, which keeps *them* on this
/// CPU.
///
/// The scheduler (EEVDF, since Linux 6.12) leaves a thread that goes to sleep in its queue while it
/// has had more than its share, and one that wakes there stays. One that has had less is taken out,
/// and placed anew: on another CPU if that is idle, where it waits for the CPU to wake up, three
/// times as long as for the answer. A client that does less than the thread that serves it would so
/// move with every request; measured by weight it does more.
pub(crate) fn come_first() -> bool {
    setpriority_process(Some(gettid()), NICENESS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        let read = |list| numbers(list).map(|numbers| numbers.into_iter().collect::<Vec<_>>());
        assert_eq!(read("0\n"), Some(vec![0]));
        assert_eq!(read("0-2\n"), Some(vec![0, 1, 2]));
        assert_eq!(read("0-1,8-9,11"), Some(vec![0, 1, 8, 9, 11]));
        assert_eq!(read(""), None);
        assert_eq!(read("0-x"), None);
        assert_eq!(read("0-99999999999"), None);
    }

    #[test]
    fn this_machine_has_the_cpus_that_it_runs() {
        let (Some(possible), Some(online)) = (possible(), online()) else { return };
        assert!(!online.is_empty() && online.into_iter().all(|cpu| cpu < possible));
    }
}
