//! What the log-structured disk frees when versions go.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::conformance::snapshots;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

fn empty_disk(len_bytes: u64, segment_size_bytes: u64) -> LogDisk {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
    format(&device, &options, &clock).unwrap();
    LogDisk::open(device, OpenOptions::default(), clock).unwrap()
}

#[test]
fn space_comes_back_when_versions_go() {
    let disk = empty_disk(256 << 20, 1 << 20);
    snapshots::space_comes_back_when_versions_go(&disk, &mut || {
        while disk.background_step().unwrap() {}
    });
}

#[test]
fn a_full_disk_lets_versions_go() {
    let disk = empty_disk(48 << 20, 256 << 10);
    snapshots::a_full_disk_lets_versions_go(&disk, &mut || {
        while disk.background_step().unwrap() {}
    });
}
