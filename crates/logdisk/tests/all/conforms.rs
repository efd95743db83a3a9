//! The log-structured disk passes the suite that every logical disk must pass.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

fn empty_disk() -> Box<LogDisk> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(512 << 20));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, &FormatOptions::default(), &clock).expect("the device is large enough");
    Box::new(LogDisk::open(device, OpenOptions::default(), clock).expect("it was just made"))
}

dendro_disk::conformance_tests!(empty_disk);
dendro_disk::versions_conformance_tests!(empty_disk);
