//! Volumes that become longer and shorter.

use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

use dendro_base::{Rng, Uuid};
use dendro_check::{Options, find_superblocks, verify};
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Error, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_format::{Checkpoint, Superblock};
use dendro_logdisk::{FormatOptions, LogDisk, OnLoss, OpenOptions, format};

use crate::common::numbered::{LIST, count, mark, put};

use crate::common::clock;

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

fn try_to_delete(disk: &LogDisk, index: u64) -> Result<(), Error> {
    let mut aru = Aru::new(View::HEAD);
    aru.punch_pages(LIST, index, 1);
    aru.delete_record(LIST, index);
    disk.commit(aru).map(drop)
}

fn delete(disk: &LogDisk, index: u64) {
    try_to_delete(disk, index).expect("giving space back works");
}

fn background(disk: &LogDisk) {
    while disk.background_step().expect("the device works") {}
}

/// Makes the volume as short as possible, and says how many segments it has then.
fn shrink(disk: &LogDisk) -> Result<u32, Error> {
    let len_bytes = disk.smallest_len_bytes();
    disk.begin_shrinking(len_bytes, len_bytes + 16 * 4096)?;
    while disk.shrink_step()?.is_some() {}
    Ok(segment_count(disk))
}

/// The indices that are there, each with what was put.
fn indices(disk: &LogDisk, view: View) -> Vec<u64> {
    let records = disk.records(view, LIST, 0, usize::MAX).expect("the map is sound");
    let mut page = vec![0; PAGE_SIZE];
    let mut indices = Vec::new();
    for (index, _) in records {
        disk.read_pages(view, LIST, index, &mut page).expect("the block is sound");
        assert!(page.iter().all(|byte| *byte == mark(index)));
        indices.push(index);
    }
    indices
}

#[test]
fn a_volume_becomes_as_short_as_what_it_has_allows_whatever_lies_where() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let copies = 1 + rng.below(2) as u8;
        let has_backups = rng.chance(70);
        let len_bytes = (20 + rng.below(120)) * SEGMENT_BYTES + rng.below(32) * 4096;
        let device = Arc::new(SimDevice::new(len_bytes, seed));
        let options = format_options(copies, has_backups);
        format(&(Arc::clone(&device) as _), &options, &clock()).expect("it is large enough");
        let cache_size_bytes = [64 << 10, 256 << 10, 4 << 20][rng.below(3) as usize];
        let stream_bytes = [0, 512 << 10][rng.below(2) as usize];
        let options = OpenOptions { stream_bytes, cache_size_bytes, ..OpenOptions::default() };
        let open = || LogDisk::open(Arc::clone(&device) as _, options.clone(), clock());
        let disk = open().expect("there is a volume");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(LIST, ListHints::default());
        disk.commit(aru).expect("there is room");
        let full = rng.chance(50);
        let room = disk.space().available_bytes / PAGE_SIZE as u64;
        let most = if full { u64::MAX } else { rng.below(room + 1) };
        let mut snapshot = None;
        for turn in 0..1 + rng.below(3) {
            for _ in 0..most.min(4 * room) {
                if let Err(error) = put(&disk, rng.below(room)) {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                    break;
                }
            }
            if turn == 0 && rng.chance(30) {
                let made = disk.snapshot(0, Some("s")).ok();
                snapshot = made.map(|made| View { branch: 0, epoch: Some(made.epoch) });
            }
            for index in indices(&disk, View::HEAD) {
                if rng.chance(if full { 10 } else { 40 }) {
                    // What a snapshot sees takes space when it is deleted.
                    let _ = try_to_delete(&disk, index);
                }
            }
            if rng.chance(50) {
                background(&disk);
            }
        }
        let before = segment_count(&disk);
        let views = || snapshot.iter().copied().chain([View::HEAD]);
        let found = || views().map(|view| indices(&disk, view)).collect::<Vec<_>>();
        let stored = found();
        let least_bytes = disk.smallest_len_bytes();
        let segments = shrink(&disk);
        let of = format!("seed {seed}: {copies}, {before} segments, {least_bytes} bytes");
        let segments = segments.unwrap_or_else(|error| panic!("{of}: {error}"));
        assert_eq!(
            u64::from(segments) * SEGMENT_BYTES,
            least_bytes.min(u64::from(before) * SEGMENT_BYTES),
            "{of}"
        );
        assert!(device.len_bytes() <= least_bytes + 16 * 4096, "{of}");
        assert_eq!(found(), stored, "{of}");
        // It goes on, and nothing is as it was before behind the end.
        let _ = put(&disk, 0);
        background(&disk);
        if rng.chance(50) {
            disk.grow(len_bytes, len_bytes).expect("the device works");
            for index in 0..room / 2 {
                let _ = put(&disk, index);
            }
        }
        let stored = found();
        disk.shut_down().expect("the device works");
        assert_sound(&*device);
        if has_backups {
            assert!(find_superblocks(&without_logs(&device)).is_ok(), "{of}");
        }
        let disk = open().expect("there is a volume");
        assert_eq!(views().map(|view| indices(&disk, view)).collect::<Vec<_>>(), stored, "{of}");
    }
}

