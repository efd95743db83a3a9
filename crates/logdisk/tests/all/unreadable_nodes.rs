//! If the map cannot be read, a unit fails before it has changed anything, and background work
//! fails in the same way.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::model::ModelState;
use dendro_disk::{
    Aru, Branch, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, Snapshot, Versions, View,
};
use dendro_logdisk::external::{SegmentStatus, SummaryCursor};
use dendro_logdisk::{
    CleanSettings, CoalesceSettings, FormatOptions, LogDisk, OpenOptions, Place, format,
};

const MIB: u64 = 1 << 20;
/// Records of 200 bytes in the list of which a deleted version left entries: several leaves.
const RECORDS: u64 = 500;

fn open(device: &Arc<SimDevice>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device = Arc::clone(device) as Arc<dyn Device>;
    LogDisk::open(device, OpenOptions::default(), clock).expect("the device works")
}

/// A volume on which a list and the snapshot that had it were deleted, before any collection.
fn with_remains() -> (Arc<SimDevice>, Lid, Lid) {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = open(&device);
    let [kept, gone] = [(); 2].map(|()| disk.allocate_list().expect("there is room"));
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(kept, ListHints::default()).create_list(gone, ListHints::default());
    for index in 0..RECORDS {
        aru.put_record(gone, index, vec![1; 200]);
    }
    disk.commit(aru).expect("there is room");
    let snapshot = disk.snapshot(0, None).expect("there is room").view();
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(gone);
    disk.commit(aru).expect("there is room");
    disk.delete(snapshot).expect("it is not held");
    disk.checkpoint().expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    (device, kept, gone)
}

#[test]
fn a_list_is_recreated_with_few_reads_or_left_as_it_was() {
    let (device, kept, gone) = with_remains();
    let mut failed_count = 0;
    for nth in 1.. {
        let disk = open(&device);
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(kept, 7, vec![7; 10]).create_list(gone, ListHints::default());
        device.inject(Fault::fail(Call::Read).nth(nth));
        let answer = disk.commit(aru);
        device.clear_faults();
        match answer {
            Ok(_) => {
                assert_eq!(disk.record(View::HEAD, gone, 0), Ok(None));
                break;
            }
            Err(Error::Io(_)) => {
                failed_count += 1;
                assert_eq!(disk.read_only_reason(), None, "read {nth}");
                assert_eq!(disk.record(View::HEAD, kept, 7), Ok(None), "read {nth}");
            }
            Err(error) => panic!("read {nth}: {error}"),
        }
    }
    // What remains of the list is several leaves, which need not be read.
    assert!((1..=5).contains(&failed_count), "{failed_count} reads");
}

/// Returns the records of a list, or the first error if the list cannot be read.
fn records(disk: &LogDisk, list: Lid) -> dendro_disk::Result<Vec<Option<Vec<u8>>>> {
    let record = |index| Ok(disk.record(View::HEAD, list, index)?.map(|value| value.to_vec()));
    (0..RECORDS).map(record).collect()
}

#[test]
fn a_unit_that_finds_an_unreadable_node_half_way_leaves_no_trace() {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = open(&device);
    let list = disk.allocate_list().expect("there is room");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    for index in 0..RECORDS {
        aru.put_record(list, index, vec![1; 200]);
    }
    disk.commit(aru).expect("there is room");
    disk.shut_down().expect("the device works");
    drop(disk);
    let whole = Ok(vec![Some(vec![1; 200]); RECORDS as usize]);
    let mut failed_count = 0;
    // One of these is the first record of its leaf.
    for (first, nth) in (100..140).flat_map(|first| (1..10).map(move |nth| (first, nth))) {
        let disk = open(&device);
        // Whole leaves become empty, and records that are put again belong to a leaf that was not
        // looked at.
        let mut aru = Aru::new(View::HEAD);
        for index in first..first + 100 {
            aru.delete_record(list, index);
        }
        aru.put_record(list, first, vec![2; 200]);
        device.inject(Fault::fail(Call::Read).nth(nth));
        let answer = disk.commit(aru);
        device.clear_faults();
        let found = records(&disk, list);
        match answer {
            Ok(_) => {}
            Err(Error::Io(_)) => {
                failed_count += 1;
                assert_eq!(disk.read_only_reason(), None, "read {nth}, from {first}");
                assert_eq!(found, whole, "read {nth}, from {first}");
            }
            Err(error) => panic!("read {nth}, from {first}: {error}"),
        }
        drop(disk);
        assert_eq!(records(&open(&device), list), whole, "read {nth}, from {first}");
    }
    assert!(failed_count > 40, "{failed_count} units met one");
}

