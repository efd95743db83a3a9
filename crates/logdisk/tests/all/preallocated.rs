//! What was allocated can be written, and what was written can be overwritten, even on a full disk.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const PAGES: u64 = 2048;

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    LogDisk::open(Arc::clone(device), OpenOptions::default(), clock).expect("it was formatted")
}

fn formatted() -> (Arc<dyn Device>, LogDisk) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(48 << 20));
    let options = FormatOptions { segment_size_bytes: 512 << 10, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let disk = open(&device);
    (device, disk)
}

fn commit(disk: &LogDisk, op: Op<'_>) -> Result<CommitSeq, Error> {
    let mut aru = Aru::new(View::HEAD);
    aru.push(op);
    disk.commit(aru)
}

fn list(disk: &LogDisk) -> Lid {
    let list = disk.allocate_list().expect("the disk works");
    commit(disk, Op::CreateList { list, hints: ListHints::default() }).expect("there is room");
    list
}

fn allocate(disk: &LogDisk, list: Lid, count: u64) -> Result<CommitSeq, Error> {
    commit(disk, Op::ZeroPages { list, first_page: 0, count })
}

fn write(disk: &LogDisk, list: Lid, page: u64, rng: &mut Rng) -> Result<CommitSeq, Error> {
    let mut data = vec![0; PAGE_SIZE];
    rng.fill(&mut data);
    commit(disk, Op::WritePages { list, first_page: page, data: data.into() })
}

/// Fills the disk with pages of a list, and returns how many fitted.
fn fill(disk: &LogDisk, list: Lid, rng: &mut Rng) -> u64 {
    let is_full = |answer| matches!(answer, Err(Error::NoSpace { .. }));
    (0..).find(|&page| is_full(write(disk, list, page, rng))).expect("it gets full")
}

fn available(disk: &LogDisk) -> u64 {
    disk.space().available_bytes
}

#[test]
fn no_more_can_be_allocated_than_is_available() {
    let (_, disk) = formatted();
    let list = list(&disk);
    let room = available(&disk) / PAGE_SIZE as u64;
    assert!(matches!(allocate(&disk, list, room + 1), Err(Error::NoSpace { .. })));
    allocate(&disk, list, room / 2).expect("there is room");
    let rest = available(&disk);
    assert!(rest.abs_diff(room / 2 * PAGE_SIZE as u64) < 1 << 20, "{rest} of {room} pages");
    let other = self::list(&disk);
    assert!(matches!(allocate(&disk, other, room / 2 + 300), Err(Error::NoSpace { .. })));
}

#[test]
fn allocated_pages_can_be_written_on_a_full_disk() {
    let (device, mut disk) = formatted();
    let mut rng = Rng::new(1);
    let (allocated, other) = (list(&disk), list(&disk));
    allocate(&disk, allocated, PAGES).expect("there is room");
    fill(&disk, other, &mut rng);
    for page in 0..PAGES {
        write(&disk, allocated, page, &mut rng).expect("it was set aside");
        if page == PAGES / 2 {
            disk.flush(CommitSeq::LATEST).expect("the device works");
            drop(disk);
            disk = open(&device);
            let answer =
                commit(&disk, Op::ZeroPages { list: other, first_page: 1 << 20, count: 500 });
            assert!(matches!(answer, Err(Error::NoSpace { .. })), "{answer:?}");
        }
    }
}

#[test]
fn written_pages_can_be_overwritten_on_a_full_disk_any_number_of_times() {
    let (_, disk) = formatted();
    let mut rng = Rng::new(2);
    let list = list(&disk);
    let count = fill(&disk, list, &mut rng);
    for _ in 0..3 * count {
        write(&disk, list, rng.below(count), &mut rng).expect("as much is given back");
    }
    // What a snapshot keeps takes space of its own when it is overwritten.
    disk.snapshot(0, None).expect_err("the map must be kept twice");
    let mut aru = Aru::new(View::HEAD);
    aru.set_reclaims().punch_pages(list, 0, count / 2);
    disk.commit(aru).expect("it is freed");
    let mut rewrite_a_third = || {
        disk.snapshot(0, None).expect("there is room");
        (count - count / 3..count).find(|&page| write(&disk, list, page, &mut rng).is_err())
    };
    assert_eq!(rewrite_a_third(), None, "half of the disk is free");
    assert!(rewrite_a_third().is_some(), "seven sixths do not fit");
}