#[test]
fn a_volume_becomes_shorter_beside_a_writer_that_fills_what_is_freed() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let copies = 1 + rng.below(2) as u8;
        let len_bytes = (100 + rng.below(300)) * SEGMENT_BYTES;
        let device = Arc::new(SimDevice::new(len_bytes, seed));
        format(&(Arc::clone(&device) as _), &format_options(copies, true), &clock()).expect("fits");
        let disk = open(&device);
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(LIST, ListHints::default());
        disk.commit(aru).expect("there is room");
        let mut stored = 0;
        while disk.space().available_bytes > 8 * SEGMENT_BYTES {
            put(&disk, stored).expect("there is room");
            stored += 1;
        }
        // A little is left in each segment.
        let kept_part = 4 + rng.below(8);
        (0..stored).filter(|index| index % kept_part > 0).for_each(|index| delete(&disk, index));
        if rng.chance(50) {
            background(&disk);
        }
        let spare = [1, 3, 10][rng.below(3) as usize];
        let len_bytes = disk.smallest_len_bytes() + spare * SEGMENT_BYTES;
        disk.begin_shrinking(len_bytes, len_bytes + 16 * 4096).expect("it fits");
        let written = [8, 32, 64, 256][rng.below(4) as usize];
        let is_even = rng.chance(50);
        let mut steps = 0;
        while disk.shrink_step().expect("it fits").is_some() {
            steps += 1;
            assert!(steps < 1000, "seed {seed}");
            for number in 0..written {
                let number = if is_even { number } else { rng.below(stored / kept_part) };
                put(&disk, number % (stored / kept_part) * kept_part).expect("there is room");
            }
            if rng.chance(20) {
                background(&disk);
            }
        }
    }
}

