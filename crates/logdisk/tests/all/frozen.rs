//! A frozen volume shows one moment, whatever others do meanwhile, and holds up nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dendro_base::Rng;
use dendro_check::{Options, verify};
use dendro_device::{Device, MemoryDevice, OverlayDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{FormatOptions, FrozenVolume, LogDisk, OpenOptions, format};

use crate::common::clock;

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 512 << 10;
const PAGES_OF_A_LIST: u64 = 400;

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let options = OpenOptions { checkpoint_log_bytes: 4 * MIB, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device), options, clock()).expect("it is a volume")
}

fn new_volume(len_bytes: u64) -> LogDisk {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock()).expect("the device is large enough");
    open(&device)
}

fn new_lists(disk: &LogDisk, count: usize) -> Vec<Lid> {
    let mut lists = Vec::new();
    for _ in 0..count {
        let list = disk.allocate_list().expect("the disk is writable");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        disk.commit(aru).expect("there is room");
        lists.push(list);
    }
    lists
}

/// Overwrites some pages, and so makes work for the cleaner.
fn write(disk: &LogDisk, lists: &[Lid], rng: &mut Rng) {
    let list = lists[rng.below(lists.len() as u64) as usize];
    let mut aru = Aru::new(View::HEAD);
    let mut bytes = vec![0; PAGE_SIZE * (1 + rng.below(24) as usize) - rng.below(4000) as usize];
    rng.fill(&mut bytes);
    aru.write_pages(list, rng.below(PAGES_OF_A_LIST), bytes);
    aru.put_record(list, rng.below(200), vec![rng.below(256) as u8; 1 + rng.below(200) as usize]);
    if rng.chance(20) {
        aru.punch_pages(list, rng.below(PAGES_OF_A_LIST), rng.below(50));
    }
    disk.commit(aru).expect("there is room");
}

/// Everything that is in the lists.
fn content(disk: &LogDisk, view: View, lists: &[Lid]) -> BTreeMap<(u64, u64), Vec<u8>> {
    let mut all = BTreeMap::new();
    for &list in lists {
        let mut pages = vec![0; PAGE_SIZE * (PAGES_OF_A_LIST as usize + 24)];
        disk.read_pages(view, list, 0, &mut pages).expect("the device works");
        all.insert((list.0, u64::MAX), pages);
        for (index, record) in disk.records(view, list, 0, 1000).expect("the device works") {
            all.insert((list.0, index), record.to_vec());
        }
    }
    all
}

/// What is wrong with the frozen state, by the verifier.
fn findings(frozen: &FrozenVolume) -> Vec<String> {
    let report = verify(frozen, &Options { data: true });
    report.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_state_is_that_of_its_moment_while_writers_cleaner_and_checkpoints_go_on() {
    let (mut written_while_held, mut checked) = (0, 0);
    for seed in 0..12 {
        let disk = new_volume(96 * MIB);
        let mut rng = Rng::new(seed);
        let lists = new_lists(&disk, 8);
        for _ in 0..400 {
            write(&disk, &lists, &mut rng);
            if rng.chance(3) {
                disk.background_step().expect("the device works");
            }
        }
        if seed % 3 == 0 {
            disk.snapshot(0, Some("past")).expect("there is room");
        }
        // The freeze must not rely on what is in memory alone.
        let frozen = Arc::new(disk.freeze().expect("the device works").expect("nothing is frozen"));
        assert!(disk.freeze().expect("the device works").is_none(), "two states are held");
        let expected = content(&disk, View::HEAD, &lists);
        let before = disk.stats().written_bytes;
        for round in 0..6 {
            for _ in 0..rng.below(60) {
                write(&disk, &lists, &mut rng);
                if rng.chance(2) {
                    disk.background_step().expect("the device works");
                }
                if rng.chance(40) {
                    disk.flush(CommitSeq::LATEST).expect("the device works");
                }
            }
            if rng.chance(3) {
                disk.checkpoint().expect("the device works");
            }
            let found = findings(&frozen);
            let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(&frozen)));
            let opened = LogDisk::open(overlay, OpenOptions::default(), clock());
            if !frozen.is_held() {
                break;
            }
            assert_eq!(found, Vec::<String>::new(), "seed {seed}, round {round}");
            let opened = opened.expect("it is a volume");
            assert_eq!(opened.recovery_notes(), Vec::<String>::new());
            assert!(content(&opened, View::HEAD, &lists) == expected, "seed {seed}, {round}");
            opened.shut_down().expect("the overlay takes writes");
            checked += 1;
            written_while_held += disk.stats().written_bytes - before;
        }
        let now = content(&disk, View::HEAD, &lists);
        drop(frozen);
        disk.checkpoint().expect("the device works");
        assert!(content(&disk, View::HEAD, &lists) == now);
        assert!(disk.freeze().expect("the device works").is_some(), "the hold stays");
        disk.shut_down().expect("the device works");
    }
    assert!(checked >= 30 && written_while_held > 100 * MIB, "{checked}, {written_while_held}");
}

#[test]
fn writers_that_need_the_room_get_it_and_the_state_is_given_up() {
    let disk = new_volume(32 * MIB);
    let mut rng = Rng::new(7);
    let lists = new_lists(&disk, 8);
    for _ in 0..200 {
        write(&disk, &lists, &mut rng);
    }
    let frozen = disk.freeze().expect("the device works").expect("nothing is frozen");
    let mut byte = [0];
    let at = 3 * SEGMENT_BYTES;
    frozen.read_at(at, &mut byte).expect("it is held");
    for count in 0.. {
        // Each of these writes succeeds.
        write(&disk, &lists, &mut rng);
        if count % 4 == 0 {
            disk.background_step().expect("the device works");
        }
        if !frozen.is_held() {
            break;
        }
        assert!(count < 5000, "what is overwritten takes more room than there is");
    }
    frozen.read_at(at, &mut byte).expect_err("it was given up");
    for _ in 0..500 {
        write(&disk, &lists, &mut rng);
    }
    assert!(frozen.write_at(0, &[0; PAGE_SIZE]).is_err());
}

/// Ends the other threads, also when an assertion fails.
struct EndAtDrop<'a>(&'a AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn many_threads_write_while_states_are_verified_over_and_over() {
    let disk = &new_volume(160 * MIB);
    let lists: Vec<Vec<Lid>> = (0..4).map(|_| new_lists(disk, 3)).collect();
    let is_over = &AtomicBool::new(false);
    let mut verified = 0;
    thread::scope(|scope| {
        let _end = EndAtDrop(is_over);
        for (number, lists) in lists.iter().enumerate() {
            scope.spawn(move || {
                let mut rng = Rng::new(number as u64);
                while !is_over.load(Ordering::Relaxed) {
                    write(disk, lists, &mut rng);
                    if rng.chance(30) {
                        disk.flush(CommitSeq::LATEST).expect("the device works");
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if !disk.background_step().expect("the device works") {
                    disk.wait_for_background_work(Duration::from_millis(1));
                }
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                disk.write_step(Duration::from_millis(1)).expect("the device works");
            }
        });
        for round in 0..60 {
            let frozen = disk.freeze().expect("the device works").expect("nothing is frozen");
            let found = findings(&frozen);
            if frozen.is_held() {
                assert_eq!(found, Vec::<String>::new(), "round {round}");
                verified += 1;
            }
        }
    });
    assert!(verified > 20, "{verified}");
}
