//! Block devices over the engine and over the model, with and without a client of NBD.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod changes;
mod contents;
mod crashes;
mod doc_tables;
mod full;
mod served;
mod sizes;

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_block::{BlockDevice, CONTENT, create};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{ListCompression, LogicalDisk, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

fn open(device: &Arc<dyn Device>) -> Arc<LogDisk> {
    let options = OpenOptions { cache_size_bytes: 1 << 20, ..OpenOptions::default() };
    Arc::new(LogDisk::open(Arc::clone(device), options, clock()).unwrap())
}

fn formatted(device: &Arc<dyn Device>) -> Arc<LogDisk> {
    let options = FormatOptions { segment_size_bytes: 256 << 10, ..FormatOptions::default() };
    format(device, &options, &clock()).unwrap();
    open(device)
}

/// A volume in memory.
fn volume(len_bytes: u64) -> Arc<LogDisk> {
    formatted(&(Arc::new(MemoryDevice::new(len_bytes)) as Arc<dyn Device>))
}

/// Makes the main branch a block device.
fn make_device(disk: &dyn LogicalDisk, size_bytes: u64) {
    assert_eq!(disk.allocate_list().unwrap(), CONTENT);
    create(disk, View::HEAD, size_bytes, ListCompression::AsOthers).unwrap();
}

fn open_device(disk: Arc<dyn LogicalDisk>, view: View) -> BlockDevice {
    BlockDevice::open(disk, view, false, String::new()).unwrap()
}