#[test]
fn a_power_cut_while_it_shrinks_leaves_the_old_size_or_the_new_one_and_a_backup() {
    for copies in [1, 2] {
        let options = format_options(copies, true);
        let device = Arc::new(SimDevice::new(AFTER_BYTES, 3));
        format(&(Arc::clone(&device) as _), &options, &clock()).expect("it is large enough");
        let disk = open(&device);
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(LIST, ListHints::default());
        disk.commit(aru).expect("there is room");
        let stored = fill(&disk, 0);
        (100..stored).for_each(|index| delete(&disk, index));
        disk.flush(CommitSeq::LATEST).expect("the device works");
        let before = segment_count(&disk);
        device.start_recording();
        let len_bytes = disk.smallest_len_bytes() + SEGMENT_BYTES;
        disk.begin_shrinking(len_bytes, len_bytes + 16 * 4096).expect("it fits");
        let mut steps = 0;
        let mut next = 100;
        while let Some(progress) = disk.shrink_step().expect("it fits") {
            steps += 1;
            assert!(progress.left_count <= progress.segment_count && steps < 1000);
            // Clients go on, as far as what they write fits into the smaller volume.
            if put(&disk, next).is_ok() {
                next += 1;
            }
        }
        let shrunk_at = device.recorded_count();
        let after = segment_count(&disk);
        assert!(after < before && next > 100, "{before} {after} {next}");
        while put(&disk, next).is_ok() && next < 200 {
            next += 1;
            background(&disk);
        }
        drop(disk);
        let recording = device.take_recording().expect("one was begun");
        let mut rng = Rng::new(1);
        let mut seen = [0; 2];
        for event in 0..=recording.len() {
            for style in CrashStyle::ALL {
                let image = Arc::new(recording.image_at(event, &mut rng, style));
                let found = find_superblocks(&without_logs(&image));
                assert!(found.is_ok_and(|found| found.is_backup()), "{event} {style:?}");
                let disk = open(&image);
                let segments = segment_count(&disk);
                assert!(segments == before || segments == after, "{segments}");
                assert!(event < shrunk_at || segments == after);
                seen[usize::from(segments == after)] += 1;
                assert!(count(&disk) >= 100, "{event} {style:?}");
                disk.checkpoint().expect("the device works");
                assert_sound(&*image);
                if event % 8 == 0 {
                    // It begins again, or its device is cut off.
                    disk.begin_shrinking(len_bytes, len_bytes + 16 * 4096).expect("it fits");
                    while disk.shrink_step().expect("it fits").is_some() {}
                    assert_eq!(segment_count(&disk), after);
                    assert_eq!(image.len_bytes(), len_bytes + 16 * 4096);
                }
            }
        }
        assert!(seen[0] > 10 && seen[1] > 50, "{seen:?}");
    }
}

#[test]
fn what_does_not_fit_is_said_before_and_the_smaller_volume_counts_from_the_start() {
    let (_, disk) = volume(&format_options(1, true));
    (0..200).for_each(|index| put(&disk, index).expect("there is room"));
    let least_bytes = disk.smallest_len_bytes();
    let too_small = least_bytes - SEGMENT_BYTES;
    let refused = disk.begin_shrinking(too_small, too_small + 16 * 4096);
    assert!(
        matches!(refused, Err(Error::NoSpace { needed_bytes, .. }) if needed_bytes == least_bytes),
        "{refused:?}"
    );
    let refused = disk.begin_shrinking(SEGMENT_BYTES, BEFORE_BYTES);
    assert!(matches!(&refused, Err(Error::Io(why)) if why.contains("fewer than 16")));
    let before = disk.space();
    disk.begin_shrinking(least_bytes, least_bytes + 16 * 4096).expect("it fits");
    let refused = disk.begin_shrinking(least_bytes, least_bytes + 16 * 4096);
    assert!(matches!(&refused, Err(Error::Io(why)) if why.contains("being made smaller")));
    let now = disk.space();
    assert!(now.capacity_bytes < before.capacity_bytes && now.available_bytes < 2 * SEGMENT_BYTES);
    let stored = fill(&disk, 200);
    disk.stop_shrinking();
    assert_eq!(disk.space().capacity_bytes, before.capacity_bytes);
    assert!(fill(&disk, stored) > stored + 50);
    assert_eq!(disk.stats().segments.retired, 0);
}

#[test]
fn a_damaged_block_behind_the_new_end_leaves_the_volume_as_it_was() {
    let (device, disk) = volume(&format_options(1, true));
    disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
    let stored = fill(&disk, 0);
    disk.checkpoint().expect("the device works");
    let addr_of = |index| disk.page_addr(View::HEAD, LIST, index).expect("the map is sound");
    let last = (0..stored).max_by_key(|index| addr_of(*index)).expect("there are pages");
    let place = addr_of(last).expect("it has a block");
    device.corrupt(place..place + 4096, 1);
    (0..stored).filter(|index| *index != last && index % 4 > 0).for_each(|it| delete(&disk, it));
    let before = (disk.space().capacity_bytes, segment_count(&disk), device.len_bytes());
    let refused = shrink(&disk);
    assert!(
        matches!(&refused, Err(Error::Corrupted(why)) if why.contains("cannot be read")),
        "{refused:?}"
    );
    assert_eq!((disk.space().capacity_bytes, segment_count(&disk), device.len_bytes()), before);
    // Once the file is deleted, it goes.
    delete(&disk, last);
    assert!(shrink(&disk).expect("it fits") < before.1);
    disk.shut_down().expect("the device works");
    assert_sound(&*device);
}

