//! Volumes that keep nodes of the map and checkpoints twice: what is damaged in one place is read
//! in the other, and made whole again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use dendro_base::{Rng, Timestamp};
use dendro_check::{
    Extent, Finding, FindingKind, Options, Rebuild, RebuildOptions, Report, Volume, rebuild, verify,
};
use dendro_device::sim::{Call, CrashStyle, EventKind, Fault, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_format::retired::Retired;
use dendro_format::superblock::{INCOMPATIBLE_MIRRORS, INCOMPATIBLE_RETIRED};
use dendro_format::{Addr, Record, SegmentNo, Superblock};
use dendro_logdisk::external::{QuestionError, Released, SegmentStatus, SummaryCursor};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, Part, Scrub, format};

use crate::common::{clock, new_list};

const SEGMENT_BYTES: u64 = 128 << 10;
const DEVICE_BYTES: u64 = 64 * SEGMENT_BYTES;
const SECTOR_BYTES: usize = 512;

fn make(device: &Arc<dyn Device>) {
    let options = FormatOptions {
        segment_size_bytes: SEGMENT_BYTES,
        metadata_copies: 2,
        hash_key: [3; 16],
        ..FormatOptions::default()
    };
    format(device, &options, &clock()).expect("the device is large enough");
}

fn open(device: &Arc<dyn Device>) -> Result<LogDisk, Error> {
    LogDisk::open(Arc::clone(device), OpenOptions::default(), clock())
}

fn device_of(image: &[u8]) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::from_bytes(image))
}

fn put(disk: &LogDisk, list: Lid, rng: &mut Rng) {
    let mut aru = Aru::new(View::HEAD);
    for _ in 0..4 {
        let index = rng.below(2000);
        aru.put_record(list, index, vec![index as u8; 1 + rng.below(200) as usize]);
    }
    let byte = 1 + rng.below(250) as u8;
    aru.write_pages(list, 3 * rng.below(600), vec![byte; PAGE_SIZE]);
    disk.commit(aru).expect("there is room");
}

/// A volume with a map of several levels and nodes of several checkpoints, with a snapshot.
fn fill(disk: &LogDisk) {
    let mut rng = Rng::new(7);
    let lists: Vec<Lid> = (0..3).map(|_| new_list(disk)).collect();
    for step in 0..240 {
        put(disk, lists[step % lists.len()], &mut rng);
        if step == 100 {
            disk.snapshot(0, None).expect("there is room");
        }
        if step % 60 == 59 {
            disk.checkpoint().expect("the device works");
        }
    }
}

/// As it is left by a clean shutdown, or by a crash, with log behind the checkpoint.
fn image(is_shut_down: bool) -> Vec<u8> {
    let memory = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let device: Arc<dyn Device> = Arc::clone(&memory) as _;
    make(&device);
    let disk = open(&device).expect("it was formatted");
    fill(&disk);
    if is_shut_down {
        disk.shut_down().expect("the device works");
    } else {
        put(&disk, Lid::FIRST, &mut Rng::new(8));
        disk.flush(CommitSeq::LATEST).expect("the device works");
    }
    let image = memory.to_bytes();
    drop(disk);
    image
}

fn contents(device: &Arc<dyn Device>) -> ModelVersions {
    ModelVersions::read_from(&open(device).expect("it opens")).expect("it can be read")
}

fn verified(device: &dyn Device) -> Report {
    verify(device, &Options { data: true })
}

/// Where nodes of the map and the checkpoint lie: in their places, and in the mirrors.
fn copies(image: &[u8]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let device = MemoryDevice::from_bytes(image);
    let volume = Volume::open(&device).expect("it is sound");
    let superblock = volume.superblock();
    let checkpoint = volume.checkpoint().expect("it is sound");
    let range = |start: u64, len_bytes: u32| start as usize..start as usize + len_bytes as usize;
    let len_bytes = superblock.checkpoint_len_bytes;
    let mirror = superblock.checkpoint_mirror.expect("there are two copies");
    let mut first = vec![range(superblock.checkpoint_addr.bytes(), len_bytes)];
    let mut second = vec![range(mirror.bytes(), len_bytes)];
    for node in volume.nodes(&checkpoint) {
        let place = node.expect("it is sound").place;
        let mirror = volume.mirror_of(place.addr).expect("there are two copies");
        first.push(range(place.addr.bytes(), place.len_bytes));
        second.push(range(mirror.bytes(), place.len_bytes));
    }
    (first, second)
}

