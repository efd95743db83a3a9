//! Files with a page here and there on a full volume, and beside a client that commits all the
//! time.

use dendro_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dendro_base::sync::{Arc, Mutex, Weak};
use dendro_device::{Device, MemoryDevice, Result};
use dendro_disk::{Aru, GROUP_PAGES, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_fs::{Caller, FileSystem, Ino, SetAttr};
use dendro_logdisk::{CleanSettings, FormatOptions, LogDisk};

use crate::common::files_on;

const ENOSPC: i32 = 28;
/// From one page of a file to the next.
const STRIDE: u64 = GROUP_PAGES * PAGE_SIZE as u64;
/// Far less than the map of [`PAGE_COUNT`] pages.
const CACHE_BYTES: u64 = 256 << 10;
const PAGE_COUNT: u64 = 30_000;
const OPTIONS: fn() -> FormatOptions =
    || FormatOptions { segment_size_bytes: 256 << 10, ..FormatOptions::default() };

/// A device that counts reads, and on which another client commits during each of them.
struct Busy {
    memory: MemoryDevice,
    read_count: AtomicU64,
    other: Mutex<Option<(Weak<LogDisk>, Lid)>>,
    is_committing: AtomicBool,
}

impl Device for Busy {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        // Work that would never end is ended here, and is then seen to have taken long.
        let is_endless = self.read_count.fetch_add(1, Ordering::Relaxed) > 100_000;
        let other = self.other.lock().clone();
        if let Some((disk, list)) = other
            && !is_endless
            && !self.is_committing.swap(true, Ordering::Relaxed)
        {
            if let Some(disk) = disk.upgrade() {
                let mut aru = Aru::new(View::HEAD);
                aru.put_record(list, 0, vec![1; 8]);
                disk.commit(aru).unwrap();
            }
            self.is_committing.store(false, Ordering::Relaxed);
        }
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.memory.discard(offset, len_bytes)
    }
}

fn create(fs: &FileSystem) -> Ino {
    let made = fs.create(&Caller::default(), Ino::ROOT, b"file", 0o644, Default::default());
    let ino = made.unwrap().ino;
    fs.release(ino);
    ino
}

/// Returns the reads that it takes to make a file of [`PAGE_COUNT`] scattered pages `size` bytes
/// long, until nothing is left to be done of it.
fn reads_of_truncating(size: u64, is_busy: bool) -> u64 {
    let device = Arc::new(Busy {
        memory: MemoryDevice::new(256 << 20),
        read_count: AtomicU64::new(0),
        other: Mutex::new(None),
        is_committing: AtomicBool::new(false),
    });
    let (disk, fs) = files_on(&(Arc::clone(&device) as _), &OPTIONS(), CACHE_BYTES);
    disk.set_clean_settings(CleanSettings { is_suspended: true, ..CleanSettings::default() });
    let ino = create(&fs);
    for index in 0..PAGE_COUNT {
        fs.write(ino, index * STRIDE, &[7; 200], false).unwrap();
        while index % 512 == 0 && disk.background_step().unwrap() {}
    }
    let others = disk.allocate_list().unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(others, ListHints::default());
    disk.commit(aru).unwrap();
    disk.checkpoint().unwrap();
    let before = device.read_count.load(Ordering::Relaxed);
    *device.other.lock() = is_busy.then(|| (Arc::downgrade(&disk), others));
    let changes = SetAttr { size_bytes: Some(size), ..SetAttr::default() };
    fs.setattr(&Caller::default(), ino, &changes).unwrap();
    let is_done = (0..20_000).any(|_| !disk.background_step().unwrap());
    *device.other.lock() = None;
    assert!(is_done, "there is always more to do");
    let attr = fs.getattr(ino).unwrap();
    assert_eq!((attr.size_bytes, attr.blocks_512), (size, size.div_ceil(STRIDE) * 8));
    device.read_count.load(Ordering::Relaxed) - before
}

#[test]
fn truncating_takes_no_longer_because_another_client_commits_all_the_time() {
    let len_bytes = (PAGE_COUNT - 1) * STRIDE + 200;
    for size in [len_bytes - 100, len_bytes - STRIDE, len_bytes / 2, 0] {
        let [alone, busy] = [false, true].map(|is_busy| reads_of_truncating(size, is_busy));
        assert!(busy <= 2 * alone + 100, "to {size} bytes: {busy} reads, and {alone} alone");
    }
}

#[test]
fn a_volume_is_full_of_short_scattered_pages_when_statfs_says_that_next_to_nothing_is_free() {
    let len_bytes = 32 << 20;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    let (disk, fs) = files_on(&device, &OPTIONS(), 1 << 20);
    let ino = create(&fs);
    let refused = (0..).find_map(|index: u64| {
        while index.is_multiple_of(512) && disk.background_step().unwrap() {}
        fs.write(ino, index * STRIDE, &[7; 64], false).err()
    });
    assert!(refused.as_ref().is_some_and(|error| error.errno() == ENOSPC), "{refused:?}");
    let statfs = fs.statfs();
    let most = len_bytes / PAGE_SIZE as u64 * 3 / 100;
    assert!(statfs.blocks_available < most, "{statfs:?}");
}
