//! Backup superblocks at the end of the device: what is done when those at its beginning are lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Timestamp, Uuid};
use dendro_check::{
    Extent, FindingKind, Options, RebuildOptions, Volume, find_superblocks, rebuild, verify,
};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_format::layout::backup_area;
use dendro_format::{CHUNK_PAGES, Superblock, Value};
use dendro_logdisk::{FormatOptions, LogDisk, OnLoss, OpenOptions, format, invalidate};

use crate::common::numbered::{LIST, count, mark, put};

const SEGMENT_BYTES: u64 = 128 << 10;
const DEVICE_BYTES: u64 = 64 * SEGMENT_BYTES;

fn format_options(uuid: u8) -> FormatOptions {
    FormatOptions {
        segment_size_bytes: SEGMENT_BYTES,
        uuid: Uuid([uuid; 16]),
        has_backups: true,
        ..FormatOptions::default()
    }
}

fn new_device(len_bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(len_bytes));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&(Arc::clone(&device) as _), &format_options(7), &clock).expect("it is large enough");
    device
}

fn open_on(device: &Arc<MemoryDevice>, options: OpenOptions) -> Result<LogDisk, Error> {
    LogDisk::open(Arc::clone(device) as _, options, Arc::new(ManualClock::default()))
}

fn open(image: &[u8], options: OpenOptions) -> (Arc<MemoryDevice>, Result<LogDisk, Error>) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let disk = open_on(&device, options);
    (device, disk)
}

/// A volume with 30 records, of which the last 20 lie behind the checkpoint unless it was shut
/// down.
fn volume(is_shut_down: bool) -> Vec<u8> {
    let device = new_device(DEVICE_BYTES);
    let disk = open_on(&device, OpenOptions::default()).expect("it was formatted");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    disk.commit(aru).expect("there is room");
    (0..10).for_each(|index| put(&disk, index).expect("there is room"));
    disk.checkpoint().expect("the device works");
    (10..30).for_each(|index| put(&disk, index).expect("there is room"));
    disk.flush(CommitSeq::LATEST).expect("the device works");
    if is_shut_down {
        disk.shut_down().expect("the device works");
    }
    let image = device.to_bytes();
    drop(disk);
    image
}

/// The image without its superblock logs.
fn without_logs(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    image[..2 * SEGMENT_BYTES as usize].fill(0);
    image
}

fn backups(image: &[u8]) -> Vec<Superblock> {
    let area = backup_area(image.len() as u64).expect("it is long enough");
    let slots = image[area.start as usize..area.end as usize].chunks(PAGE_SIZE);
    slots.filter_map(|slot| Superblock::decode(slot).ok()).collect()
}

fn newest(image: &[u8]) -> Superblock {
    let found = find_superblocks(&MemoryDevice::from_bytes(image)).expect("there is a volume");
    found.current().superblock.clone()
}

#[test]
fn without_superblock_logs_nothing_is_written_before_the_owner_says_so() {
    for is_shut_down in [true, false] {
        let image = without_logs(&volume(is_shut_down));
        let (device, disk) = open(&image, OpenOptions::default());
        match disk {
            Err(Error::Lost(why)) => assert!(why.contains("the backup at its end"), "{why}"),
            other => panic!("{:?} records are there", other.map(|disk| count(&disk))),
        }
        assert!(device.to_bytes() == image, "something was written");
        let found = verify(&*device, &Options { data: true }).findings;
        assert!(found.iter().any(|one| one.kind == FindingKind::SuperblocksLost), "{found:?}");

        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        let (_, disk) = open(&image, read_only);
        assert_eq!(count(&disk.expect("a backup is there")), 30);

        let truncating = OpenOptions { on_loss: OnLoss::Truncate, ..OpenOptions::default() };
        let (device, disk) = open(&image, truncating);
        let disk = disk.expect("a backup is there");
        assert_eq!(count(&disk), 30);
        put(&disk, 30).expect("there is room");
        disk.shut_down().expect("the device works");
        drop(disk);
        let image = device.to_bytes();
        let (_, disk) = open(&image, OpenOptions::default());
        assert_eq!(count(&disk.expect("the logs are whole again")), 31);
        assert!(
            !verify(&*device, &Options { data: true })
                .findings
                .iter()
                .any(|one| { one.kind == FindingKind::SuperblocksLost })
        );
    }
}