fn scrub(disk: &LogDisk) -> u64 {
    let mut scrub = Scrub::new();
    while disk.scrub_step(&mut scrub).expect("nothing is lost") {}
    scrub.progress().found_count
}

#[test]
fn no_lost_sector_of_the_map_or_of_a_checkpoint_costs_anything() {
    for is_shut_down in [true, false] {
        let whole = image(is_shut_down);
        let expected = contents(&device_of(&whole));
        let (first, second) = copies(&whole);
        assert!(first.len() > 15, "{} nodes", first.len());
        let far = first.iter().zip(&second).map(|(one, other)| one.start.abs_diff(other.start));
        assert!(far.min() >= Some(DEVICE_BYTES as usize / 4));
        for (number, place) in first.iter().chain(&second).enumerate() {
            for start in
                (place.start / SECTOR_BYTES * SECTOR_BYTES..place.end).step_by(SECTOR_BYTES)
            {
                let what = format!("copy {number}, sector at byte {start}");
                let mut damaged = whole.clone();
                damaged[start..start + SECTOR_BYTES].fill(0xa5);
                let device = device_of(&damaged);
                let disk = open(&device).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(disk.recovery_notes(), [""; 0], "{what}");
                let found = ModelVersions::read_from(&disk);
                let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(found == expected, "{what}: {:?}", found.diff(&expected));
                let places = disk.damage().places();
                let is_harmless = |part| matches!(part, Part::MirroredNode | Part::Checkpoint);
                assert!(places.iter().all(|one| is_harmless(one.part)), "{what}: {places:?}");
                // One sector of each copy is enough to see how it is mended.
                if start > place.start {
                    continue;
                }
                scrub(&disk);
                disk.shut_down().unwrap_or_else(|error| panic!("{what}: {error}"));
                drop(disk);
                let report = verified(&*device);
                assert!(report.is_sound(), "{what}: {report}");
                assert!(contents(&device) == expected, "{what}");
            }
        }
    }
}

#[test]
fn a_check_tells_of_each_damaged_copy_and_a_scrub_finds_it() {
    let whole = image(true);
    assert!(verified(&MemoryDevice::from_bytes(&whole)).is_sound());
    let (first, second) = copies(&whole);
    for (number, place) in first.iter().chain(&second).enumerate() {
        let is_checkpoint = number % first.len() == 0;
        let kind = if is_checkpoint { FindingKind::CheckpointCopy } else { FindingKind::NodeCopy };
        let mut damaged = whole.clone();
        damaged[place.start + 20] ^= 4;
        let device = device_of(&damaged);
        let report = verified(&*device);
        let kinds: Vec<_> = report.findings.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [kind], "copy {number}: {report}");
        // A mount replaces the checkpoint only when it ends.
        let disk = open(&device).expect("nothing is lost");
        assert_eq!(scrub(&disk), 1, "copy {number}");
        assert_eq!(scrub(&disk), u64::from(is_checkpoint), "copy {number}, mended");
        disk.checkpoint().expect("the device works");
        drop(disk);
        if !is_checkpoint {
            let report = verified(&*device);
            let is_bad = |of: FindingKind| report.findings.iter().any(|one| one.kind == of);
            assert!(!is_bad(kind), "copy {number}: {report}");
        }
    }
}

#[test]
fn any_segment_of_the_map_or_all_its_mirrors_may_be_lost() {
    let whole = image(true);
    let expected = contents(&device_of(&whole));
    let (first, second) = copies(&whole);
    let segments = |places: &[Range<usize>]| -> BTreeSet<usize> {
        places.iter().map(|place| place.start / SEGMENT_BYTES as usize).collect()
    };
    for lost in [segments(&first), segments(&second)] {
        let mut damaged = whole.clone();
        for segment in lost {
            let start = segment * SEGMENT_BYTES as usize;
            damaged[start..start + SEGMENT_BYTES as usize].fill(0);
        }
        let device = device_of(&damaged);
        assert!(contents(&device) == expected);
        let disk = open(&device).expect("nothing is lost");
        assert!(scrub(&disk) > 0);
        disk.shut_down().expect("the device works");
        let report = verified(&*device);
        assert!(report.is_sound(), "{report}");
    }
}

