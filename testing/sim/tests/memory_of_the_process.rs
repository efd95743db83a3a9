//! What the whole process has in memory while a file system has much more to keep in mind. It
//! stands alone: other tests in the process would count too.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::time::Duration;

use dendro_base::sync::Arc;
use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, OpenOptions as DeviceOptions};
use dendro_disk::LogicalDisk;
use dendro_fs::{Caller, FileSystem, FormatOptions as FsFormatOptions, Ino, Options};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const CACHE_BYTES: u64 = 16 << 20;
/// Beside the cache: log buffers, i-nodes, the program itself. It was 23 MiB more, when nodes were
/// weighed by guess and each i-node that was looked up took 41 bytes.
const BESIDE_BYTES: u64 = 14 << 20;
const FILE_COUNT: u32 = 150_000;

/// What memory of the process is resident and no file's.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn open(device: &Arc<dyn Device>, clock: &Arc<dyn Clock>) -> Arc<LogDisk> {
    let options = OpenOptions { cache_size_bytes: CACHE_BYTES, ..OpenOptions::default() };
    Arc::new(LogDisk::open(Arc::clone(device), options, Arc::clone(clock)).unwrap())
}

#[test]
fn files_that_nobody_forgets_take_no_more_than_the_cache_and_a_bit() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(2 << 30).unwrap();
    let device = DeviceOptions::new().open(image.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, &FormatOptions::default(), &clock).unwrap();
    let disk = open(&device, &clock);
    let options =
        FsFormatOptions { uid: 0, gid: 0, mode: 0o755, label: String::new(), hash_key: [3; 16] };
    FileSystem::create_on(&*disk, &options, &*clock).unwrap();
    let options = Options { inode_cache_len: 4096, lookups_keep_files: true, ..Options::default() };
    let fs = FileSystem::mount(Arc::clone(&disk) as _, options, Arc::clone(&clock)).unwrap();
    let caller = Caller { uid: 0, gid: 0, ..Caller::default() };
    let mut most_bytes = 0;
    for number in 0..FILE_COUNT {
        let name = format!("file-{number:08}");
        fs.mknod(&caller, Ino::ROOT, name.as_bytes(), 0o100_644, 0).unwrap();
        // As the daemon's threads do.
        while disk.write_step(Duration::ZERO).unwrap() || disk.background_step().unwrap() {}
        if number % 1000 == 0 {
            most_bytes = most_bytes.max(resident_bytes());
            let stats = disk.stats();
            let nodes_bytes =
                stats.cached_node_bytes + stats.dirty_node_bytes + stats.superseded_node_bytes;
            assert!(nodes_bytes <= CACHE_BYTES, "{nodes_bytes} bytes of nodes");
        }
    }
    for number in (0..FILE_COUNT).step_by(7) {
        let name = format!("file-{number:08}");
        fs.lookup(Ino::ROOT, name.as_bytes()).unwrap();
    }
    most_bytes = most_bytes.max(resident_bytes());
    assert!(
        most_bytes <= CACHE_BYTES + BESIDE_BYTES,
        "{} MiB with a cache of {} MiB: {:?}, {:?}",
        most_bytes >> 20,
        CACHE_BYTES >> 20,
        disk.stats(),
        fs.memory_use()
    );
    disk.shut_down().unwrap();
}