#[test]
fn a_checkpoint_of_the_longer_volume_does_not_take_the_place_of_one_that_is_damaged() {
    let (device, disk) = volume(&format_options(2, false));
    disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
    // Until the map stream fills a segment whose mirror lies behind what is to be the end.
    let mirror = || disk.superblock().checkpoint_mirror.map_or(0, |at| at.bytes());
    while mirror() < BEFORE_BYTES {
        put(&disk, 0).expect("there is room");
        disk.checkpoint().expect("the device works");
    }
    let count = shrink(&disk).expect("it fits");
    drop(disk);
    let found = find_superblocks(&*device).expect("there are some");
    let all = || found.all().iter().map(|it| &it.superblock);
    let is_of_longer = |it: &Superblock| {
        let mut bytes = vec![0; it.checkpoint_len_bytes as usize];
        let is_there = device.read_at(it.checkpoint_addr.bytes(), &mut bytes).is_ok();
        let found = is_there.then(|| Checkpoint::decode(&bytes, &it.uuid).ok()).flatten();
        found.is_some_and(|of| of.mirrors.iter().any(|(_, mirror)| mirror.0 >= count))
    };
    assert!(all().any(is_of_longer), "one has mirrors behind the end");
    for superblock in all().filter(|it| !is_of_longer(it)).collect::<Vec<_>>() {
        for addr in [Some(superblock.checkpoint_addr), superblock.checkpoint_mirror] {
            let place = addr.map_or(0..0, |at| at.bytes()..at.bytes() + 64);
            if place.end <= device.len_bytes() {
                device.corrupt(place, 1);
            }
        }
    }
    for on_loss in [OnLoss::Stop, OnLoss::Truncate] {
        let opened = open_with(&device, OpenOptions { on_loss, ..OpenOptions::default() });
        assert!(matches!(&opened, Err(Error::Corrupted(_) | Error::Lost(_))), "{opened:?}");
    }
}

#[test]
fn what_lies_in_a_spare_behind_the_new_end_is_moved() {
    let (device, disk) = volume(&format_options(1, true));
    disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
    let mut stored = 0;
    while disk.space().available_bytes > 8 * SEGMENT_BYTES {
        put(&disk, stored).expect("there is room");
        stored += 1;
    }
    // One segment at the front becomes clean. It cannot be written, so what is written to it lies
    // in the next clean one, which is at the end.
    let segment_of = |index| {
        let addr = disk.page_addr(View::HEAD, LIST, index).expect("the map is sound");
        addr.map(|addr| addr / SEGMENT_BYTES)
    };
    let bad = segment_of(100).expect("it has a block");
    let inside: Vec<_> = (0..stored).filter(|index| segment_of(*index) == Some(bad)).collect();
    inside.iter().for_each(|index| delete(&disk, *index));
    for _ in 0..3 {
        disk.checkpoint().expect("the device works");
    }
    let range = bad * SEGMENT_BYTES..(bad + 1) * SEGMENT_BYTES;
    device.inject(Fault::fail(Call::Write).within(range).forever());
    let mut next = stored;
    while disk.retired_segment_count() == 0 {
        put(&disk, next).expect("there is room");
        disk.flush(CommitSeq::LATEST).expect("the device works");
        next += 1;
    }
    let spares = |disk: &LogDisk| {
        let retired = disk.superblock().retired;
        retired.into_iter().filter_map(|one| one.moved.map(|(_, spare)| spare.0)).collect()
    };
    let spared: Vec<u32> = spares(&disk);
    (0..stored).filter(|index| index % 8 > 0).for_each(|index| delete(&disk, index));
    let found = indices(&disk, View::HEAD);
    let segments = shrink(&disk).expect("it fits");
    assert!(bad < 10 && spared.iter().all(|spare| *spare >= segments), "{bad} {spared:?}");
    assert_eq!(spares(&disk), Vec::<u32>::new());
    assert_eq!((indices(&disk, View::HEAD), disk.retired_segment_count()), (found.clone(), 1));
    drop(disk);
    let disk = open(&device);
    assert_eq!(indices(&disk, View::HEAD), found);
    disk.shut_down().expect("the device works");
    assert_sound(&*device);
}