#[test]
fn a_node_that_cannot_be_read_is_read_in_the_mirror() {
    let whole = image(true);
    let expected = contents(&device_of(&whole));
    let (first, second) = copies(&whole);
    for places in [first, second] {
        let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
        sim.write_at(0, &whole).expect("the device works");
        sim.flush().expect("the device works");
        let is_bad = move |offset: u64, len_bytes: u64| {
            let end = offset + len_bytes;
            places.iter().any(|bad| offset < bad.end as u64 && (bad.start as u64) < end)
        };
        sim.inject(Fault::fail(Call::Read).forever().when(is_bad));
        let device: Arc<dyn Device> = sim;
        assert!(contents(&device) == expected);
    }
}

#[test]
fn a_checkpoint_names_no_mirror_that_cannot_be_written() {
    let whole = image(true);
    let volume = MemoryDevice::from_bytes(&whole);
    let checkpoint = Volume::open(&volume).expect("it is sound").checkpoint().expect("it is sound");
    // The log and the map can be continued; nothing can be written to the mirror, or to a spare.
    let is_written = [checkpoint.log.segment, checkpoint.next_segment, checkpoint.map.segment];
    let is_bad = move |offset: u64, _| {
        let segment = (offset / SEGMENT_BYTES) as u32;
        segment > 1 && is_written.iter().all(|it| it.0 != segment)
    };
    let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
    sim.write_at(0, &whole).expect("the device works");
    sim.flush().expect("the device works");
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let disk = open(&device).expect("it is sound");
    sim.inject(Fault::fail(Call::Write).forever().when(is_bad));
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(Lid::FIRST, 1, vec![1; 100]);
    disk.commit(aru).expect("there is room");
    let mirrors_before = disk.stats().segments.mirror;
    disk.checkpoint().expect("one copy can be written");
    assert_eq!(disk.stats().segments.mirror, mirrors_before - 1);
    drop(disk);
    sim.clear_faults();
    let report = verified(&*sim);
    assert!(report.is_sound(), "{report}");
    let superblock = Volume::open(&*sim).expect("it is sound").superblock().clone();
    assert_eq!(superblock.checkpoint_mirror, None);
    let disk = open(&device).expect("it is sound");
    let found = disk.record(View::HEAD, Lid::FIRST, 1).expect("it can be read");
    assert_eq!(found.as_deref(), Some(&[1; 100][..]));
}

#[test]
fn mirrors_become_clean_with_their_segments() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    make(&memory);
    let disk = open(&memory).expect("it was formatted");
    fill(&disk);
    let full = disk.stats().segments;
    assert!(full.mirror > 1, "{full:?}");
    let facts = disk.segments(0, usize::MAX);
    let mirrors = facts.iter().filter(|facts| facts.status == SegmentStatus::Mirror);
    let mirrors: Vec<u32> = mirrors.map(|facts| facts.number).collect();
    assert_eq!(mirrors.len(), full.mirror as usize);
    for mirror in mirrors {
        let blocks = disk.segment_blocks(mirror, SummaryCursor::default(), 10);
        assert!(matches!(blocks, Err(QuestionError::Mirror(_))), "{blocks:?}");
        assert_eq!(disk.release(&[mirror]).expect("the device works"), [Released::Open]);
    }
    assert_eq!(disk.stats().segments, full);
    let snapshots: Vec<View> = disk.versions().snapshots().map(|it| it.view()).collect();
    let mut aru = Aru::new(View::HEAD);
    for number in 0..3 {
        aru.delete_list(Lid(Lid::FIRST.0 + number));
    }
    disk.commit(aru).expect("there is room");
    snapshots.into_iter().for_each(|view| disk.delete(view).expect("it is not held"));
    for _ in 0..5 {
        while disk.background_step().expect("the device works") {}
        disk.checkpoint().expect("the device works");
        put_in_new_list(&disk);
    }
    let counts = disk.stats().segments;
    assert!(counts.mirror <= full.mirror && counts.clean > full.clean, "{full:?}, {counts:?}");
    // They are the same after a mount.
    disk.shut_down().expect("the device works");
    let before = disk.stats().segments;
    drop(disk);
    let disk = open(&memory).expect("it is sound");
    let after = disk.stats().segments;
    assert!(after.mirror >= 1 && after.mirror <= before.mirror, "{before:?}, {after:?}");
    assert!(after.clean >= before.clean, "{before:?}, {after:?}");
}