#[test]
fn a_rebuild_finds_everything_from_a_backup() {
    for is_shut_down in [true, false] {
        let whole = volume(is_shut_down);
        let device = Arc::new(MemoryDevice::from_bytes(&without_logs(&whole)));
        let options = RebuildOptions { now: newest(&whole).written, ..RebuildOptions::default() };
        let report = rebuild(&*device, &options, &mut |_, _| ()).expect("a backup is there");
        assert_eq!(report.extent, Extent::Superblock, "{report:?}");
        assert!(report.superblocks_lost && !report.hash_key_lost && report.is_complete());
        let disk = open_on(&device, OpenOptions::default()).expect("it was rebuilt");
        assert_eq!(count(&disk), 30);
        assert_eq!(disk.recovery_notes(), [""; 0]);
    }
}

#[test]
fn a_backup_that_is_newer_than_what_the_logs_have_is_used_and_told() {
    let mut image = volume(true);
    let newest = newest(&image);
    assert!(newest.clean && backups(&image).contains(&newest));
    // The last superblock is lost, in a way that looks as if it had never been written.
    let at = newest.layout.superblock_offset(newest.seq) as usize;
    image[at..at + PAGE_SIZE].fill(0);
    let (_, disk) = open(&image, OpenOptions::default());
    let disk = disk.expect("nothing is lost");
    assert_eq!(count(&disk), 30);
    let notes = disk.recovery_notes();
    assert!(notes.len() == 1 && notes[0].contains("the backup at its end"), "{notes:?}");
}

#[test]
fn backups_are_rare_and_the_newest_states_a_clean_shutdown() {
    let device = new_device(DEVICE_BYTES);
    let made = backups(&device.to_bytes()).len();
    let disk = open_on(&device, OpenOptions::default()).expect("it was formatted");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    disk.commit(aru).expect("there is room");
    for index in 0..150 {
        put(&disk, index).expect("there is room");
        disk.checkpoint().expect("the device works");
    }
    // The first, and two for 150 checkpoints.
    let in_use = backups(&device.to_bytes());
    assert_eq!(in_use.len(), made + 3);
    assert!(newest(&device.to_bytes()).seq - in_use.iter().map(|it| it.seq).max().unwrap() < 64);
    disk.shut_down().expect("the device works");
    let image = device.to_bytes();
    assert!(backups(&image).contains(&newest(&image)) && newest(&image).clean);
}

#[test]
fn the_slots_are_written_in_turn() {
    let device = new_device(DEVICE_BYTES);
    for _ in 0..20 {
        let disk = open_on(&device, OpenOptions::default()).expect("it was formatted");
        disk.shut_down().expect("the device works");
    }
    let image = device.to_bytes();
    let mut numbers: Vec<u64> = backups(&image).iter().map(|backup| backup.seq).collect();
    assert_eq!(numbers.len(), 16);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), numbers.last()), (16, Some(&newest(&image).seq)));
}

#[test]
fn no_segment_reaches_into_the_backups_and_the_least_device_has_none() {
    for (segments, more, expected_segments, has_backups) in [
        (64, 0, 63, true),
        (64, 64 << 10, 64, true),
        (64, (64 << 10) - 1, 63, true),
        (17, 0, 16, true),
        (16, 0, 16, false),
        (16, 100 << 10, 16, true),
    ] {
        let device = new_device(segments * SEGMENT_BYTES + more);
        let image = device.to_bytes();
        let superblock = newest(&image);
        let what = format!("{segments} segments and {more} bytes");
        assert_eq!(superblock.layout.segment_count(), expected_segments, "{what}");
        assert_eq!(superblock.backup_area(image.len() as u64).is_some(), has_backups, "{what}");
        assert_eq!(backups(&image).len(), usize::from(has_backups), "{what}");
    }
}

#[test]
fn a_new_volume_leaves_no_backup_of_the_one_before() {
    let image = volume(true);
    let device = Arc::new(MemoryDevice::from_bytes(&image));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { has_backups: false, ..format_options(8) };
    format(&(Arc::clone(&device) as _), &options, &clock).expect("it is large enough");
    assert_eq!(backups(&device.to_bytes()), []);
    let device = MemoryDevice::from_bytes(&image);
    invalidate(&device).expect("the device works");
    assert!(find_superblocks(&device).is_err());
    // A backup of another volume is not taken for a superblock of this one.
    let mut mixed = volume(true);
    let other = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    format(&(Arc::clone(&other) as _), &format_options(9), &clock).expect("it is large enough");
    for _ in 0..20 {
        let disk = open_on(&other, OpenOptions::default()).expect("it was formatted");
        disk.shut_down().expect("the device works");
    }
    let area = backup_area(DEVICE_BYTES).expect("it is long enough");
    let area = area.start as usize..area.end as usize;
    mixed[area.clone()].copy_from_slice(&other.to_bytes()[area]);
    let (_, disk) = open(&mixed, OpenOptions::default());
    let disk = disk.expect("its superblock logs are whole");
    assert_eq!((count(&disk), disk.recovery_notes().len()), (30, 0));
}

