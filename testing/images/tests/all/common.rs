//! What several of the tests begin with.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

/// A new disk on a device in memory.
pub(crate) fn new_disk(
    len_bytes: u64,
    segment_size_bytes: u64,
    options: OpenOptions,
) -> (LogDisk, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::new(len_bytes));
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let of_new = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
    format(&shared, &of_new, &clock).expect("there is room");
    (LogDisk::open(shared, options, clock).expect("it works"), device)
}
