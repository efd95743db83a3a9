//! The logical disk alone, on a memory device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::{Clock, ManualClock};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{Discards, FormatOptions, LogDisk, OpenOptions, format};

use crate::measure::{beside, print, print_alone, time};

const MIB: usize = 1 << 20;
const UNITS: u64 = 200_000;
const BULK_BYTES: usize = 256 * MIB;
const WRITE_BYTES: usize = MIB;

pub(crate) fn disk(device: Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, &FormatOptions::default(), &clock).expect("the device can be formatted");
    LogDisk::open(device, OpenOptions::default(), clock).expect("it was just formatted")
}

/// As [`disk`], but blocks that the device has it keeps.
pub(crate) fn disk_keeping_blocks(device: Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, &FormatOptions::default(), &clock).expect("the device can be formatted");
    let options = OpenOptions { discards: Discards::Never, ..OpenOptions::default() };
    LogDisk::open(device, options, clock).expect("it was just formatted")
}

/// A device whose memory is there before a clock runs, as that of what it is compared with is.
fn memory(len_bytes: usize) -> MemoryDevice {
    let device = MemoryDevice::new(len_bytes as u64);
    let zeros = vec![0; MIB];
    for offset in (0..device.len_bytes()).step_by(MIB) {
        device.write_at(offset, &zeros).expect("it is on the device");
    }
    device
}

pub(crate) fn run() {
    small_units();
    bandwidth();
}

/// Does `work` while a writer thread writes the log, as the daemon has one.
pub(crate) fn with_writer<T>(disk: &LogDisk, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                disk.write_step(Duration::from_millis(1)).expect("the device works");
            }
        });
        let result = work();
        done.store(true, Ordering::Release);
        result
    })
}

pub(crate) fn new_list(disk: &LogDisk) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    list
}

/// (a) Small committed recovery units on one thread: a record of 100 bytes each.
fn small_units() {
    let disk = disk(Arc::new(memory(512 * MIB)));
    let list = new_list(&disk);
    let value = [7_u8; 100];
    let mut best = Vec::new();
    for (what, count) in [("new", u64::MAX), ("of 50,000 rewritten", 50_000)] {
        let mut seconds = Vec::new();
        for round in 0..5 {
            let took = time(|| {
                for number in 0..UNITS {
                    let number = round * UNITS + number;
                    let index = if count == u64::MAX { number } else { number * 7919 % count };
                    let mut aru = Aru::new(View::HEAD);
                    aru.put_record(list, index, &value[..]);
                    disk.commit(aru).expect("there is room");
                }
            });
            seconds.push(took.as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        best.push((what, UNITS as f64 / seconds[2]));
    }
    for (what, rate) in best {
        print_alone(&format!("a  small recovery units, records {what}"), "/s", rate);
    }
}

/// (a) Bandwidth of pages, as a fraction of copying memory.
fn bandwidth() {
    let disk = disk(Arc::new(memory(1024 * MIB)));
    let list = new_list(&disk);
    let mut source = vec![0_u8; BULK_BYTES];
    dendro_base::Rng::new(1).fill(&mut source);
    let mut target = vec![1_u8; BULK_BYTES];
    let mut copy = |source: &[u8]| {
        time(|| {
            for (to, from) in target.chunks_mut(WRITE_BYTES).zip(source.chunks(WRITE_BYTES)) {
                to.copy_from_slice(from);
            }
            std::hint::black_box(&mut target);
        })
    };
    let write = || {
        time(|| {
            for (number, data) in (0..).zip(source.chunks(WRITE_BYTES)) {
                let mut aru = Aru::new(View::HEAD);
                aru.write_pages(list, number * (WRITE_BYTES / PAGE_SIZE) as u64, data);
                disk.commit(aru).expect("there is room");
            }
            disk.flush(dendro_disk::CommitSeq::LATEST).expect("the device works");
        })
    };
    let gib = BULK_BYTES as f64 / f64::from(1 << 30);
    let (ours, theirs) = beside(5, write, || copy(&source));
    print("a  page writes of 1 MiB, one thread, and memcpy", " GiB/s", gib / ours, gib / theirs);
    let (ours, theirs) = beside(5, || with_writer(&disk, write), || copy(&source));
    print("a  page writes of 1 MiB, writer thread, and memcpy", " GiB/s", gib / ours, gib / theirs);

    let mut buf = vec![0_u8; WRITE_BYTES];
    let read = || {
        time(|| {
            for number in 0..(BULK_BYTES / WRITE_BYTES) as u64 {
                let first = number * (WRITE_BYTES / PAGE_SIZE) as u64;
                disk.read_pages(View::HEAD, list, first, &mut buf).expect("it was written");
            }
        })
    };
    let (ours, theirs) = beside(5, read, || copy(&source));
    print("a  page reads of 1 MiB, and memcpy", " GiB/s", gib / ours, gib / theirs);
}
