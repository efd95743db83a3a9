//! What versions cost: those that there are, making them, and deleting them.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, Lid, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_fs::versions::diff;
use dendro_fs::{FileSystem, Ino, Options};
use dendro_logdisk::LogDisk;

use crate::amplification::{CALLER, format_options};
use crate::engine::{disk, new_list};
use crate::measure::{print, print_alone, time};

const MIB: u64 = 1 << 20;
const COUNTS: [u64; 4] = [0, 1, 100, 10_000];
/// Pages of the list that is overwritten at random.
const PAGES: u64 = 16_384;
const OVERWRITES: u64 = 40_000;
const CREATIONS: u64 = 40_000;
const ROUNDS: usize = 5;

/// A disk with so many snapshots, a little changed before each.
struct Old {
    disk: LogDisk,
    list: Lid,
    rng: Rng,
    page: Vec<u8>,
}

impl Old {
    fn new(snapshot_count: u64) -> Self {
        let disk = disk(Arc::new(MemoryDevice::new(4096 * MIB)));
        let list = new_list(&disk);
        let mut page = vec![0; PAGE_SIZE];
        Rng::new(1).fill(&mut page);
        let mut old = Self { disk, list, rng: Rng::new(2), page };
        for page_index in 0..PAGES {
            old.write(page_index);
        }
        for _ in 0..snapshot_count {
            old.create();
            let page_index = old.rng.below(PAGES);
            old.write(page_index);
            old.disk.snapshot(0, None).expect("there is room");
        }
        old
    }

    fn write(&self, page_index: u64) {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(self.list, page_index, &self.page[..]);
        self.disk.commit(aru).expect("there is room");
    }

    fn overwrite(&mut self) {
        let page_index = self.rng.below(PAGES);
        self.write(page_index);
    }

    /// As a file of 1 KiB is made: a list, its i-node, a name in another list, and a page.
    fn create(&mut self) {
        let list = self.disk.allocate_list().expect("the disk is writable");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, dendro_disk::ListHints::default());
        aru.put_record(list, 0, &[1_u8; 160][..]);
        aru.put_record(self.list, self.rng.next_u64() >> 1, &[2_u8; 30][..]);
        aru.write_pages(list, 0, &self.page[..1024]);
        self.disk.commit(aru).expect("there is room");
    }
}

pub(crate) fn run() {
    println!("{:<58} {:>14} {:>14} {:>8}", "", "with them", "without", "ratio");
    let mut disks: Vec<Old> = COUNTS.iter().map(|count| Old::new(*count)).collect();
    rates("create 1 KiB", CREATIONS, &mut disks, Old::create);
    rates("overwrite 4 KiB at random", OVERWRITES, &mut disks, Old::overwrite);
    for (old, count) in disks.iter().zip(COUNTS) {
        making(old, count);
    }
    deleting();
    comparing();
}

/// How often `work` can be done a second, beside a disk without snapshots.
fn rates(what: &str, count: u64, disks: &mut [Old], work: fn(&mut Old)) {
    let mut seconds = vec![Vec::new(); disks.len()];
    for _ in 0..ROUNDS {
        for (old, seconds) in disks.iter_mut().zip(&mut seconds) {
            seconds.push(time(|| (0..count / ROUNDS as u64).for_each(|_| work(old))).as_secs_f64());
        }
    }
    let rates: Vec<f64> = seconds
        .into_iter()
        .map(|mut seconds| {
            seconds.sort_by(f64::total_cmp);
            (count / ROUNDS as u64) as f64 / seconds[ROUNDS / 2]
        })
        .collect();
    for (rate, snapshots) in rates.iter().zip(COUNTS).skip(1) {
        print(&format!("{what}, {snapshots} snapshots"), "/s", *rate, rates[0]);
    }
}

