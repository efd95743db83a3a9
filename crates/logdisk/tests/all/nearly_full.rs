//! Many threads on a nearly full volume: everything that fits is accepted, whichever thread cleans.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, Error as Fault, MemoryDevice, Result};
use dendro_disk::model::ModelState;
use dendro_disk::{Aru, Error, Lid, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{CleanSettings, FormatOptions, LogDisk, OpenOptions, format};
use dendro_policy::{Classes, Scatter};

use crate::common::new_list;

const SEGMENT_BYTES: u64 = 256 << 10;
const SEGMENT_COUNT: u64 = 128;
const WRITERS: u64 = 4;

/// A device whose reads of whole segments, as only a cleaner issues them, are slow or fail.
struct HardToClean {
    memory: MemoryDevice,
    fails: AtomicBool,
}

impl HardToClean {
    fn new(segment_count: u64) -> Arc<Self> {
        let memory = MemoryDevice::new(segment_count * SEGMENT_BYTES);
        Arc::new(Self { memory, fails: AtomicBool::new(false) })
    }
}

impl Device for HardToClean {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.len() as u64 >= SEGMENT_BYTES / 2 {
            if self.fails.load(Ordering::Acquire) {
                let source = std::io::Error::other("the device is too hot");
                let len_bytes = buf.len() as u64;
                return Err(Fault::Io { operation: "read", offset, len_bytes, source });
            }
            std::thread::sleep(Duration::from_millis(3));
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

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let options = OpenOptions { stream_bytes: 0, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device), options, Arc::new(ManualClock::default()))
        .expect("it was formatted")
}

fn formatted(device: &Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(device, &options, &clock).expect("the device is large enough");
    open(device)
}

/// Calls `step` repeatedly until `is_done`.
fn work(is_done: &AtomicBool, step: impl Fn() -> dendro_disk::Result<bool>) {
    while !is_done.load(Ordering::Acquire) {
        if !step().expect("the device works") {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn a_unit_that_fits_is_never_refused_while_other_threads_do_all_the_cleaning() {
    let device: Arc<dyn Device> = HardToClean::new(SEGMENT_COUNT);
    let disk = formatted(&device);
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

#[test]
fn temporarily_unreadable_segments_are_cleaned_before_a_unit_is_refused() {
    let device = HardToClean::new(48);
    let disk = formatted(&(Arc::clone(&device) as _));
    let list = new_list(&disk);
    let pages = disk.space().capacity_bytes / 2 / PAGE_SIZE as u64;
    overwrite(&disk, list, pages, 1);
    device.fails.store(true, Ordering::Release);
    let more = disk.clean_settings();
    disk.set_clean_settings(CleanSettings { min_clean_segments: Some(u32::MAX / 2), ..more });
    for _ in 0..100 {
        disk.clean_step().expect("a segment that cannot be read is passed over");
    }
    device.fails.store(false, Ordering::Release);
    disk.set_clean_settings(more);
    overwrite(&disk, new_list(&disk), pages * 8 / 10, 2);
}

#[test]
fn a_small_disk_accepts_writes_up_to_its_stated_capacity_with_any_number_of_streams() {
    for seed in 0..2 {
        let mut rng = Rng::new(seed);
        let segment_count = 26 + rng.below(20);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(segment_count * SEGMENT_BYTES));
        let disk = formatted(&device);
        let classes = Classes { users: 6, survivors: rng.below(4) as u8 };
        disk.set_policy(Arc::new(Scatter::new(classes, seed)));
        let list = new_list(&disk);
        let data = vec![7; 16 * PAGE_SIZE];
        let (mut end, mut refused) = (1, 0);
        while refused < 3 {
            let first = rng.below(end);
            let count = 1 + rng.below(16);
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, first, &data[..count as usize * PAGE_SIZE]);
            match disk.commit(aru) {
                Ok(_) => end = end.max(first + count),
                Err(Error::NoSpace { needed_bytes, .. }) => {
                    let space = disk.space();
                    assert!(needed_bytes > space.available_bytes, "seed {seed}: {space:?}");
                    refused += 1;
                    let mut aru = Aru::new(View::HEAD);
                    aru.punch_pages(list, rng.below(end), 1 + rng.below(end / 8)).set_reclaims();
                    disk.commit(aru).expect("what gives space back is never refused");
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if rng.chance(30) {
                disk.background_step().expect("the device works");
            }
        }
    }
}

#[test]
fn a_disk_of_few_large_segments_can_be_filled() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 16 << 20, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let disk = open(&device);
    let list = new_list(&disk);
    let data = vec![7; 64 * PAGE_SIZE];
    let refused = (0..).step_by(64).find_map(|first| {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, first, &data[..]);
        let result = disk.commit(aru);
        disk.background_step().expect("the device works");
        result.err()
    });
    let Some(Error::NoSpace { needed_bytes, .. }) = refused else { panic!("{refused:?}") };
    let space = disk.space();
    assert!(needed_bytes > space.available_bytes, "{space:?}");
}

#[test]
fn a_volume_is_full_of_short_pages_that_lie_apart_when_next_to_nothing_is_said_to_be_free() {
    const PAGES_APART: u64 = 32;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
    let disk = formatted(&device);
    let list = new_list(&disk);
    let refused = (0..).step_by(16).find_map(|first: u64| {
        let mut aru = Aru::new(View::HEAD);
        for number in first..first + 16 {
            aru.write_pages(list, number * PAGES_APART, vec![7; 64]);
        }
        disk.commit(aru).err()
    });
    let Some(Error::NoSpace { .. }) = refused else { panic!("{refused:?}") };
    let space = disk.space();
    let all_bytes = SEGMENT_COUNT * SEGMENT_BYTES;
    assert!(space.available_bytes < all_bytes * 3 / 100, "{space:?}");
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
fn a_commit_without_room_collects_what_only_deleted_versions_had() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let disk = open(&device);
    let lists: Vec<Lid> = (0..1200).map(|_| new_list(&disk)).collect();
    let mut rng = Rng::new(1);
    let mut page = vec![0; PAGE_SIZE];
    for round in 0..40 {
        // Only the snapshot still has the former content of these lists, and no collection frees
        // it.
        let snapshot = disk.snapshot(0, None).expect("there is room").view();
        for at in 0..if round == 0 { lists.len() as u64 } else { 300 } {
            let list = lists[if round == 0 { at } else { rng.below(1200) } as usize];
            rng.fill(&mut page);
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, at % 2, &page[..]);
            for index in 0..if round == 0 { 4 } else { 0 } {
                aru.put_record(list, index, vec![1; 200]);
            }
            disk.commit(aru).expect("there is room once the snapshots are collected");
        }
        disk.delete(snapshot).expect("it is not held");
    }
}