#[test]
fn a_volume_grows_by_itself_up_to_its_limit_when_it_gets_full() {
    for works_ahead in [true, false] {
        let max_len_bytes = 100 * SEGMENT_BYTES + 5000;
        let options = FormatOptions { max_len_bytes, ..format_options(1, true) };
        let (device, disk) = volume(&options);
        let mut stored = 0;
        while put(&disk, stored).is_ok() {
            stored += 1;
            if works_ahead {
                background(&disk);
            }
        }
        assert_eq!(device.len_bytes(), 100 * SEGMENT_BYTES);
        assert_eq!((segment_count(&disk), count(&disk)), (99, stored));
        assert!(stored > 60 * SEGMENT_BYTES / PAGE_SIZE as u64, "{stored}");
        disk.shut_down().expect("the device works");
        assert_sound(&*device);
    }
}

#[test]
fn a_volume_that_cannot_grow_by_itself_is_full_and_goes_on() {
    let options = FormatOptions { max_len_bytes: AFTER_BYTES, ..format_options(1, true) };
    let (device, disk) = volume(&options);
    device.inject(
        Fault::fail(Call::Write).within(BEFORE_BYTES..AFTER_BYTES).os_error(ENOSPC).forever(),
    );
    let stored = fill(&disk, 0);
    assert_eq!((segment_count(&disk), device.len_bytes()), (23, BEFORE_BYTES));
    background(&disk);
    device.clear_faults();
    assert!(fill(&disk, stored) > stored);
    assert_eq!(device.len_bytes(), AFTER_BYTES);
    disk.shut_down().expect("the device works");
    assert_sound(&*device);
}

/// A device during whose slow work another thread asks for the superblock.
struct Asked {
    below: SimDevice,
    disk: Mutex<Weak<LogDisk>>,
    answer_count: Mutex<u32>,
}

impl Asked {
    #[allow(
        clippy::disallowed_methods,
        reason = "a thread that is stuck must not hold up the test"
    )]
    fn ask(&self) {
        let Some(disk) = self.disk.lock().expect("no thread panics").upgrade() else { return };
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || answer.send(disk.superblock().seq));
        answered.recv_timeout(Duration::from_secs(20)).expect("nobody waits for the device");
        *self.answer_count.lock().expect("no thread panics") += 1;
    }
}

impl Device for Asked {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.ask();
        self.below.write_at(offset, bytes)
    }

    fn flush(&self) -> dendro_device::Result<()> {
        self.ask();
        self.below.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.below.discard(offset, len_bytes)
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> dendro_device::Result<()> {
        self.ask();
        self.below.extend(len_bytes, tail, allocates)
    }

    fn truncate(&self, len_bytes: u64) -> dendro_device::Result<()> {
        self.ask();
        self.below.truncate(len_bytes)
    }
}

#[test]
fn who_asks_for_the_superblock_waits_for_no_device() {
    let below = SimDevice::new(AFTER_BYTES, 3);
    let device = Arc::new(Asked { below, disk: Mutex::default(), answer_count: Mutex::default() });
    format(&(Arc::clone(&device) as _), &format_options(2, true), &clock()).expect("it fits");
    let disk = LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock());
    let disk = Arc::new(disk.expect("there is a volume"));
    *device.disk.lock().expect("no thread panics") = Arc::downgrade(&disk);
    let device_len_bytes = BEFORE_BYTES + 16 * 4096;
    disk.begin_shrinking(BEFORE_BYTES, device_len_bytes).expect("it is empty");
    while disk.shrink_step().expect("it fits").is_some() {}
    assert_eq!(device.len_bytes(), device_len_bytes);
    disk.grow(AFTER_BYTES, AFTER_BYTES).expect("the device works");
    assert_eq!(u64::from(segment_count(&disk)), (AFTER_BYTES - 16 * 4096) / SEGMENT_BYTES);
    assert!(*device.answer_count.lock().expect("no thread panics") > 5);
}
