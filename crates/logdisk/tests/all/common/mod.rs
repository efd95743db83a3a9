//! Volumes and lists for the tests, and lists that are deleted.

pub(crate) mod busy;
pub(crate) mod numbered;

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

/// A clock that stands still.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

/// Creates a list in the main branch.
pub(crate) fn new_list(disk: &LogDisk) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    list
}

/// Opens the volume on `device`, with a small cache.
pub(crate) fn open(device: &Arc<dyn Device>) -> LogDisk {
    let options = OpenOptions { cache_size_bytes: 1 << 20, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device), options, clock()).expect("it was formatted")
}

/// A new volume, and the device that it lies on.
pub(crate) fn formatted(len_bytes: u64) -> (Arc<dyn Device>, LogDisk) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    let options = FormatOptions { segment_size_bytes: 256 << 10, ..FormatOptions::default() };
    format(&device, &options, &clock()).expect("the device is large enough");
    let disk = open(&device);
    (device, disk)
}

/// Creates a list of `count` records, and a page at each 32nd of their indexes.
pub(crate) fn list_of(disk: &LogDisk, view: View, count: u64) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(view);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    for from in (0..count).step_by(512) {
        let mut aru = Aru::new(view);
        for index in from..count.min(from + 512) {
            aru.put_record(list, index, vec![7; 40]);
            if index % 32 == 0 {
                aru.write_pages(list, index, vec![9; 64]);
            }
        }
        disk.commit(aru).expect("there is room");
    }
    list
}

/// Deletes a list.
pub(crate) fn delete(disk: &LogDisk, view: View, list: Lid) {
    let mut aru = Aru::new(view);
    aru.delete_list(list).set_reclaims();
    disk.commit(aru).expect("a list can be deleted");
}

/// Does all background work that is due.
pub(crate) fn drain(disk: &LogDisk) {
    while disk.background_step().expect("the device works") {}
    disk.checkpoint().expect("the device works");
}