#[test]
fn a_frozen_state_does_not_show_a_backup_of_a_later_moment() {
    let image = volume(true);
    let (_, disk) = open(&image, OpenOptions::default());
    let disk = disk.expect("it is whole");
    let frozen = disk.freeze().expect("the device works").expect("it is not frozen");
    let before = find_superblocks(&frozen).expect("it is a volume").current().clone();
    for _ in 0..70 {
        put(&disk, 30).expect("there is room");
        disk.checkpoint().expect("the device works");
    }
    let after = find_superblocks(&frozen).expect("it is a volume").current().clone();
    assert_eq!(before, after);
    let report = verify(&frozen, &Options { data: false });
    assert!(report.is_sound(), "{report}");
    assert!(frozen.is_held());
}

/// Where each page of each list lies, by the checkpoint and the log behind it.
fn places(image: &[u8]) -> BTreeMap<(u64, u64), u64> {
    let (device, disk) = open(image, OpenOptions::default());
    disk.expect("it is whole").shut_down().expect("the device works");
    let volume = Volume::open(&*device).expect("it is whole");
    let checkpoint = volume.checkpoint().expect("it is whole");
    let mut places = BTreeMap::new();
    for (key, value) in volume.entries(&checkpoint, None, None).map(|it| it.expect("it is whole")) {
        let Value::Chunk(chunk) = value else { continue };
        places.extend(chunk.iter().map(|(slot, page)| {
            ((key.list, key.index * CHUNK_PAGES + u64::from(slot)), page.addr.bytes())
        }));
    }
    places
}

/// Makes a list of 50 pages, and takes a checkpoint.
fn put_list(disk: &LogDisk) {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    for page in 0..50 {
        aru.write_pages(list, page, vec![mark(list.0 + page); PAGE_SIZE]);
    }
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("the device works");
}

#[test]
fn without_its_first_16_mib_a_volume_has_what_lies_beyond() {
    const LOST_BYTES: usize = 16 << 20;
    for is_shut_down in [true, false] {
        let device = new_device(48 << 20);
        let disk = open_on(&device, OpenOptions::default()).expect("it was formatted");
        (0..120).for_each(|_| put_list(&disk));
        put_list(&disk);
        disk.flush(CommitSeq::LATEST).expect("the device works");
        if is_shut_down {
            disk.shut_down().expect("the device works");
        }
        let mut image = device.to_bytes();
        drop(disk);
        let places = places(&image);
        image[..LOST_BYTES].fill(0);

        let (device, disk) = open(&image, OpenOptions::default());
        let why = disk.expect_err("much is lost").to_string();
        assert!(why.contains("the backup at its end"), "{why}");
        assert!(device.to_bytes() == image, "something was written");
        let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
        let report = rebuild(&*device, &options, &mut |_, _| ()).expect("a backup is there");
        assert!(report.superblocks_lost && !report.hash_key_lost);
        let truncating = OpenOptions { on_loss: OnLoss::Truncate, ..OpenOptions::default() };
        let disk = open_on(&device, truncating).expect("it was rebuilt");
        let (mut read_count, mut beyond_count) = (0, 0);
        for (&(list, index), &place) in &places {
            let mut page = vec![0; PAGE_SIZE];
            let read = disk.read_pages(View::HEAD, Lid(list), index, &mut page);
            if read.is_ok() && page.iter().any(|byte| *byte != 0) {
                assert!(page.iter().all(|byte| *byte == mark(list + index)), "{list}, {index}");
                read_count += 1;
            }
            beyond_count += u64::from(place >= LOST_BYTES as u64);
        }
        // The rest was named by nodes of the map that are lost.
        let what = format!("{read_count} of {beyond_count} pages beyond: {report:?}");
        assert!(beyond_count > 1000 && 10 * read_count >= 9 * beyond_count, "{what}");
    }
}
