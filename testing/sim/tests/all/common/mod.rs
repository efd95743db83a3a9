//! A file system on a log-structured disk, for tests of both together.

use dendro_base::sync::Arc;
use dendro_base::{Clock, ManualClock};
use dendro_device::Device;
use dendro_disk::LogicalDisk;
use dendro_fs::FileSystem;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

/// An empty file system on `device`, and the disk that it lies on.
pub(crate) fn files_on(
    device: &Arc<dyn Device>,
    options: &FormatOptions,
    cache_size_bytes: u64,
) -> (Arc<LogDisk>, FileSystem) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(device, options, &clock).unwrap();
    let options = OpenOptions { cache_size_bytes, ..OpenOptions::default() };
    let disk = Arc::new(LogDisk::open(Arc::clone(device), options, Arc::clone(&clock)).unwrap());
    let files = dendro_fs::FormatOptions {
        uid: 0,
        gid: 0,
        mode: 0o755,
        label: String::new(),
        hash_key: [7; 16],
    };
    FileSystem::create_on(&*disk, &files, &*clock).unwrap();
    let shared = Arc::clone(&disk) as Arc<dyn LogicalDisk>;
    let fs = FileSystem::mount(shared, dendro_fs::Options::default(), clock).unwrap();
    (disk, fs)
}