#[test]
fn the_end_of_a_file_can_be_overwritten_on_a_full_disk_by_one_as_long() {
    let (_, disk) = formatted();
    let mut rng = Rng::new(4);
    let (file, filler) = (list(&disk), list(&disk));
    // Two pages, and an end that is stored without the zeros behind it.
    let write_file = |end_len_bytes: usize, rng: &mut Rng| {
        let mut data = vec![0; 3 * PAGE_SIZE];
        rng.fill(&mut data[..2 * PAGE_SIZE + end_len_bytes]);
        commit(&disk, Op::WritePages { list: file, first_page: 0, data: data.into() })
    };
    write_file(1000, &mut rng).expect("there is room");
    fill(&disk, filler, &mut Rng::new(5));
    for _ in 0..3 * PAGES {
        write_file(1000, &mut rng).expect("as much is given back");
    }
    write_file(500, &mut rng).expect("more is given back");
    let answer = write_file(PAGE_SIZE, &mut rng);
    assert!(matches!(answer, Err(Error::NoSpace { .. })), "{answer:?}");
    // What a whole page gives back pays for no other pages.
    let mut aru = Aru::new(View::HEAD);
    for page in 1..50 {
        let mut data = vec![0; 64];
        rng.fill(&mut data);
        aru.write_pages(file, page, data);
    }
    let answer = disk.commit(aru);
    assert!(matches!(answer, Err(Error::NoSpace { .. })), "{answer:?}");
    // A page is given back once, however often a unit writes it.
    let mut aru = Aru::new(View::HEAD);
    for len_bytes in [64, 64, 64, 64, 64, 64, 700] {
        let mut data = vec![0; len_bytes];
        rng.fill(&mut data);
        aru.write_pages(file, 2, data);
    }
    let answer = disk.commit(aru);
    assert!(matches!(answer, Err(Error::NoSpace { .. })), "{answer:?}");
}

#[test]
fn allocated_pages_stay_counted_through_all_later_changes() {
    let (device, disk) = formatted();
    let mut rng = Rng::new(3);
    let lists = [list(&disk), list(&disk)];
    for round in 0..400 {
        let [list, to] = if rng.chance(50) { lists } else { [lists[1], lists[0]] };
        let (first_page, count) = (rng.below(300), 1 + rng.below(100));
        let op = match rng.below(6) {
            0 | 1 => Op::ZeroPages { list, first_page, count },
            2 => Op::PunchPages { list, first_page, count },
            3 => Op::MovePages { from: list, from_page: first_page, to, to_page: 0, count: 50 },
            4 => Op::SwapPages { a: list, b: to },
            _ => {
                let mut data = vec![0; 3 * PAGE_SIZE];
                rng.fill(&mut data[..50]);
                Op::WritePages { list, first_page, data: data.into() }
            }
        };
        commit(&disk, op).expect("there is room");
        if round % 40 == 0 {
            let made = disk.snapshot(0, None).expect("there is room");
            if rng.chance(50) {
                disk.delete(made.view()).expect("it is not held");
            }
        }
        if round % 100 == 99 {
            while disk.background_step().expect("the disk works") {}
            disk.checkpoint().expect("the disk works");
            let report = dendro_check::verify(&*device, &dendro_check::Options { data: true });
            assert!(report.is_sound(), "{report}");
            assert!(report.counts.zero_page_count > 0);
        }
    }
}