/// How long a snapshot and a clone take.
fn making(old: &Old, count: u64) {
    let mut number = 0;
    let mut micros = |make: &mut dyn FnMut(u64)| {
        let took = time(|| {
            (0..100).for_each(|_| {
                number += 1;
                make(number);
            });
        });
        took.as_secs_f64() * 1e6 / 100.0
    };
    let snapshot = micros(&mut |_| drop(old.disk.snapshot(0, None).expect("there is room")));
    print_alone(&format!("a snapshot, beside {count}"), " us", snapshot);
    let clone = micros(&mut |number| {
        let name = format!("clone {number}");
        drop(old.disk.branch_off(View::HEAD, &name).expect("there is room"));
    });
    print_alone(&format!("a clone, beside {count} snapshots"), " us", clone);
}

/// How long it takes until what a deleted snapshot held can be used again.
fn deleting() {
    let mut old = Old::new(0);
    let snapshot = old.disk.snapshot(0, None).expect("there is room");
    for page_index in 0..PAGES {
        old.write(page_index);
    }
    let live = |disk: &LogDisk| disk.space().live_bytes as f64 / (1 << 30) as f64;
    let before = live(&old.disk);
    let took = time(|| {
        old.disk.delete(snapshot.view()).expect("it is not held");
        while old.disk.sweep_step().expect("the map can be read") {}
    });
    let freed = before - live(&old.disk);
    print_alone("deleting a snapshot, for each GiB", " ms", took.as_secs_f64() * 1e3 / freed);
    old.overwrite();
}

/// How long it takes to tell what changed in a tree of a million files.
fn comparing() {
    const DIRECTORIES: u64 = 1000;
    const FILES: u64 = 1000;
    const CHANGES: u64 = 10;
    let tree = Tree::new(disk(Arc::new(MemoryDevice::new(4096 * MIB))));
    let directories: Vec<Ino> = (0..DIRECTORIES)
        .map(|number| {
            let directory = tree.make(Ino::ROOT, number, MODE_DIRECTORY);
            for number in 0..FILES {
                tree.make(directory, number, MODE_FILE);
            }
            directory
        })
        .collect();
    let snapshot = || tree.disk.snapshot(0, None).expect("there is room").view();
    let before = snapshot();
    for directory in directories.iter().step_by((DIRECTORIES / CHANGES) as usize) {
        tree.make(*directory, FILES, MODE_FILE);
    }
    let after = snapshot();
    tree.disk.checkpoint().expect("there is room");
    let mut millis: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let took = time(|| {
                let changes = diff(&*tree.disk, before, after).expect("the map can be read");
                assert_eq!(changes.iter().filter(|change| change.sign() == '+').count(), 10);
            });
            took.as_secs_f64() * 1e3
        })
        .collect();
    millis.sort_by(f64::total_cmp);
    let what = "comparing 1,000,000 files of which 10 are new";
    print_alone(what, " ms", millis[ROUNDS / 2]);
}

const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_FILE: u32 = 0o100_644;

/// A file system in memory.
struct Tree {
    disk: Arc<LogDisk>,
    fs: FileSystem,
}

impl Tree {
    fn new(disk: LogDisk) -> Self {
        let disk = Arc::new(disk);
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        FileSystem::create_on(&*disk, &format_options(), &*clock).expect("the disk is empty");
        let shared = Arc::clone(&disk) as Arc<dyn LogicalDisk>;
        let fs = FileSystem::mount(shared, Options::default(), clock).expect("it was just made");
        Self { disk, fs }
    }

    fn make(&self, parent: Ino, number: u64, mode: u32) -> Ino {
        let name = format!("file-{number}");
        let made = match mode {
            MODE_DIRECTORY => self.fs.mkdir(&CALLER, parent, name.as_bytes(), mode),
            _ => self.fs.mknod(&CALLER, parent, name.as_bytes(), mode, 0),
        };
        let ino = made.expect("there is room").ino;
        self.fs.forget(ino, 1);
        while self.disk.background_step().expect("the device works") {}
        ino
    }
}