fn put_in_new_list(disk: &LogDisk) {
    let list = new_list(disk);
    put(disk, list, &mut Rng::new(9));
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(list);
    disk.commit(aru).expect("there is room");
}

#[test]
fn a_full_volume_can_be_emptied() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    make(&memory);
    let disk = open(&memory).expect("it was formatted");
    let mut rng = Rng::new(3);
    let mut lists = Vec::new();
    'full: loop {
        let list = disk.allocate_list().expect("the disk is writable");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        if disk.commit(aru).is_err() {
            break;
        }
        lists.push(list);
        for _ in 0..40 {
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(list, rng.below(1000), vec![7; 200]);
            aru.write_pages(list, 32 * rng.below(1000), vec![7; 300]);
            match disk.commit(aru) {
                Ok(_) => {}
                Err(Error::NoSpace { .. }) => break 'full,
                Err(error) => panic!("{error}"),
            }
        }
    }
    // What was promised to be free is, and each node is still kept twice.
    disk.checkpoint().expect("there is room for it");
    disk.shut_down().expect("the device works");
    drop(disk);
    let report = verified(&*memory);
    assert!(report.is_sound(), "{report}");
    let volume = Volume::open(&*memory).expect("it is sound");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let nodes = volume.nodes(&checkpoint).map(|node| node.expect("it is sound").place.addr);
    let (mirrored, alone): (Vec<_>, Vec<_>) = nodes.partition(|it| volume.mirror_of(*it).is_some());
    assert!(mirrored.len() > 20 && alone.is_empty(), "{} and {}", mirrored.len(), alone.len());

    let disk = open(&memory).expect("it is sound");
    for list in lists {
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list);
        disk.commit(aru).expect("deleting works on a full volume");
    }
    while disk.background_step().expect("the device works") {}
    disk.checkpoint().expect("the device works");
    assert!(disk.space().live_bytes < SEGMENT_BYTES, "{:?}", disk.space());
}

#[test]
fn crashes_leave_both_copies() {
    for seed in 0..6 {
        let sim = Arc::new(SimDevice::new(DEVICE_BYTES, seed));
        let device: Arc<dyn Device> = Arc::clone(&sim) as _;
        make(&device);
        let disk = open(&device).expect("it was formatted");
        fill(&disk);
        put(&disk, Lid::FIRST, &mut Rng::new(seed));
        let mut rng = Rng::new(seed);
        let left = sim.crash_image(&mut rng, CrashStyle::draw(&mut Rng::new(seed))).to_bytes();
        drop(disk);
        let report = verified(&MemoryDevice::from_bytes(&left));
        assert!(report.is_sound(), "seed {seed}: {report}");
        let expected = contents(&device_of(&left));
        for places in <[_; 2]>::from(copies(&left)) {
            let mut damaged = left.clone();
            places.into_iter().for_each(|place| damaged[place].fill(0x5a));
            assert!(contents(&device_of(&damaged)) == expected, "seed {seed}");
        }
    }
}

