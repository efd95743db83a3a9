//! Volumes that become longer.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng, Uuid};
use dendro_check::{Options, find_superblocks, verify};
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Error, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

#[path = "common/numbered.rs"]
mod numbered;

use numbered::{LIST, count, put};

const SEGMENT_BYTES: u64 = 128 << 10;
const BEFORE_BYTES: u64 = 24 * SEGMENT_BYTES;
const AFTER_BYTES: u64 = 40 * SEGMENT_BYTES;
const ENOSPC: i32 = 28;

fn format_options(metadata_copies: u8, has_backups: bool) -> FormatOptions {
    FormatOptions {
        segment_size_bytes: SEGMENT_BYTES,
        uuid: Uuid([7; 16]),
        has_backups,
        metadata_copies,
        ..FormatOptions::default()
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

fn open(device: &Arc<SimDevice>) -> LogDisk {
    open_with(device, OpenOptions::default()).expect("there is a volume")
}

fn open_with(device: &Arc<SimDevice>, options: OpenOptions) -> Result<LogDisk, Error> {
    let options = OpenOptions { cache_size_bytes: 256 << 10, ..options };
    LogDisk::open(Arc::clone(device) as _, options, clock())
}

/// A volume with a list.
fn volume(options: &FormatOptions) -> (Arc<SimDevice>, LogDisk) {
    let device = Arc::new(SimDevice::new(BEFORE_BYTES, 3));
    format(&(Arc::clone(&device) as _), options, &clock()).expect("it is large enough");
    let disk = open(&device);
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    disk.commit(aru).expect("there is room");
    (device, disk)
}

/// Puts until there is no room, from `first` on; returns the index that did not fit.
fn fill(disk: &LogDisk, first: u64) -> u64 {
    for index in first.. {
        match put(disk, index) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => return index,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a volume becomes full")
}

fn segment_count(disk: &LogDisk) -> u32 {
    disk.superblock().layout.segment_count()
}

fn assert_sound(device: &dyn Device) {
    let report = verify(device, &Options { data: true });
    assert!(report.is_sound(), "{report}");
}

/// The image without its superblock logs.
fn without_logs(device: &SimDevice) -> MemoryDevice {
    let mut image = device.to_bytes();
    image[..2 * SEGMENT_BYTES as usize].fill(0);
    MemoryDevice::from_bytes(&image)
}

#[test]
fn a_full_volume_takes_more_once_it_has_grown() {
    for (copies, has_backups) in [(1, true), (2, true), (1, false)] {
        let (device, disk) = volume(&format_options(copies, has_backups));
        let mut stored = fill(&disk, 0);
        let mut capacity_bytes = disk.space().capacity_bytes;
        for len_bytes in [30 * SEGMENT_BYTES + 4096, AFTER_BYTES, 400 * SEGMENT_BYTES] {
            disk.grow(len_bytes, len_bytes).expect("the device works");
            assert_eq!(device.len_bytes(), len_bytes);
            let behind_bytes = if has_backups { 16 * 4096 } else { 0 };
            assert_eq!(u64::from(segment_count(&disk)), (len_bytes - behind_bytes) / SEGMENT_BYTES);
            let grown_bytes = disk.space().capacity_bytes;
            assert!(grown_bytes > capacity_bytes, "{grown_bytes}");
            let more = fill(&disk, stored);
            assert!(more > stored + (grown_bytes - capacity_bytes) / PAGE_SIZE as u64 / 2);
            (stored, capacity_bytes) = (more, grown_bytes);
        }
        assert_eq!(count(&disk), stored);
        disk.shut_down().expect("the device works");
        assert_sound(&*device);
        let again = open(&device);
        assert_eq!(again.space().capacity_bytes, capacity_bytes);
        assert_eq!(count(&again), stored);
    }
}

#[test]
fn a_power_cut_while_it_grows_leaves_the_old_size_or_the_new_one_and_a_backup() {
    for copies in [1, 2] {
        let (device, disk) = volume(&format_options(copies, true));
        (0..100).for_each(|index| put(&disk, index).expect("there is room"));
        disk.flush(CommitSeq::LATEST).expect("the device works");
        (100..120).for_each(|index| put(&disk, index).expect("there is room"));
        let before = segment_count(&disk);
        device.start_recording();
        disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
        let grown_at = device.recorded_count();
        let after = segment_count(&disk);
        assert!(before < 24 && after == 39, "{before} {after}");
        for index in 120..500 {
            put(&disk, index).expect("there is room");
            while disk.background_step().expect("the device works") {}
        }
        drop(disk);
        let recording = device.take_recording().expect("one was begun");
        let mut rng = Rng::new(1);
        let mut seen = [0; 2];
        for event in (0..=recording.len()).filter(|event| *event <= grown_at + 8 || event % 3 == 0)
        {
            for style in CrashStyle::ALL {
                let image = Arc::new(recording.image_at(event, &mut rng, style));
                let found = find_superblocks(&without_logs(&image));
                assert!(found.is_ok_and(|found| found.is_backup()), "{event} {style:?}");
                let disk = open(&image);
                let segments = segment_count(&disk);
                assert!(segments == before || segments == after, "{segments}");
                assert!(event < grown_at || segments == after);
                seen[usize::from(segments == after)] += 1;
                assert!(count(&disk) >= 100, "{event} {style:?}");
                disk.checkpoint().expect("the device works");
                assert_sound(&*image);
                // It goes on, whatever its size is.
                disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
                assert_eq!(segment_count(&disk), after);
            }
        }
        assert!(seen[0] > 10 && seen[1] > 50, "{seen:?}");
    }
}

#[test]
fn no_damaged_superblock_hides_what_lies_in_new_segments() {
    let (device, disk) = volume(&format_options(1, false));
    let mut stored = fill(&disk, 0);
    disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
    for _ in 0..100 {
        put(&disk, stored).expect("there is room");
        stored += 1;
    }
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let superblock = disk.superblock();
    drop(disk);
    let place = superblock.layout.superblock_offset(superblock.seq);
    device.corrupt(place..place + 4096, 1);
    let disk = open(&device);
    assert_eq!((count(&disk), segment_count(&disk)), (stored, 40));
}

#[test]
fn a_block_device_that_became_longer_is_taken_as_far_as_is_wanted() {
    let (device, disk) = volume(&format_options(1, true));
    put(&disk, 0).expect("there is room");
    // Somebody else made it longer; nothing is at its new end.
    device.extend(AFTER_BYTES, &[0; 16 * 4096], false).expect("the device works");
    disk.grow(30 * SEGMENT_BYTES, AFTER_BYTES).expect("the device works");
    assert_eq!(segment_count(&disk), 30);
    assert!(find_superblocks(&without_logs(&device)).is_ok());
    disk.grow(30 * SEGMENT_BYTES, AFTER_BYTES).expect("nothing is to be done");
    disk.grow(u64::MAX, AFTER_BYTES).expect("the device works");
    assert_eq!(segment_count(&disk), 39);
    disk.shut_down().expect("the device works");
    assert_sound(&*device);
}

#[test]
fn what_cannot_grow_is_refused_and_goes_on() {
    let (device, disk) = volume(&format_options(1, true));
    let before = segment_count(&disk);
    device.inject(Fault::fail(Call::Write).os_error(ENOSPC));
    let refused = disk.grow(AFTER_BYTES, AFTER_BYTES);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    device.clear_faults();
    let refused = disk.grow(1 << 60, BEFORE_BYTES).map(|()| segment_count(&disk));
    assert_eq!(refused, Ok(before), "the device is not longer");
    let refused = disk.grow(1 << 60, 1 << 60);
    assert!(matches!(&refused, Err(Error::Io(why)) if why.contains("too many")), "{refused:?}");
    put(&disk, 0).expect("there is room");
    disk.shut_down().expect("the device works");
    let reading = open_with(&device, OpenOptions { read_only: true, ..OpenOptions::default() });
    let refused = reading.expect("there is a volume").grow(AFTER_BYTES, AFTER_BYTES);
    assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
    // A device of a fixed length.
    let fixed = Arc::new(MemoryDevice::from_bytes(&device.to_bytes()));
    let disk = LogDisk::open(Arc::clone(&fixed) as _, OpenOptions::default(), clock());
    let refused = disk.expect("there is a volume").grow(AFTER_BYTES, AFTER_BYTES);
    assert!(
        matches!(&refused, Err(Error::Io(why)) if why.contains("cannot be made")),
        "{refused:?}"
    );
    // One that was cut off.
    device.truncate(BEFORE_BYTES / 2).expect("the device works");
    let refused = open_with(&device, OpenOptions::default()).map(drop);
    assert!(matches!(&refused, Err(Error::Corrupted(why)) if why.contains("was cut off")));
}
