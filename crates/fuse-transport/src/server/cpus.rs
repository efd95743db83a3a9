//! Which CPUs there are, and how threads that serve rings use theirs.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// No kernel has more CPUs than this.
const MAX_CPUS: usize = 1 << 16;

/// The number of CPUs that the kernel can have, present or not. It has as many queues.
pub(super) fn possible() -> Option<usize> {
    numbers(&fs::read_to_string(POSSIBLE).ok()?)?.last()?.checked_add(1)
}

/// The numbers of the CPUs that are online.
pub(super) fn online() -> Option<BTreeSet<usize>> {
    numbers(&fs::read_to_string(ONLINE).ok()?)
}

/// The numbers in a list like `0-3,8`.
fn numbers(list: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_CPUS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Pins this thread to `cpu`. Returns false if that is offline or not allowed.
pub(super) fn pin_to(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// The nice value of threads that serve rings. It gives them nine times the weight of others.
const NICENESS: i32 = -10;

/// Gives this thread more weight than the clients that wait for its replies. That keeps the clients
/// on this CPU.
///
/// When a thread goes to sleep after it has used more than its share of the CPU, the scheduler
/// (EEVDF, since Linux 6.12) leaves it in the CPU's queue, and it wakes up there. A thread that has
/// used less is removed from the queue. When it wakes up, the scheduler may place it on an idle
/// CPU, and to wake up that CPU takes three times as long as the reply. A client that does less
/// work than the thread that serves it would move with every request. With the higher weight of
/// this thread, the client has used more than its own share.
pub(super) fn raise_priority() -> bool {
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
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn this_machine_has_the_cpus_that_it_runs() {
        let (Some(possible), Some(online)) = (possible(), online()) else { return };
        assert!(!online.is_empty() && online.into_iter().all(|cpu| cpu < possible));
    }
}