#[test]
fn a_volume_is_rebuilt_from_mirrors_and_has_new_ones() {
    let whole = image(true);
    let expected = contents(&device_of(&whole));
    let (first, second) = copies(&whole);
    for (number, (place, mirror)) in first.iter().zip(&second).enumerate().skip(1) {
        // A node is lost in both places, and half of the others in one.
        let mut damaged = whole.clone();
        damaged[place.clone()].fill(0);
        damaged[mirror.clone()].fill(0);
        for (other, place) in first.iter().enumerate().filter(|(other, _)| *other != number) {
            if other % 2 == 0 {
                damaged[place.clone()].fill(0);
            }
        }
        let device = device_of(&damaged);
        let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
        let report = rebuild(&*device, &options, &mut |_, _| ()).expect("there is room");
        let found = verified(&*device);
        // An older checkpoint may be whole, with what is damaged in its nodes' places.
        let is_copy = |of: &Finding| of.kind == FindingKind::NodeCopy;
        let is_whole = report.extent == Extent::Superblock && found.findings.iter().all(is_copy);
        assert!(found.is_sound() || is_whole, "node {number}, rebuilt: {found}");
        assert_eq!(found.counts.unmirrored_node_count, 0, "node {number}");
        let disk = open(&device).expect("it was rebuilt");
        assert_eq!(disk.unmirrored_bytes(), 0, "node {number}");
        if report.is_complete() {
            let found = ModelVersions::read_from(&disk).expect("nothing is lost");
            assert!(found == expected, "node {number}: {:?}", found.diff(&expected));
        }
        let found_count = scrub(&disk);
        assert!(found_count == 0 || is_whole, "node {number}: {found_count}");
        disk.checkpoint().expect("there is room");
        scrub(&disk);
        disk.shut_down().expect("the device works");
        drop(disk);
        let found = verified(&*device);
        assert!(found.is_sound(), "node {number}: {found}");
        assert_eq!(found.counts.unmirrored_node_count, 0, "node {number}");
    }
}

/// Destroys all checkpoints, and retires so many segments in which nothing was ever written.
fn without_checkpoints(whole: &[u8], retired_count: usize) -> Vec<u8> {
    let device = MemoryDevice::from_bytes(whole);
    let volume = Volume::open(&device).expect("it is sound");
    let segments = || volume.layout().log_segments();
    let mut image = whole.to_vec();
    for partial in segments().flat_map(|segment| volume.partials(segment)) {
        for record in partial.records().flatten() {
            let Record::Checkpoint { addr, .. } = record.record else { continue };
            for place in [Some(addr), volume.mirror_of(addr)].into_iter().flatten() {
                image[place.bytes() as usize..][..64].fill(0xa5);
            }
        }
    }
    let is_new = |segment: &SegmentNo| {
        let start = volume.layout().segment_offset(*segment) as usize;
        whole[start..start + SEGMENT_BYTES as usize].iter().all(|byte| *byte == 0)
    };
    let retired = segments().filter(is_new).map(|segment| Retired { segment, moved: None });
    let mut superblock = volume.superblock().clone();
    superblock.seq += 1;
    superblock.incompatible |= INCOMPATIBLE_RETIRED;
    superblock.retired = retired.take(retired_count).collect();
    assert_eq!(superblock.retired.len(), retired_count, "there are too few segments");
    let at = superblock.layout.superblock_offset(superblock.seq) as usize;
    image[at..at + PAGE_SIZE].copy_from_slice(superblock.encode().as_slot());
    image
}

#[test]
fn what_a_rebuild_has_no_room_to_mirror_is_counted_and_a_scrub_mirrors_it() {
    let memory = Arc::new(MemoryDevice::new(2 * DEVICE_BYTES));
    let device: Arc<dyn Device> = Arc::clone(&memory) as _;
    make(&device);
    let disk = open(&device).expect("it was formatted");
    let list = new_list(&disk);
    for index in 0..1500 {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, index, vec![index as u8; 900]);
        disk.commit(aru).expect("there is room");
    }
    disk.shut_down().expect("the device works");
    drop(disk);
    let expected = contents(&device);
    let whole = memory.to_bytes();
    let rebuilt = |retired_count| {
        let device = device_of(&without_checkpoints(&whole, retired_count));
        let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
        let report = rebuild(&*device, &options, &mut |_, _| ()).expect("there is room for one");
        assert_eq!(report.extent, Extent::Map);
        let found = verified(&*device);
        assert!(found.is_sound(), "{retired_count} retired: {found}");
        (device, found.counts)
    };
    assert_eq!(rebuilt(0).1.unmirrored_node_count, 0);
    let lacking = (1..).map(rebuilt).find(|(_, of)| of.unmirrored_node_count == of.node_count);
    let (device, _) = lacking.expect("there are always fewer free segments");
    let disk = open(&device).expect("it was rebuilt");
    let before = disk.unmirrored_bytes();
    assert!(before > 0);
    let found = ModelVersions::read_from(&disk).expect("nothing is lost");
    assert!(found == expected, "{:?}", found.diff(&expected));
    // What the old map took is free by now.
    for _ in 0..4 {
        scrub(&disk);
        disk.checkpoint().expect("the device works");
    }
    assert!(disk.unmirrored_bytes() < before / 2, "{} of {before}", disk.unmirrored_bytes());
    disk.shut_down().expect("the device works");
    drop(disk);
    let found = verified(&*device);
    assert!(found.is_sound(), "{found}");
}

