//! The clock by which the kernel sets the times of files.

use dendro_base::{Clock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The clock by which the kernel sets times where it collects what is written (`order=close`): it
/// advances with each tick, by some milliseconds. Of two times of a file, the kernel sets one and
/// the file system the other. With two clocks, what is written after a file was made would seem
/// older than that file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp(now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::SystemClock;

    #[test]
    fn it_is_the_time_of_the_system_and_some_milliseconds_behind() {
        let (before, kernel, after) = (SystemClock.now(), KernelClock.now(), SystemClock.now());
        assert!(
            kernel <= after && before.since(kernel).as_secs() == 0,
            "{before} {kernel} {after}"
        );
    }
}