/// Lists of a page and some records each. Their nodes take many times the size of the cache.
const LISTS: u64 = 1200;

fn open_with_a_small_cache(device: &Arc<SimDevice>) -> LogDisk {
    open_with_a_cache_of(64 << 10, device)
}

fn open_with_a_cache_of(cache_size_bytes: u64, device: &Arc<SimDevice>) -> LogDisk {
    open_at(&Arc::new(ManualClock::default()), cache_size_bytes, device)
}

fn open_at(clock: &Arc<ManualClock>, cache_size_bytes: u64, device: &Arc<SimDevice>) -> LogDisk {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let cleaning = CleanSettings {
        min_clean_segments: Some(60),
        coalescing: CoalesceSettings { moves_everything: true, ..CoalesceSettings::default() },
        ..CleanSettings::default()
    };
    let options = OpenOptions { cache_size_bytes, cleaning, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device) as Arc<dyn Device>, options, clock).expect("the device works")
}

/// Creates the lists on a device, or overwrites pages of them.
fn write_lists(disk: &LogDisk, rng: &mut Rng) {
    let is_new = disk.lists(View::HEAD, Lid(0), 1).expect("the device works").is_empty();
    for at in 0..if is_new { LISTS } else { 300 } {
        let mut aru = Aru::new(View::HEAD);
        let list = if is_new {
            let list = disk.allocate_list().expect("the device works");
            aru.create_list(list, ListHints::default());
            for index in 0..4 {
                aru.put_record(list, index, vec![1; 200]);
            }
            list
        } else {
            Lid(Lid::FIRST.0 + rng.below(LISTS))
        };
        let mut page = vec![0; PAGE_SIZE];
        rng.fill(&mut page);
        aru.write_pages(list, at % 2, page);
        disk.commit(aru).expect("there is room");
    }
    disk.checkpoint().expect("the device works");
}

/// Rewrites what is live in some segment, as an external cleaner does.
fn rewrite_some(disk: &LogDisk, rng: &mut Rng) -> dendro_disk::Result<()> {
    let dirty: Vec<u32> = disk
        .segments(0, usize::MAX)
        .iter()
        .filter(|facts| facts.status == SegmentStatus::Dirty)
        .map(|facts| facts.number)
        .collect();
    let segment = dirty[rng.below(dirty.len() as u64) as usize];
    // The cleaner ignores what cannot be read.
    let asked = disk.segment_blocks(segment, SummaryCursor::default(), 500);
    let Ok(listed) = asked else { return Ok(()) };
    disk.rewrite(&listed.blocks).map(drop)
}

#[test]
fn moving_blocks_where_the_map_cannot_be_read_leaves_the_disk_writable() {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let mut rng = Rng::new(1);
    write_lists(&open_with_a_small_cache(&device), &mut rng);
    let mut struck = [0; 4];
    for round in 0..40 {
        let disk = open_with_a_small_cache(&device);
        let before = disk.snapshot(0, None).expect("there is room").view();
        write_lists(&disk, &mut rng);
        disk.delete(before).expect("it is not held");
        let state = ModelState::read_from(&disk).expect("the device works");
        for (kind, struck) in struck.iter_mut().enumerate() {
            let struck_before = device.struck_count();
            device.inject(Fault::fail(Call::Read).nth(1 + rng.below(12)));
            // The test does not check whether the operation succeeds.
            let answer = match kind {
                0 => (0..30).try_for_each(|_| disk.clean_step().map(drop)),
                1 => rewrite_some(&disk, &mut rng),
                2 => disk.coalesce(View::HEAD, Place::START, Lid::CLIENT_END, false).map(drop),
                _ => (0..30).try_for_each(|_| disk.collection_step().map(drop)),
            };
            device.clear_faults();
            *struck += device.struck_count() - struck_before;
            let reason = disk.read_only_reason();
            assert_eq!(reason, None, "round {round}, kind {kind}: {answer:?}");
        }
        let found = ModelState::read_from(&disk).expect("the device works");
        assert_eq!(found.diff(&state), None, "round {round}");
        while disk.collection_step().expect("the device works") {}
        disk.shut_down().expect("the device works");
    }
    assert!(struck.iter().all(|&struck| struck > 1), "{struck:?}");
}