#[test]
fn a_volume_of_which_mirrors_alone_are_left_is_rebuilt() {
    let whole = image(true);
    let (first, second) = copies(&whole);
    let mut damaged = whole;
    damaged[..2 * SEGMENT_BYTES as usize].fill(0);
    let rebuilt = |damaged: &[u8]| {
        let device = device_of(damaged);
        assert!(open(&device).is_err());
        let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
        let report = rebuild(&*device, &options, &mut |_, _| ()).expect("there is room");
        assert!(report.is_complete(), "{report:?}");
        device
    };
    // When the volume was made is lost with the superblocks.
    let expected = contents(&rebuilt(&damaged));
    for place in first {
        let start = place.start / SEGMENT_BYTES as usize * SEGMENT_BYTES as usize;
        damaged[start..start + SEGMENT_BYTES as usize].fill(0);
    }
    let device = rebuilt(&damaged);
    let found = contents(&device);
    assert!(found == expected, "{:?}", found.diff(&expected));
    let disk = open(&device).expect("it was rebuilt");
    assert!(scrub(&disk) > 0);
    disk.shut_down().expect("the device works");
    drop(disk);
    let report = verified(&*device);
    assert!(report.is_sound(), "{report}");

    // Without the newest checkpoint, too.
    damaged[second[0].clone()].fill(0);
    let device = rebuilt(&damaged);
    let found = contents(&device);
    assert!(found == expected, "{:?}", found.diff(&expected));
}

#[test]
fn a_torn_write_to_a_mirror_alone_costs_nothing() {
    let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 3));
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    make(&device);
    let disk = open(&device).expect("it was formatted");
    fill(&disk);
    sim.start_recording();
    let mut rng = Rng::new(9);
    for _ in 0..3 {
        (0..20).for_each(|_| put(&disk, Lid::FIRST, &mut rng));
        disk.checkpoint().expect("the device works");
    }
    let recording = sim.take_recording().expect("one was begun");
    let image = sim.to_bytes();
    drop(disk);
    let memory = MemoryDevice::from_bytes(&image);
    let volume = Volume::open(&memory).expect("it is sound");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let segment_of = |addr| volume.layout().segment_of(addr);
    let mut mirrors = BTreeSet::new();
    for node in volume.nodes(&checkpoint) {
        let mirror = volume.mirror_of(node.expect("it is sound").place.addr);
        mirrors.insert(segment_of(mirror.expect("there are two copies")));
    }

    let mut torn_count = 0;
    for index in 0..recording.len() {
        let EventKind::Write { offset, len_bytes } = recording.event(index) else { continue };
        if !mirrors.contains(&segment_of(Addr::from_bytes(offset)))
            || len_bytes <= SECTOR_BYTES as u64
        {
            continue;
        }
        torn_count += 1;
        let whole = recording.image_at(index + 1, &mut rng, CrashStyle::Everything).to_bytes();
        let expected = contents(&device_of(&whole));
        for image in 0..8 {
            let what = format!("event {index}, image {image}");
            let torn = recording.image_at(index + 1, &mut rng, CrashStyle::LastTorn).to_bytes();
            let report = verified(&MemoryDevice::from_bytes(&torn));
            assert!(report.is_sound(), "{what}: {report}");
            let memory = Arc::new(MemoryDevice::from_bytes(&torn));
            let device: Arc<dyn Device> = Arc::clone(&memory) as _;
            assert!(contents(&device) == expected, "{what}");
            // The volume goes on, and again has everything twice.
            let disk = open(&device).expect("nothing is lost");
            put(&disk, Lid::FIRST, &mut rng);
            assert_eq!(scrub(&disk), 0, "{what}");
            disk.shut_down().expect("the device works");
            drop(disk);
            let report = verified(&*device);
            assert!(report.is_sound(), "{what}: {report}");
            let expected = contents(&device);
            let left = memory.to_bytes();
            for places in <[_; 2]>::from(copies(&left)) {
                let mut damaged = left.clone();
                places.into_iter().for_each(|place| damaged[place].fill(0x5a));
                assert!(contents(&device_of(&damaged)) == expected, "{what}");
            }
        }
    }
    assert!(torn_count >= 3, "{torn_count} writes to mirrors");
}

