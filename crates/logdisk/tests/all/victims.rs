//! How much is read of the segments that are cleaned.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{CleanSettings, FormatOptions, LogDisk, OpenOptions, format};

const SEGMENT_BYTES: u64 = 1 << 20;
const SEGMENT_COUNT: u64 = 64;
const PAGES_PER_SEGMENT: u64 = SEGMENT_BYTES / PAGE_SIZE as u64;
/// A third of the volume.
const PAGES: u64 = 20 * PAGES_PER_SEGMENT;

/// A device that counts what is read.
struct Counting {
    device: MemoryDevice,
    read_bytes: AtomicU64,
    /// The longest read.
    longest_read_bytes: AtomicU64,
}

impl Device for Counting {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.read_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.longest_read_bytes.fetch_max(buf.len() as u64, Ordering::Relaxed);
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.device.write_at(offset, bytes)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

fn page_of(at: u64, round: u8) -> Vec<u8> {
    [&at.to_le_bytes()[..], &[round; 8]].concat().repeat(PAGE_SIZE / 16)
}

/// What cleaning read.
struct Read {
    /// The average share of a segment that was read.
    share: f64,
    longest_bytes: u64,
}

/// Writes all pages, writes those again for which `lives` returns false, and cleans everything that
/// can be cleaned. If `clients_read`, a client reads a page before each step.
fn read_by_cleaning(lives: impl Fn(u64) -> bool, clients_read: bool) -> Read {
    let memory = MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES);
    let counting = Arc::new(Counting {
        device: memory,
        read_bytes: AtomicU64::new(0),
        longest_read_bytes: AtomicU64::new(0),
    });
    let device: Arc<dyn Device> = Arc::clone(&counting) as _;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let options = OpenOptions { stream_bytes: 0, ..OpenOptions::default() };
    let disk = LogDisk::open(device, options, clock).expect("it was formatted");
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    for at in 0..PAGES {
        write(&disk, list, at, 0);
    }
    for at in (0..PAGES).filter(|&at| !lives(at)) {
        write(&disk, list, at, 1);
    }
    disk.checkpoint().expect("the device works");
    // The first checkpoint freed what was dead; from now on cleaning has to move live blocks.
    let settings = CleanSettings { min_clean_segments: Some(60), ..CleanSettings::default() };
    disk.set_clean_settings(settings);
    let before = disk.stats().cleaned_segments;
    counting.read_bytes.store(0, Ordering::Relaxed);
    counting.longest_read_bytes.store(0, Ordering::Relaxed);
    let mut page = vec![0; PAGE_SIZE];
    for _ in 0..1000 {
        if clients_read {
            // This page was written a second time and lies in a segment that is nearly all live, so
            // it is not moved.
            let at = PAGES_PER_SEGMENT - 1;
            disk.read_pages(View::HEAD, list, at, &mut page).expect("it can be read");
        }
        if !disk.clean_step().expect("the device works") {
            break;
        }
    }
    let cleaned = disk.stats().cleaned_segments - before;
    let read_bytes = counting.read_bytes.load(Ordering::Relaxed);
    let longest_bytes = counting.longest_read_bytes.load(Ordering::Relaxed);
    assert!(cleaned >= 10, "{cleaned}");
    for at in 0..PAGES {
        disk.read_pages(View::HEAD, list, at, &mut page).expect("it can be read");
        assert_eq!(page, page_of(at, u8::from(!lives(at))), "page {at}");
    }
    Read { share: read_bytes as f64 / (cleaned * SEGMENT_BYTES) as f64, longest_bytes }
}

fn write(disk: &LogDisk, list: Lid, at: u64, round: u8) {
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages(list, at, page_of(at, round));
    disk.commit(aru).expect("there is room");
}

#[test]
fn little_is_read_of_segments_with_few_live_bytes() {
    // Each segment has one live piece of 96 KiB.
    let share = read_by_cleaning(|at| at % PAGES_PER_SEGMENT < 24, false).share;
    assert!((0.05..0.2).contains(&share), "{share}");
}

#[test]
fn gaps_between_scattered_live_blocks_are_read_with_them() {
    let share = read_by_cleaning(|at| at % 8 == 0, false).share;
    assert!((0.9..1.1).contains(&share), "{share}");
}

#[test]
fn segments_with_many_live_bytes_are_read_whole() {
    let share = read_by_cleaning(|at| at % PAGES_PER_SEGMENT < 100, false).share;
    assert!((0.95..1.1).contains(&share), "{share}");
}

#[test]
fn segments_are_read_in_pieces_while_clients_read_and_whole_otherwise() {
    let much_lives = |at| at % PAGES_PER_SEGMENT < 100;
    let alone = read_by_cleaning(much_lives, false);
    assert!(alone.longest_bytes >= SEGMENT_BYTES * 9 / 10, "{}", alone.longest_bytes);
    let beside_clients = read_by_cleaning(much_lives, true);
    assert!(beside_clients.longest_bytes <= 128 << 10, "{}", beside_clients.longest_bytes);
}
