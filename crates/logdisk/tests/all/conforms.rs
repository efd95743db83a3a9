//! The log-structured disk passes the suite that every logical disk must pass.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::conformance::space;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

fn empty_disk() -> Box<LogDisk> {
    disk_of(512 << 20, &FormatOptions::default())
}

fn disk_of(len_bytes: u64, options: &FormatOptions) -> Box<LogDisk> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, options, &clock).expect("the device is large enough");
    Box::new(LogDisk::open(device, OpenOptions::default(), clock).expect("it was just made"))
}

dendro_disk::conformance_tests!(empty_disk);
dendro_disk::versions_conformance_tests!(empty_disk);

#[test]
fn what_is_reserved_stays_writable_while_others_fill_the_disk() {
    for round in 0..2 {
        let options = FormatOptions { segment_size_bytes: 512 << 10, ..FormatOptions::default() };
        let disk = disk_of((24 << 20) << round, &options);
        space::what_is_reserved_stays_writable_while_others_fill_the_disk(&*disk);
    }
}

#[test]
fn pages_of_a_snapshot_are_moved_with_what_was_reserved_for_them() {
    let options = FormatOptions { segment_size_bytes: 512 << 10, ..FormatOptions::default() };
    let disk = disk_of(48 << 20, &options);
    space::pages_of_a_snapshot_are_moved_with_what_was_reserved_for_them(&*disk);
}