/// Uses a volume, and expects it to be sound and to keep nodes twice then.
fn expect_usable(device: &Arc<dyn Device>) {
    let disk = open(device).expect("it is sound");
    put(&disk, Lid::FIRST, &mut Rng::new(5));
    disk.checkpoint().expect("there is room");
    disk.shut_down().expect("the device works");
    drop(disk);
    let report = verified(&**device);
    assert!(report.is_sound() && report.counts.unmirrored_node_count == 0, "{report}");
    let volume = Volume::open(&**device).expect("it is sound");
    assert_eq!(volume.superblock().metadata_copies(), 2);
}

#[test]
fn a_volume_without_superblocks_and_without_its_end_is_rebuilt_with_mirrors() {
    for is_shut_down in [true, false] {
        let whole = image(is_shut_down);
        let expected = contents(&device_of(&whole));
        let mut damaged = whole.clone();
        damaged[..2 * SEGMENT_BYTES as usize].fill(0);
        damaged.truncate(whole.len() - SEGMENT_BYTES as usize);
        let device = device_of(&damaged);
        let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
        let report = rebuild(&*device, &options, &mut |_, _| ()).expect("there is room");
        let found = contents(&device);
        // When the first branch was made, no superblock tells any more.
        let is_same = |view| found.state(view).ok() == expected.state(view).ok();
        assert!(expected.table().views().all(is_same), "{report:?}: {:?}", found.diff(&expected));
        let superblock = Volume::open(&*device).expect("it is sound").superblock().clone();
        assert_eq!(superblock.hash_key, [3; 16]);
        assert_eq!(u64::from(superblock.layout.segment_count()), DEVICE_BYTES / SEGMENT_BYTES - 1);
        expect_usable(&device);
    }
}

#[test]
fn a_superblock_that_denies_the_mirrors_of_its_checkpoint_does_no_harm() {
    let device = device_of(&image(true));
    let mut forged: Superblock = Volume::open(&*device).expect("it is sound").superblock().clone();
    forged.seq += 1;
    forged.incompatible &= !INCOMPATIBLE_MIRRORS;
    forged.checkpoint_mirror = None;
    let at = forged.layout.superblock_offset(forged.seq);
    device.write_at(at, forged.encode().as_slot()).expect("the device works");
    expect_usable(&device);
}

/// Rebuilds a volume of which the device has lost its end, and expects all that was there. Returns
/// whether there is room for that.
fn is_rebuilt_without_end(whole: &[u8], damaged: &[u8], what: &str) -> bool {
    let device = device_of(damaged);
    let refused = open(&device).err();
    assert!(refused.is_some(), "{what}: the device is too short");
    let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
    let report = match rebuild(&*device, &options, &mut |_, _| ()) {
        Err(dendro_check::Error::NoFreeSegment) => return false,
        report => report.unwrap_or_else(|error| panic!("{what}: {error}")),
    };
    let expected = contents(&device_of(whole));
    let found = contents(&device);
    let difference = expected.diff(&found);
    assert!(report.is_complete() && difference.is_none(), "{what}: {report:?}, {difference:?}");
    let left = damaged.len() as u64 / SEGMENT_BYTES;
    assert_eq!(report.lost_end_bytes, DEVICE_BYTES - left * SEGMENT_BYTES, "{what}");
    let layout = Volume::open(&*device).expect("it is sound").layout();
    assert_eq!(u64::from(layout.segment_count()), left, "{what}");
    // What is left may be full.
    let report = verified(&*device);
    assert!(report.is_sound(), "{what}: {report}");
    true
}