#[test]
fn temporarily_unreadable_segments_are_cleaned_later() {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let manual = Arc::new(ManualClock::default());
    let clock = Arc::clone(&manual) as Arc<dyn Clock>;
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = Arc::clone(&device) as Arc<dyn Device>;
    let disk = LogDisk::open(disk, OpenOptions::default(), clock).expect("the device works");
    let list = disk.allocate_list().expect("there is room");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    let pages = disk.space().capacity_bytes * 70 / 100 / PAGE_SIZE as u64;
    let mut rng = Rng::new(1);
    let mut page = vec![0; PAGE_SIZE];
    let mut write = |page_index| {
        rng.fill(&mut page);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, page_index, &page[..]);
        disk.commit(aru).expect("all of it fits");
        rng.below(pages)
    };
    for page_index in 0..pages {
        write(page_index);
    }
    (0..pages / 5).fold(0, |next, _| write(next));
    disk.checkpoint().expect("the device works");
    let all = CleanSettings { min_clean_segments: Some(100), ..CleanSettings::default() };
    disk.set_clean_settings(all);
    device.inject(Fault::fail(Call::Read).forever());
    let mut tried_count = 0;
    while disk.clean_step().expect("only reads fail") {
        tried_count += 1;
    }
    assert!(tried_count > 20, "{tried_count} segments");
    device.clear_faults();
    manual.advance(Duration::from_secs(600));
    let mut next = 0;
    for _ in 0..2 * pages {
        next = write(next);
    }
}

#[test]
fn a_checkpoint_that_cannot_read_the_map_is_tried_again_while_writers_continue() {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    // No node stays in memory.
    let disk = open_with_a_cache_of(1 << 10, &device);
    write_lists(&disk, &mut Rng::new(1));
    let mut failed_count = 0;
    for nth in 1.. {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(Lid(Lid::FIRST.0 + nth), 0, vec![7; PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
        device.inject(Fault::fail(Call::Read).nth(nth));
        let answer = disk.checkpoint();
        device.clear_faults();
        assert_eq!(disk.read_only_reason(), None, "read {nth}");
        disk.checkpoint().expect("it can be read now");
        match answer {
            Ok(()) => break,
            Err(Error::Io(_)) => failed_count += 1,
            Err(error) => panic!("read {nth}: {error}"),
        }
    }
    assert!(failed_count > 0, "it read nothing");
}

/// A disk on which two lists were deleted and not yet removed. A leaf in the middle of the first
/// cannot be read. A snapshot may have both.
fn with_an_unreadable_removal(has_snapshot: bool) -> (Arc<SimDevice>, LogDisk, Arc<ManualClock>) {
    const MARK: [u8; 200] = [0xee; 200];
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = open(&device);
    let lists = [(); 2].map(|()| disk.allocate_list().expect("there is room"));
    for (list, count) in lists.into_iter().zip([5_000, 20_000]) {
        for from in (0..count).step_by(500) {
            let mut aru = Aru::new(View::HEAD);
            if from == 0 {
                aru.create_list(list, ListHints::default());
            }
            for index in from..from + 500 {
                let is_marked = (list, index) == (lists[0], 2_500);
                aru.put_record(list, index, if is_marked { MARK } else { [1; 200] }.to_vec());
            }
            disk.commit(aru).expect("there is room");
        }
    }
    disk.shut_down().expect("the device works");
    drop(disk);
    let clock = Arc::new(ManualClock::default());
    let disk = open_at(&clock, 64 << 10, &device);
    if has_snapshot {
        disk.snapshot(0, None).expect("there is room");
    }
    for list in lists {
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list).set_reclaims();
        disk.commit(aru).expect("a list can be deleted");
    }
    let bytes = device.to_bytes();
    let marked: Vec<u64> =
        (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&MARK)).map(|at| at as u64).collect();
    device.inject(Fault::fail(Call::Read).forever().when(move |offset, len_bytes| {
        marked.iter().any(|at| (offset..offset + len_bytes).contains(at))
    }));
    (device, disk, clock)
}

#[test]
fn a_deleted_list_that_cannot_be_read_does_not_block_other_removals() {
    let (device, disk, clock) = with_an_unreadable_removal(false);
    let live_bytes = || disk.stats().live_bytes;
    let strikes_of_a_minute = || {
        let before = device.struck_count();
        let steps = (0..).take_while(|_| disk.removal_step().expect("the disk takes writes"));
        assert!(steps.count() < 1_000, "the steps have no end");
        clock.advance(Duration::from_secs(60));
        device.struck_count() - before
    };
    assert!(strikes_of_a_minute() > 0, "all can be read");
    assert!((400_000..2_000_000).contains(&live_bytes()), "{} bytes are left", live_bytes());
    assert!(strikes_of_a_minute() > 0, "what cannot be read was not tried again");
    device.clear_faults();
    while disk.background_step().expect("the device works") {}
    disk.checkpoint().expect("the device works");
    assert!(live_bytes() < 64 << 10, "{} bytes are left", live_bytes());
}

