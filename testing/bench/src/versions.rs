//! What versions cost: those that there are, making them, and deleting them.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_fs::versions::diff;
use dendro_fs::{FileSystem, Ino, Options};
use dendro_logdisk::LogDisk;

use crate::amplification::{CALLER, format_options};
use crate::engine::disk;
use crate::measure::{print, print_alone, time};

const MIB: u64 = 1 << 20;
const COUNTS: [u64; 4] = [0, 1, 100, 10_000];
/// Small files that are made, and pages overwritten, before anything is measured.
const CHANGES: u64 = 10_000;
/// Pages of the file that is overwritten at random.
const PAGES: u64 = 16_384;
/// In each round.
const OVERWRITES: u64 = 30_000;
const CREATIONS: u64 = 10_000;
const FILES_IN_A_DIRECTORY: u64 = 1000;
const ROUNDS: usize = 5;
/// Of rates, whose medians are told. Disks take turns within each: what else the machine does slows
/// all of them.
const RATE_ROUNDS: usize = 15;
const TURN: u64 = 10_000;
/// Versions that are made in a round.
const MADE: u64 = 100;

/// A disk with so many snapshots, made while the same was written as on all others.
struct Old {
    tree: Tree,
    directory: Ino,
    file_count: u64,
    file: Ino,
    rng: Rng,
    page: Vec<u8>,
}

impl Old {
    fn new(snapshot_count: u64) -> Self {
        let tree = Tree::new(disk(Arc::new(memory(2048 * MIB))));
        let file = tree.make(Ino::ROOT, u64::MAX, MODE_FILE);
        let mut page = vec![0; PAGE_SIZE];
        Rng::new(1).fill(&mut page);
        let mut old =
            Self { tree, directory: Ino::ROOT, file_count: 0, file, rng: Rng::new(2), page };
        for page_index in 0..PAGES {
            old.write(page_index);
        }
        for change in 0..CHANGES {
            old.create();
            old.overwrite();
            if (change + 1) * snapshot_count / CHANGES > change * snapshot_count / CHANGES {
                old.tree.disk.snapshot(0, None).expect("there is room");
            }
        }
        old
    }

    fn write(&self, page_index: u64) {
        let offset = page_index * PAGE_SIZE as u64;
        self.tree.fs.write(self.file, offset, &self.page, false).expect("there is room");
    }

    fn overwrite(&mut self) {
        let page_index = self.rng.below(PAGES);
        self.write(page_index);
    }

    /// Makes a file of 1 KiB.
    fn create(&mut self) {
        if self.file_count.is_multiple_of(FILES_IN_A_DIRECTORY) {
            self.directory = self.tree.make(Ino::ROOT, self.file_count, MODE_DIRECTORY);
        }
        let fs = &self.tree.fs;
        let name = format!("file-{}", self.file_count);
        let made = fs.create(&CALLER, self.directory, name.as_bytes(), 0o644, Default::default());
        let ino = made.expect("there is room").ino;
        fs.write(ino, 0, &self.page[..1024], false).expect("there is room");
        fs.release(ino);
        fs.forget(ino, 1);
        self.file_count += 1;
    }
}

/// A device in memory that is there before the clock runs.
fn memory(len_bytes: u64) -> MemoryDevice {
    let device = MemoryDevice::new(len_bytes);
    let zeros = vec![0; MIB as usize];
    for offset in (0..len_bytes).step_by(zeros.len()) {
        device.write_at(offset, &zeros).expect("it is on the device");
    }
    device
}

pub(crate) fn run() {
    println!("{:<58} {:>14} {:>14} {:>8}", "", "with them", "without", "ratio");
    let mut disks: Vec<Old> = COUNTS.iter().map(|count| Old::new(*count)).collect();
    rates("create files of 1 KiB", CREATIONS, &mut disks, Old::create);
    rates("overwrite 4 KiB of a file at random", OVERWRITES, &mut disks, Old::overwrite);
    for (old, count) in disks.iter().zip(COUNTS) {
        making(old, count);
    }
    deleting();
    comparing();
}

/// How often `work` can be done a second, beside a disk without snapshots: in each round `count`
/// times.
fn rates(what: &str, count: u64, disks: &mut [Old], work: fn(&mut Old)) {
    let mut rounds = Vec::new();
    for _ in 0..RATE_ROUNDS {
        let mut seconds = vec![0.0; disks.len()];
        for _ in 0..count / TURN {
            for (old, seconds) in disks.iter_mut().zip(&mut seconds) {
                *seconds += time(|| (0..TURN).for_each(|_| work(old))).as_secs_f64();
            }
        }
        rounds.push(seconds);
    }
    for (disk, snapshots) in COUNTS.iter().enumerate().skip(1) {
        let rate = median(rounds.iter().map(|seconds| count as f64 / seconds[disk]));
        let ratio = median(rounds.iter().map(|seconds| seconds[0] / seconds[disk]));
        print(&format!("{what}, {snapshots} snapshots"), "/s", rate, rate / ratio);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How long a snapshot and a clone take.
fn making(old: &Old, count: u64) {
    if count == 0 {
        // The superblock states durably that there are versions.
        let took = time(|| drop(old.tree.disk.snapshot(0, None).expect("there is room")));
        print_alone("the first snapshot of a volume", " us", took.as_secs_f64() * 1e6);
    }
    let snapshot =
        repeated(old, |_| old.tree.disk.snapshot(0, None).expect("there is room").view());
    print_alone(&format!("a snapshot, beside {count}"), " us", snapshot);
    let clone = repeated(old, |number| {
        let name = format!("clone {number}");
        old.tree.disk.branch_off(View::HEAD, &name).expect("there is room").head()
    });
    print_alone(&format!("a clone, beside {count} snapshots"), " us", clone);
}

/// The microseconds that a version takes to make: the median of several rounds, in each of which
/// some are made one after the other, and deleted again.
fn repeated(old: &Old, mut make: impl FnMut(u64) -> View) -> f64 {
    let mut round = |round: usize| {
        let mut made = Vec::with_capacity(MADE as usize);
        let numbers = (0..MADE).map(|of| round as u64 * MADE + of);
        let took = time(|| made.extend(numbers.map(&mut make)));
        for view in made {
            old.tree.disk.delete(view).expect("it is not held");
        }
        took.as_secs_f64() * 1e6 / MADE as f64
    };
    median((0..RATE_ROUNDS).map(&mut round))
}

/// How long it takes until what a deleted snapshot held can be used again.
fn deleting() {
    let mut old = Old::new(0);
    old.tree.disk.checkpoint().expect("there is room");
    let snapshot = old.tree.disk.snapshot(0, None).expect("there is room");
    for page_index in 0..PAGES {
        old.write(page_index);
    }
    let live = |disk: &LogDisk| disk.space().live_bytes as f64 / (1 << 30) as f64;
    let before = live(&old.tree.disk);
    let took = time(|| {
        old.tree.disk.delete(snapshot.view()).expect("it is not held");
        while old.tree.disk.collection_step().expect("the map can be read") {}
    });
    let freed = before - live(&old.tree.disk);
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
