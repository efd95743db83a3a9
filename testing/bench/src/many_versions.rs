//! What one version costs beside thousands of others, in three shapes: snapshots of one branch,
//! clones of one snapshot, and a chain of clones, each of the one before.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::engine::disk;
use crate::measure::time;

const DEVICE_BYTES: u64 = 1 << 30;
/// The disk's only list has so many records and pages.
const LEN: u64 = 1000;
/// Of each kind of deed, so many are timed at the end.
const SAMPLES: u64 = 100;
/// So many times over the volume is opened, for what it takes in memory to be told from what the
/// process had for other things.
const OPENINGS: usize = 20;
const LOOKUPS: u64 = 100_000;
const OVERWRITES: u64 = 10_000;

#[derive(Clone, Copy)]
enum Shape {
    /// Each of the main branch, which writes between them.
    Snapshots,
    /// Each of the same snapshot; each writes.
    Clones,
    /// Each of the one before, which has written.
    Chain,
    /// As [`Self::Chain`], and only the last keeps its head: what promotions leave behind.
    Promotions,
}

const SHAPES: [(Shape, &str); 4] = [
    (Shape::Snapshots, "snapshots"),
    (Shape::Clones, "clones of one"),
    (Shape::Chain, "chain"),
    (Shape::Promotions, "promotions"),
];

struct Subject {
    device: Arc<dyn Device>,
    disk: LogDisk,
    list: Lid,
    shape: Shape,
    origin: View,
    /// The newest head.
    head: View,
    count: u64,
}

impl Subject {
    fn new(shape: Shape) -> Self {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
        let disk = disk(Arc::clone(&device));
        let list = disk.allocate_list().expect("there is room");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        for index in 0..LEN {
            aru.put_record(list, index, vec![1; 40]);
        }
        aru.write_pages(list, 0, vec![1; LEN as usize * PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
        let origin = disk.snapshot(0, Some("origin")).expect("there is room").view();
        Self { device, disk, list, shape, origin, head: View::HEAD, count: 0 }
    }

    /// One more version; a record is changed after it. How long the version alone took.
    fn grow(&mut self) -> Duration {
        self.count += 1;
        let name = format!("version-{}", self.count);
        let from = match self.shape {
            Shape::Snapshots => None,
            Shape::Clones => Some(self.origin),
            Shape::Chain | Shape::Promotions => Some(self.head),
        };
        let took = time(|| match from {
            None => drop(self.disk.snapshot(0, Some(&name)).expect("there is room")),
            Some(from) => {
                self.head = self.disk.branch_off(from, &name).expect("there is room").head();
            }
        });
        if let (Shape::Promotions, Some(from)) = (self.shape, from) {
            self.disk.promote(self.head.branch).expect("it is there");
            self.disk.delete(from).expect("it is not the main one");
        }
        let mut aru = Aru::new(self.head);
        aru.put_record(self.list, self.count % LEN, vec![2; 40]);
        self.disk.commit(aru).expect("there is room");
        took
    }

    fn open(&self) -> LogDisk {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        LogDisk::open(Arc::clone(&self.device), OpenOptions::default(), clock)
            .expect("it was closed")
    }

    /// Nanoseconds for a record that was there before all versions, read and overwritten.
    fn look_up(&self, disk: &LogDisk, head: View) -> (f64, f64) {
        let read = time(|| {
            for at in 0..LOOKUPS {
                let found = disk.record(head, self.list, at * 7 % LEN).expect("it is there");
                assert!(found.is_some());
            }
        });
        let write = time(|| {
            for at in 0..OVERWRITES {
                let mut aru = Aru::new(head);
                aru.write_pages(self.list, at * 7 % LEN, vec![3; PAGE_SIZE]);
                disk.commit(aru).expect("there is room");
            }
        });
        (read.as_secs_f64() * 1e9 / LOOKUPS as f64, write.as_secs_f64() * 1e9 / OVERWRITES as f64)
    }

    /// Microseconds to delete one of the last versions, and of the sweep that follows.
    fn delete(&self, disk: &LogDisk) -> (f64, f64) {
        let table = disk.versions();
        let views: Vec<View> = match self.shape {
            Shape::Promotions => return (f64::NAN, f64::NAN),
            Shape::Snapshots => table.snapshots().rev().map(|one| one.view()).collect(),
            _ => table.branches().rev().map(|one| one.head()).collect(),
        };
        drop(table);
        let delete = time(|| {
            for view in views.iter().take(SAMPLES as usize) {
                disk.delete(*view).expect("it is not held");
            }
        });
        let sweep = time(|| while disk.collection_step().expect("the device works") {});
        (delete.as_secs_f64() * 1e6 / SAMPLES as f64, sweep.as_secs_f64() * 1e6 / SAMPLES as f64)
    }
}

/// Bytes of this process's memory.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_SIZE as u64
}

fn measure(shape: Shape, what: &str, count: u64) {
    let mut subject = Subject::new(shape);
    while subject.count < count - SAMPLES {
        subject.grow();
    }
    let made: Duration = (0..SAMPLES).map(|_| subject.grow()).sum();
    let made_us = made.as_secs_f64() * 1e6 / SAMPLES as f64;
    subject.disk.flush(dendro_disk::CommitSeq::LATEST).expect("the device works");
    // As if the power had failed: all versions are in the log.
    let mut rolled_forward = None;
    let replayed = time(|| rolled_forward = Some(subject.open()));
    subject.disk.checkpoint().expect("there is room");
    let before = resident_bytes();
    let mut disks = Vec::new();
    let opened = time(|| disks.extend((0..OPENINGS).map(|_| subject.open())));
    let after = resident_bytes();
    let disk = disks.pop().expect("it was opened");
    drop(disks);
    // What this would give back must not hide what the other takes.
    drop(rolled_forward);
    let listed = time(|| drop(disk.versions()));
    let (read_ns, write_ns) = subject.look_up(&disk, subject.head);
    let (delete_us, sweep_us) = subject.delete(&disk);
    println!(
        "{what:<14} {count:>6} {made_us:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {read_ns:>8.0} \
         {write_ns:>8.0} {delete_us:>9.1} {sweep_us:>9.1}",
        replayed.as_secs_f64() * 1e3,
        opened.as_secs_f64() * 1e3 / OPENINGS as f64,
        after.saturating_sub(before) as f64 / (1 << 20) as f64 / OPENINGS as f64,
        listed.as_secs_f64() * 1e6,
    );
}

/// Measures each shape with each of `counts` versions.
pub(crate) fn run(shapes: Option<&str>, counts: &[u64]) {
    let counts = if counts.is_empty() { &[1000, 3000, 10_000][..] } else { counts };
    println!(
        "{:<14} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9}",
        "versions",
        "count",
        "make us",
        "replay ms",
        "open ms",
        "open MiB",
        "list us",
        "read ns",
        "write ns",
        "delete us",
        "sweep us"
    );
    for (shape, what) in SHAPES {
        if shapes.is_some_and(|chosen| chosen != "all" && chosen != what) {
            continue;
        }
        for count in counts {
            measure(shape, what, *count);
        }
    }
}
