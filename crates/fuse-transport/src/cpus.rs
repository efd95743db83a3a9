//! Which CPUs there may be, and staying on one.

use std::fs;

use rustix::thread::{CpuSet, sched_setaffinity};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// How many CPUs the kernel counts with, present or not; it has as many queues.
pub(crate) fn possible() -> Option<usize> {
    count(&fs::read_to_string(POSSIBLE).ok()?)
}

/// One more than the highest number in a list like `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted_to_their_highest() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-7\n"), Some(8));
        assert_eq!(count("0-3,8-11"), Some(12));
        assert_eq!(count(""), None);
        assert_eq!(count("0-x"), None);
    }
}
