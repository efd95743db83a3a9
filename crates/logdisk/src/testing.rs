//! Small disks in memory, for the unit tests.

use dendro_base::sync::Arc;
use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, View};

use crate::disk::LogDisk;
use crate::{FormatOptions, OpenOptions, format};

/// A new disk of so many MiB in segments of so many KiB.
pub(crate) fn disk_in_memory(len_mib: u64, segment_kib: u64, options: OpenOptions) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_mib << 20));
    let segment_size_bytes = segment_kib << 10;
    let format_options = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
    format(&device, &format_options, &clock).unwrap();
    LogDisk::open(device, options, clock).unwrap()
}

/// Makes a list in the head of the main branch.
pub(crate) fn make_list(disk: &LogDisk) -> Lid {
    let list = disk.allocate_list().unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).unwrap();
    list
}
