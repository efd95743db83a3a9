//! Many threads on a volume that is nearly full: whatever fits is taken, whoever cleans for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice, Result};
use dendro_disk::model::ModelState;
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const SEGMENT_BYTES: u64 = 256 << 10;
const SEGMENT_COUNT: u64 = 128;
const WRITERS: u64 = 4;

/// Takes its time with what only a cleaner reads: whole segments.
struct SlowToClean(MemoryDevice);

impl Device for SlowToClean {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.len() as u64 >= SEGMENT_BYTES / 2 {
            std::thread::sleep(Duration::from_millis(3));
        }
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.0.discard(offset, len_bytes)
    }
}

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let options = OpenOptions { stream_bytes: 0, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device), options, Arc::new(ManualClock::default()))
        .expect("it was formatted")
}

fn new_list(disk: &LogDisk) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    list
}

/// Calls `step` over and over until `is_done`.
fn work(is_done: &AtomicBool, step: impl Fn() -> dendro_disk::Result<bool>) {
    while !is_done.load(Ordering::Acquire) {
        if !step().expect("the device works") {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn what_fits_is_never_refused_while_other_threads_do_all_the_cleaning() {
    let memory = MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES);
    let device: Arc<dyn Device> = Arc::new(SlowToClean(memory));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let disk = open(&device);
    let pages = disk.space().capacity_bytes * 94 / 100 / PAGE_SIZE as u64 / WRITERS;
    let lists: Vec<Lid> = (0..WRITERS).map(|_| new_list(&disk)).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&is_done, || disk.write_step(Duration::from_millis(1))));
        scope.spawn(|| work(&is_done, || disk.background_step()));
        scope.spawn(|| work(&is_done, || disk.clean_step()));
        let writers: Vec<_> = (lists.iter().zip(1..))
            .map(|(&list, seed)| {
                let disk = &disk;
                scope.spawn(move || overwrite(disk, list, pages, seed))
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_done.store(true, Ordering::Release);
        assert!(results.iter().all(std::thread::Result::is_ok));
    });
    let written = ModelState::read_from(&disk).expect("it can be read");
    disk.shut_down().expect("the device works");
    drop(disk);
    let found = ModelState::read_from(&open(&device)).expect("it can be read");
    assert_eq!(found.diff(&written), None);
}

/// Writes all pages of a list, and then as many again at random, in pieces of up to 16.
fn overwrite(disk: &LogDisk, list: Lid, pages: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut data = vec![0; 16 * PAGE_SIZE];
    let (mut filled, mut written) = (0, 0);
    while written < 2 * pages {
        let count = 1 + rng.below(16).min(pages - 1);
        let first = if filled < pages { filled } else { rng.below(pages) };
        let count = count.min(pages - first);
        rng.fill(&mut data);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, first, &data[..count as usize * PAGE_SIZE]);
        disk.commit(aru).expect("all of it fits");
        filled += if filled < pages { count } else { 0 };
        written += count;
    }
}

#[test]
fn a_commit_that_finds_no_room_sweeps_what_only_deleted_versions_had() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let disk = open(&device);
    let lists: Vec<Lid> = (0..1200).map(|_| new_list(&disk)).collect();
    let mut rng = Rng::new(1);
    let mut page = vec![0; PAGE_SIZE];
    for round in 0..40 {
        // What these lists held before is in the snapshot alone, and is swept by nobody.
        let snapshot = disk.snapshot(0, None).expect("there is room").view();
        for at in 0..if round == 0 { lists.len() as u64 } else { 300 } {
            let list = lists[if round == 0 { at } else { rng.below(1200) } as usize];
            rng.fill(&mut page);
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, at % 2, &page[..]);
            for index in 0..if round == 0 { 4 } else { 0 } {
                aru.put_record(list, index, vec![1; 200]);
            }
            disk.commit(aru).expect("there is room once the snapshots are swept out");
        }
        disk.delete(snapshot).expect("it is not held");
    }
}
