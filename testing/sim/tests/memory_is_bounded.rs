//! A map many times larger than the memory it may take.

#![allow(clippy::unwrap_used, reason = "a test")]

use dendro_base::sync::Arc;
use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, FileDevice, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

/// Records in a unit.
const BATCH_LEN: u64 = 500;
/// What the dirty nodes take at least before they are written.
const LEAST_DIRTY_BYTES: u64 = 256 << 10;

/// What clean nodes and the table may take however small the cache is: here the table is as large.
const LEAST_CLEAN_BYTES: u64 = 256 << 10;

struct Volume {
    device: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
    options: OpenOptions,
    /// Where the device lies, if it is a file.
    _directory: Option<tempfile::TempDir>,
}

impl Volume {
    fn new(len_bytes: u64, cache_size_bytes: u64) -> Self {
        Self::on(Arc::new(MemoryDevice::new(len_bytes)), cache_size_bytes, None)
    }

    /// On a file that has few blocks, so that the device can be larger than memory.
    fn on_sparse_file(len_bytes: u64, cache_size_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let device = FileDevice::create(directory.path().join("image"), len_bytes).unwrap();
        Self::on(Arc::new(device), cache_size_bytes, Some(directory))
    }

    fn on(
        device: Arc<dyn Device>,
        cache_size_bytes: u64,
        directory: Option<tempfile::TempDir>,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        format(&device, &FormatOptions::default(), &clock).unwrap();
        let options = OpenOptions { cache_size_bytes, ..OpenOptions::default() };
        Self { device, clock, options, _directory: directory }
    }

    fn open(&self) -> LogDisk {
        let (device, clock) = (Arc::clone(&self.device), Arc::clone(&self.clock));
        LogDisk::open(device, self.options.clone(), clock).unwrap()
    }

    /// Sees that the map takes no more memory than was said, for nodes of all kinds together and
    /// for the table of segments, and what one unit can make dirty.
    fn check_memory(&self, disk: &LogDisk) {
        let stats = disk.stats();
        let cache = self.options.cache_size_bytes;
        let clean_bytes = stats.cached_node_bytes + stats.segment_table_bytes;
        let other_bytes = stats.dirty_node_bytes + stats.superseded_node_bytes;
        let other_limit = (cache / 8 * 6).max(2 * LEAST_DIRTY_BYTES) + unit_bytes();
        // The cache follows the table in steps.
        let clean_limit = (cache / 8 * 5 + cache / 64).max(LEAST_CLEAN_BYTES);
        assert!(clean_bytes <= clean_limit, "{stats:?}");
        assert!(other_bytes <= other_limit, "{stats:?}");
        // One grows while the other shrinks.
        let limit = cache + cache / 64 + LEAST_CLEAN_BYTES + 2 * LEAST_DIRTY_BYTES + unit_bytes();
        assert!(clean_bytes + other_bytes <= limit, "{stats:?}");
    }
}

/// What a unit can make dirty when each of its records lies in a leaf of its own.
const fn unit_bytes() -> u64 {
    BATCH_LEN * (24 << 10)
}

fn value(index: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    Rng::new(index).fill(&mut bytes);
    bytes
}

/// Puts `count` records in order or everywhere, then reads some of them, before and after the disk
/// is opened anew.
fn fill_with_records(volume: &Volume, count: u64, scattered: bool) {
    // An odd factor makes each index once, in no order.
    let index_of = |number: u64| {
        if scattered { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { number }
    };
    let list = Lid::FIRST;
    let check = |disk: &LogDisk, rng: &mut Rng| {
        for _ in 0..2000 {
            let number = rng.below(count);
            let record = disk.record(View::HEAD, list, index_of(number)).unwrap();
            assert_eq!(record.as_deref(), Some(&value(number)[..]), "record {number}");
        }
        volume.check_memory(disk);
    };
    let disk = volume.open();
    assert_eq!(disk.allocate_list(), Ok(list));
    for first in (0..count).step_by(BATCH_LEN as usize) {
        let mut aru = Aru::new(View::HEAD);
        if first == 0 {
            aru.create_list(list, ListHints::default());
        }
        for number in first..count.min(first + BATCH_LEN) {
            aru.put_record(list, index_of(number), value(number).to_vec());
        }
        disk.commit(aru).unwrap();
        volume.check_memory(&disk);
    }
    let mut rng = Rng::new(count);
    check(&disk, &mut rng);
    disk.shut_down().unwrap();
    let live_bytes = disk.stats().live_bytes;
    let cache = volume.options.cache_size_bytes;
    assert!(live_bytes > 3 * cache, "a map of {live_bytes} bytes is no trial for {cache}");
    drop(disk);
    check(&volume.open(), &mut rng);
}

#[test]
fn millions_of_records_work_in_16_mib() {
    fill_with_records(&Volume::new(2 << 30, 16 << 20), 3_000_000, false);
}

#[test]
fn records_everywhere_work_in_a_tiny_cache() {
    fill_with_records(&Volume::new(1 << 30, 256 << 10), 60_000, true);
}

#[test]
fn records_in_order_work_in_a_tiny_cache() {
    fill_with_records(&Volume::new(1 << 30, 256 << 10), 1_000_000, false);
}

#[test]
fn a_hundred_gibibytes_of_mapped_pages_work_in_2_mib() {
    fill_with_pages(&Volume::on_sparse_file(120 << 30, 2 << 20), 25 << 20);
}

/// Takes a minute: `cargo test -p dendro-sim --release -- --ignored tebibyte`.
#[test]
#[ignore = "takes a minute"]
fn a_tebibyte_of_mapped_pages_works_in_16_mib() {
    fill_with_pages(&Volume::on_sparse_file(1200 << 30, 16 << 20), 1 << 28);
}

/// Maps `page_count` pages. They are zeros, which take no blocks, but are counted.
fn fill_with_pages(volume: &Volume, page_count: u64) {
    let disk = volume.open();
    let list = disk.allocate_list().unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).unwrap();
    let step = 1 << 14;
    for first in (0..page_count).step_by(step) {
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::ZeroPages { list, first_page: first, count: step as u64 });
        disk.commit(aru).unwrap();
        volume.check_memory(&disk);
    }
    let page = vec![7; PAGE_SIZE];
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages(list, page_count / 3, page.clone());
    disk.commit(aru).unwrap();
    let check = |disk: &LogDisk| {
        let mut buf = vec![1; 2 * PAGE_SIZE];
        disk.read_pages(View::HEAD, list, page_count / 3, &mut buf).unwrap();
        assert_eq!(buf[..PAGE_SIZE], page);
        assert_eq!(buf[PAGE_SIZE..], [0; PAGE_SIZE]);
        assert_eq!(disk.count_pages(View::HEAD, list, 0..u64::MAX), Ok(page_count));
        assert_eq!(disk.next_hole(View::HEAD, list, 5), Ok(page_count));
        volume.check_memory(disk);
    };
    check(&disk);
    disk.shut_down().unwrap();
    check(&volume.open());
}
