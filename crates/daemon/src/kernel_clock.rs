//! The clock by which the kernel sets the times of files.

use dendro_base::{Clock, SystemClock, Timestamp};

/// The clock by which the kernel sets times where it collects what is written (`order=close`): it
/// advances with each tick, by some milliseconds. Of two times of a file, the kernel sets one and
/// the file system the other. With two clocks, what is written after a file was made would seem
/// older than that file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Timestamp {
        SystemClock.last_tick()
    }
}