#[test]
fn a_unit_is_refused_though_a_deleted_list_cannot_be_read_if_cleaning_gains_no_room() {
    let (device, disk, _) = with_an_unreadable_removal(true);
    let list = disk.allocate_list().expect("there is room");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    let write = |first_page| {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, first_page, vec![3; 16 * PAGE_SIZE]);
        disk.commit(aru)
    };
    let pages = disk.space().available_bytes / PAGE_SIZE as u64 * 9 / 10;
    (0..pages).step_by(16).for_each(|first| {
        write(first).expect("there is room");
    });
    // Segments are read in large parts, and nodes are shorter.
    device.inject(Fault::fail(Call::Read).forever().when(|_, len_bytes| len_bytes > 32 << 10));
    let mut rng = Rng::new(1);
    let refused = (0..10_000).find_map(|_| write(rng.below(pages / 16) * 16).err());
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
}

/// A volume whose table of versions takes several leaves, with a list that takes many.
fn with_a_long_table() -> (Arc<SimDevice>, Lid) {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = open(&device);
    let list = disk.allocate_list().expect("there is room");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    for index in 0..3000 {
        aru.put_record(list, index, vec![1; 200]);
    }
    disk.commit(aru).expect("there is room");
    for number in 0..300 {
        disk.snapshot(0, Some(&format!("snapshot-{number:0180}"))).expect("there is room");
    }
    disk.branch_off(View::HEAD, "branch").expect("there is room");
    disk.shut_down().expect("the device works");
    (device, list)
}

fn table(disk: &LogDisk) -> (Vec<Branch>, Vec<Snapshot>) {
    let table = disk.versions();
    (table.branches().cloned().collect(), table.snapshots().cloned().collect())
}

#[test]
fn a_change_of_versions_that_is_refused_half_way_leaves_the_table_as_it_was() {
    type Change = fn(&LogDisk, View) -> Result<(), Error>;
    let changes: [(&str, Change); 7] = [
        ("snapshot", |disk, _| disk.snapshot(0, None).map(drop)),
        ("named snapshot", |disk, _| disk.snapshot(1, Some("another")).map(drop)),
        ("branch", |disk, snapshot| disk.branch_off(snapshot, "other").map(drop)),
        ("name", |disk, snapshot| disk.rename(snapshot, "renamed")),
        ("hold", |disk, snapshot| disk.hold(snapshot, true)),
        ("deletion", |disk, snapshot| disk.delete(snapshot)),
        ("promotion", |disk, _| disk.promote(1)),
    ];
    let (device, list) = with_a_long_table();
    let before = table(&open(&device));
    let snapshot = before.1[150].view();
    let mut refused_kinds = 0;
    for (name, change) in changes {
        let mut refused_count = 0;
        for nth in 1.. {
            let disk = open_with_a_small_cache(&device);
            // What the table was read from is no longer in memory.
            for from in (0..3000).step_by(100) {
                disk.records(View::HEAD, list, from, 100).expect("the device works");
            }
            device.inject(Fault::fail(Call::Read).nth(nth));
            let answer = change(&disk, snapshot);
            device.clear_faults();
            match answer {
                Ok(()) => {
                    assert_ne!(table(&disk), before, "{name}, read {nth}");
                    break;
                }
                Err(Error::Io(_)) => refused_count += 1,
                Err(error) => panic!("{name}, read {nth}: {error}"),
            }
            assert_eq!(disk.read_only_reason(), None, "{name}, read {nth}");
            assert_eq!(table(&disk), before, "{name}, read {nth}");
            // It is durable as it was, together with what was done afterwards.
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(list, 0, vec![nth as u8; 200]);
            disk.commit(aru).expect("the device works");
            disk.flush(CommitSeq::LATEST).expect("the device works");
            drop(disk);
            assert_eq!(table(&open(&device)), before, "{name}, read {nth}");
        }
        refused_kinds += usize::from(refused_count > 0);
    }
    // Some find all that they need in memory.
    assert!(refused_kinds >= 4, "{refused_kinds} kinds of changes were refused");
}