#[test]
fn a_device_without_its_end_is_rebuilt_from_the_mirrors_of_what_lay_there() {
    let whole = image(true);
    let (first, second) = copies(&whole);
    let checkpoint = [&first[0], &second[0]];
    let end_of_pages = {
        let device = MemoryDevice::from_bytes(&whole);
        let volume = Volume::open(&device).expect("it is sound");
        let checkpoint = volume.checkpoint().expect("it is sound");
        let pages = volume.entries(&checkpoint, None, None).flat_map(|entry| {
            let value = entry.expect("it is sound").1;
            let dendro_format::Value::Chunk(chunk) = value else { return Vec::new() };
            chunk.iter().map(|(_, page)| page.addr.bytes() + u64::from(page.len_bytes)).collect()
        });
        pages.max().expect("there are pages")
    };
    let mut lost_checkpoints = [0; 2];
    for count in 17..DEVICE_BYTES / SEGMENT_BYTES {
        let len_bytes = (count * SEGMENT_BYTES) as usize;
        let is_lost = |of: &Range<usize>| of.end > len_bytes;
        let has_copy = |(a, b): (&Range<usize>, &Range<usize>)| !(is_lost(a) && is_lost(b));
        if end_of_pages > len_bytes as u64 || !first.iter().zip(&second).all(has_copy) {
            continue;
        }
        // A segment of which a part is left counts as lost.
        for more in [0, 4096, SEGMENT_BYTES as usize / 2] {
            if !is_rebuilt_without_end(&whole, &whole[..len_bytes + more], &format!("{count}")) {
                continue;
            }
            for (lost, place) in lost_checkpoints.iter_mut().zip(checkpoint) {
                *lost += u32::from(is_lost(place));
            }
        }
    }
    assert!(lost_checkpoints.iter().any(|count| *count > 0), "{lost_checkpoints:?}");
}

#[test]
fn a_device_without_superblocks_and_end_is_rebuilt_from_mirrors_too() {
    let whole = image(true);
    let expected = contents(&device_of(&whole));
    let (first, second) = copies(&whole);
    let end = first.iter().zip(&second).map(|(a, b)| a.end.min(b.end)).max().expect("some");
    let end = end.next_multiple_of(SEGMENT_BYTES as usize);
    let mut damaged = whole[..end.max(20 * SEGMENT_BYTES as usize)].to_vec();
    damaged[..2 * SEGMENT_BYTES as usize].fill(0);
    let device = device_of(&damaged);
    let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
    let report = rebuild(&*device, &options, &mut |_, _| ()).expect("there is room");
    assert!(report.lost_end_bytes > 0, "{report:?}");
    let lost: Vec<u64> = report.lost_pages.iter().map(|pages| pages.list).collect();
    let found = ModelVersions::read_from(&open(&device).expect("it opens"));
    // Pages may have lain behind the end; nodes did not.
    assert!(report.restored.iter().all(|part| part.is_complete), "{report:?}");
    if lost.is_empty() {
        let found = found.expect("nothing is lost");
        let is_same = |view| found.state(view).ok() == expected.state(view).ok();
        assert!(expected.table().views().all(is_same), "{report:?}");
    }
}

#[test]
fn a_rebuild_does_not_write_over_mirrors_that_it_reads_before_its_superblock_is_there() {
    let whole = image(true);
    let (first, second) = copies(&whole);
    let mut damaged = whole.clone();
    for place in &first {
        damaged[place.clone()].fill(0xa5);
    }
    damaged[second[0].clone()].fill(0xa5);
    let below = device_of(&damaged);
    let plan = Rebuild::plan(&*below, u64::MAX, &mut |_, _| ()).expect("it can be planned");
    let device = dendro_device::OverlayDevice::new(Arc::clone(&below));
    let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
    plan.write(&device, &options).expect("there is room");
    for place in &second[1..] {
        let mut found = vec![0; place.len()];
        device.read_at(place.start as u64, &mut found).expect("it can be read");
        assert!(found == whole[place.clone()], "the mirror at {place:?} was written over");
    }
}
