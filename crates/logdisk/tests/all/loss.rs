//! Durable data that is damaged: the loss is reported, and the data is never overwritten.

use std::ops::Range;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng, Uuid};
use dendro_check::Volume;
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{FormatOptions, LogDisk, OnLoss, OpenOptions, format};

const SEGMENT_BYTES: u64 = 128 << 10;
const LIST: Lid = Lid::FIRST;
/// The number of units; each is flushed by itself.
const UNITS: u64 = 40;

fn open(image: &[u8], options: OpenOptions) -> (Arc<MemoryDevice>, Result<LogDisk, Error>) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let disk = LogDisk::open(Arc::clone(&device) as _, options, Arc::new(ManualClock::default()));
    (device, disk)
}

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::default() }
}

fn truncating() -> OpenOptions {
    OpenOptions { on_loss: OnLoss::Truncate, ..OpenOptions::default() }
}

fn skipping() -> OpenOptions {
    OpenOptions { on_loss: OnLoss::Skip, ..OpenOptions::default() }
}

/// Returns how many of the units are there. Each has put a record.
fn units(disk: &LogDisk) -> u64 {
    let mut count = 0;
    while disk.record(View::HEAD, LIST, count).expect("the map is sound").is_some() {
        count += 1;
    }
    count
}

/// Commits units with `page_count` pages each, and flushes each of them.
fn disk_with(page_count: usize) -> (Arc<MemoryDevice>, LogDisk) {
    let device = Arc::new(MemoryDevice::new(64 * SEGMENT_BYTES));
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let uuid = Uuid([0xd; 16]);
    let options =
        FormatOptions { segment_size_bytes: SEGMENT_BYTES, uuid, ..FormatOptions::default() };
    format(&shared, &options, &clock).expect("the device is large enough");
    let disk = LogDisk::open(shared, OpenOptions::default(), clock).expect("it was formatted");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(LIST, ListHints::default());
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("the device works");
    for unit in 0..UNITS {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(LIST, unit, unit.to_le_bytes().to_vec());
        for page in 0..page_count as u64 {
            let page_bytes = [unit as u8 + 1; PAGE_SIZE];
            aru.write_pages(LIST, unit * 64 + page, page_bytes.to_vec());
        }
        disk.commit(aru).expect("there is room");
        disk.flush(CommitSeq::LATEST).expect("the device works");
    }
    (device, disk)
}

/// Returns what a crash leaves of that.
fn crashed(page_count: usize) -> Vec<u8> {
    let (device, disk) = disk_with(page_count);
    let image = device.to_bytes();
    drop(disk);
    image
}

/// Returns the ranges of headers and records of the partial segments behind the checkpoint.
fn partials(image: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let device = MemoryDevice::from_bytes(image);
    let volume = Volume::open(&device).expect("it is sound");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let ranges = volume.log(&checkpoint).map(|partial| {
        let header = partial.header;
        let start = u64::from(header.segment.0) * SEGMENT_BYTES + u64::from(header.offset_bytes);
        let records = start as usize + header.records_offset_bytes as usize;
        (start as usize..start as usize + 128, records..records + header.records_len_bytes as usize)
    });
    ranges.collect()
}

fn flip(image: &[u8], at: usize) -> Vec<u8> {
    let mut image = image.to_vec();
    image[at] ^= 1 << (at % 8);
    image
}

/// Asserts that damage which loses all units from `lost` on is reported, and that nothing is
/// written. What was before the damage can be read, and the volume can continue from it.
fn assert_reported(image: &[u8], lost: u64, what: &str) {
    let (device, disk) = open(image, OpenOptions::default());
    match disk {
        Err(Error::Lost(why)) => assert!(why.contains("durable"), "{what}: {why}"),
        other => panic!("{what}: {:?} units are there", other.map(|disk| units(&disk))),
    }
    assert!(device.to_bytes() == image, "{what}: something was written");

    let (device, disk) = open(image, read_only());
    let disk = disk.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(units(&disk), lost, "{what}");
    assert_eq!(disk.recovery_notes().len(), 1, "{what}");
    drop(disk);
    assert!(device.to_bytes() == image, "{what}: something was written");

    let (device, disk) = open(image, truncating());
    let disk = disk.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(units(&disk), lost, "{what}");
    let names: Vec<_> = disk.versions().snapshots().filter_map(|it| it.name.clone()).collect();
    assert!(names.len() == 1 && names[0].starts_with("recovered-"), "{what}: {names:?}");
    // What was given up does not come back, and is not reported as lost again.
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(LIST, lost, &b"anew"[..]);
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    drop(disk);
    let (_, disk) = open(&device.to_bytes(), OpenOptions::default());
    let disk = disk.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(units(&disk), lost + 1, "{what}");
    assert_eq!(disk.recovery_notes(), [""; 0], "{what}");
}

#[test]
fn a_flipped_bit_in_a_durable_header_or_record_is_reported() {
    let image = crashed(1);
    let partials = partials(&image);
    assert_eq!(partials.len() as u64, UNITS);
    for unit in [0, 1, UNITS / 2, UNITS - 2] {
        let (header, records) = partials[unit as usize].clone();
        // Number, length, next segment, checksum.
        for offset in [32, 12, 52, 4] {
            assert_reported(&flip(&image, header.start + offset), unit, "header");
        }
        assert_reported(&flip(&image, records.start + 3), unit, "records");
        assert_reported(&flip(&image, records.end - 1), unit, "records");
    }
}

#[test]
fn a_lost_header_at_the_start_of_a_segment_is_reported() {
    // Each unit takes a segment of its own. If its header is lost, so is the number of the next
    // segment.
    let image = crashed(28);
    for (unit, (header, _)) in partials(&image).into_iter().enumerate() {
        if unit as u64 + 1 < UNITS {
            assert_reported(
                &flip(&image, header.start + 1),
                unit as u64,
                "the only one in its segment",
            );
        }
    }
}

#[test]
fn lost_blocks_and_long_lost_parts_of_the_log_are_reported() {
    let image = crashed(3);
    let partials = partials(&image);
    // The largest takes four segments and more.
    for count in [1, 2, 28] {
        let mut image = image.clone();
        for (header, records) in &partials[5..5 + count] {
            image[header.start..header.start + PAGE_SIZE].fill(0);
            image[records.clone()].fill(0);
        }
        assert_reported(&image, 5, "zeros");
    }
}

#[test]
fn recover_skip_shows_what_was_written_behind_the_damage_and_writes_nothing() {
    let image = crashed(1);
    let partials = partials(&image);
    for lost in [0, 1, UNITS / 2, UNITS - 2] {
        let (header, records) = partials[lost as usize].clone();
        for image in [flip(&image, header.start + 32), flip(&image, records.start + 3)] {
            let (device, disk) = open(&image, skipping());
            let disk = disk.unwrap_or_else(|error| panic!("{lost}: {error}"));
            for unit in 0..UNITS {
                let expected = (unit != lost).then(|| unit.to_le_bytes().to_vec().into());
                assert_eq!(disk.record(View::HEAD, LIST, unit), Ok(expected), "{lost}, {unit}");
                let mut page = [0; PAGE_SIZE];
                disk.read_pages(View::HEAD, LIST, unit * 64, &mut page).expect("it is sound");
                let expected = if unit == lost { 0 } else { unit as u8 + 1 };
                assert_eq!(page, [expected; PAGE_SIZE], "{lost}, {unit}");
            }
            assert!(disk.read_only_reason().is_some());
            let notes = disk.recovery_notes();
            assert!(notes.len() == 2 && notes[1].contains("no state that ever was"), "{notes:?}");
            disk.shut_down().expect("there is nothing to do");
            drop(disk);
            assert!(device.to_bytes() == image, "{lost}: something was written");
        }
    }
}

#[test]
fn recover_skip_omits_records_that_depend_on_the_lost_part() {
    // A list is lost, or a snapshot.
    for makes_snapshot in [false, true] {
        let (device, disk) = disk_with(0);
        disk.checkpoint().expect("the device works");
        let flushed = |aru: Aru<'_>| {
            disk.commit(aru).expect("there is room");
            disk.flush(CommitSeq::LATEST).expect("the device works");
        };
        let other = disk.allocate_list().expect("there is room");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(other, ListHints::default());
        if makes_snapshot {
            disk.snapshot(0, Some("lost")).expect("there is room");
        }
        flushed(aru);
        for unit in 100..104 {
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(LIST, unit, b"kept".to_vec());
            flushed(aru);
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(other, unit, b"dropped".to_vec());
            flushed(aru);
        }
        let image = device.to_bytes();
        let (header, _) = partials(&image)[0].clone();
        let (_, disk) = open(&flip(&image, header.start + 32), skipping());
        let disk = disk.expect("it can be shown");
        assert_eq!(disk.hints(View::HEAD, other), Ok(None));
        assert_eq!(disk.record(View::HEAD, other, 100), Ok(None));
        let kept = disk.record(View::HEAD, LIST, 102).expect("the map is sound");
        assert_eq!(kept.is_some(), !makes_snapshot);
        let note = &disk.recovery_notes()[1];
        let expected = if makes_snapshot { "nothing behind" } else { "4 could not be" };
        assert!(note.contains(expected), "{note}");
    }
}

#[test]
fn damage_to_the_last_flush_looks_like_a_torn_write() {
    let image = crashed(1);
    let (header, _) = partials(&image).pop().expect("there are some");
    let (_, disk) = open(&flip(&image, header.start + 33), OpenOptions::default());
    let disk = disk.expect("nothing says that it was durable");
    assert_eq!(units(&disk), UNITS - 1);
}

#[test]
fn a_damaged_durable_block_is_an_error_for_its_page_alone() {
    let image = crashed(1);
    let page_bytes = [4; PAGE_SIZE];
    let at = image.chunks(PAGE_SIZE).position(|block| block == page_bytes).expect("it is there");
    let (_, disk) = open(&flip(&image, at * PAGE_SIZE + 99), OpenOptions::default());
    let disk = disk.expect("the log goes on");
    assert_eq!(units(&disk), UNITS);
    let mut page = [0; PAGE_SIZE];
    assert!(disk.read_pages(View::HEAD, LIST, 3 * 64, &mut page).is_err());
    disk.read_pages(View::HEAD, LIST, 4 * 64, &mut page).expect("that one is sound");
}

/// Returns the places of the newest superblock and of the checkpoint that it names.
fn superblock_and_checkpoint(image: &[u8]) -> (usize, Range<usize>) {
    let device = MemoryDevice::from_bytes(image);
    let volume = Volume::open(&device).expect("it is sound");
    let found = volume.superblocks().current();
    let start = found.superblock.checkpoint_addr.bytes() as usize;
    let len = found.superblock.checkpoint_len_bytes as usize;
    (found.offset as usize, start..start + len)
}

/// Asserts that all units are there, or that opening reports a loss.
fn assert_not_silent(image: &[u8], what: &str) -> bool {
    let (device, disk) = open(image, OpenOptions::default());
    match disk {
        Ok(disk) => {
            assert_eq!(units(&disk), UNITS, "{what}");
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Lost(_) | Error::Corrupted(_)), "{what}: {error}");
            assert!(device.to_bytes() == image, "{what}: something was written");
            false
        }
    }
}

#[test]
fn use_of_an_older_superblock_or_checkpoint_is_always_reported() {
    let (device, disk) = disk_with(2);
    disk.checkpoint().expect("the device works");
    let in_use = device.to_bytes();
    disk.shut_down().expect("the device works");
    for (image, state) in [(in_use, "in use"), (device.to_bytes(), "shut down")] {
        let (superblock, checkpoint) = superblock_and_checkpoint(&image);
        let mut whole = 0;
        for at in (superblock..superblock + 184).step_by(2) {
            whole += u32::from(assert_not_silent(&flip(&image, at), &format!("{state}: {at}")));
        }
        // A checkpoint may be out of reach only if the damage hits its place in the superblock.
        assert!(whole >= 92 - 6, "{state}: {whole}");
        for at in checkpoint.step_by(3) {
            assert_not_silent(&flip(&image, at), &format!("{state}: checkpoint, {at}"));
        }
    }
}

#[test]
fn superblocks_overwritten_by_other_bytes_do_not_make_an_older_one_count() {
    let (device, disk) = disk_with(2);
    // The superblocks behind that of a clean shutdown are overwritten.
    disk.shut_down().expect("the device works");
    let clean = superblock_and_checkpoint(&device.to_bytes()).0;
    let mut image = device.to_bytes();
    for crash in 0..3 {
        let (device, disk) = open(&image, OpenOptions::default());
        let disk = disk.expect("it is sound");
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(LIST, UNITS + crash, &b"after"[..]);
        disk.commit(aru).expect("there is room");
        disk.flush(CommitSeq::LATEST).expect("the device works");
        image = device.to_bytes();
        let newest = superblock_and_checkpoint(&image).0;
        let mut overwritten = image.clone();
        overwritten[clean + PAGE_SIZE..SEGMENT_BYTES as usize].fill(0xab);
        // The newest one is left, but damaged.
        let mut damaged = overwritten.clone();
        damaged[newest..newest + PAGE_SIZE].copy_from_slice(&image[newest..newest + PAGE_SIZE]);
        damaged[newest + 100] ^= 1;
        for damaged in [overwritten, damaged] {
            let (device, disk) = open(&damaged, OpenOptions::default());
            match disk {
                Ok(disk) => {
                    assert_eq!(units(&disk), UNITS + crash + 1, "after {crash} crashes");
                }
                Err(error) => {
                    assert!(matches!(error, Error::Lost(_)), "after {crash} crashes: {error}");
                    assert!(device.to_bytes() == damaged, "something was written");
                }
            }
        }
    }
}

#[test]
fn unreadable_superblock_slots_do_no_harm_if_newer_slots_can_be_read() {
    let (device, disk) = disk_with(1);
    for _ in 0..40 {
        // Each checkpoint takes a superblock.
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(LIST, 1 << 40, &b"changed"[..]);
        disk.commit(aru).expect("there is room");
        disk.checkpoint().expect("the device works");
    }
    let image = device.to_bytes();
    let (newest, _) = superblock_and_checkpoint(&image);
    for area in [0, SEGMENT_BYTES as usize] {
        for slot in (area..area + SEGMENT_BYTES as usize).step_by(PAGE_SIZE) {
            let device = Arc::new(SimDevice::from_bytes(&image, 1));
            let place = slot as u64..slot as u64 + 1;
            device.inject(Fault::fail(Call::Read).within(place).forever());
            let clock = Arc::new(ManualClock::default());
            let disk = LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock);
            match disk {
                Ok(disk) => assert_eq!(units(&disk), UNITS, "slot at {slot}"),
                Err(error) => {
                    assert!(slot == newest, "slot at {slot}: {error}");
                    assert!(matches!(error, Error::Lost(_)), "{error}");
                }
            }
        }
    }
}

/// Behind the newest superblock, a discard has left foreign bytes in all slots up to the end of the
/// other log. With the next number the log would begin again that holds all superblocks.
#[test]
fn no_superblock_that_is_needed_is_given_up_before_the_next_one_is_durable() {
    let (device, disk) = disk_with(1);
    drop(disk);
    // No older checkpoint than the one behind this crash leads to the last units.
    let (device, disk) = open(&device.to_bytes(), OpenOptions::default());
    let disk = disk.expect("nothing is lost");
    for unit in UNITS..UNITS + 4 {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(LIST, unit, &b"later"[..]);
        disk.commit(aru).expect("there is room");
        disk.flush(CommitSeq::LATEST).expect("the device works");
    }
    disk.checkpoint().expect("the device works");
    drop(disk);
    let mut image = device.to_bytes();
    let (newest, checkpoint) = superblock_and_checkpoint(&image);
    image[newest + PAGE_SIZE..2 * SEGMENT_BYTES as usize].fill(0xab);
    let last_slot = 2 * SEGMENT_BYTES - PAGE_SIZE as u64..2 * SEGMENT_BYTES;
    for (image, bad_slot) in [(flip(&image, checkpoint.start + 26), None), (image, Some(last_slot))]
    {
        let open = |device: &Arc<SimDevice>| {
            if let Some(slot) = &bad_slot {
                device.inject(Fault::fail(Call::Read).within(slot.clone()).forever());
            }
            let clock = Arc::new(ManualClock::default());
            LogDisk::open(Arc::clone(device) as _, truncating(), clock)
        };
        let device = Arc::new(SimDevice::from_bytes(&image, 1));
        let mut rng = Rng::new(1);
        device.start_recording();
        assert_eq!(units(&open(&device).expect("a state is left")), UNITS + 4);
        // Slots with foreign bytes are not passed over for nothing.
        let has_gone_on = superblock_and_checkpoint(&device.to_bytes()).0 > newest;
        assert_eq!(has_gone_on, bad_slot.is_none());
        let recording = device.take_recording().expect("it was started");
        for event in 0..=recording.len() {
            for style in CrashStyle::ALL.into_iter().cycle().take(20) {
                let cut_off = recording.image_at(event, &mut rng, style);
                let disk = open(&Arc::new(cut_off));
                let disk = disk.unwrap_or_else(|error| panic!("{event}, {style:?}: {error}"));
                assert_eq!(units(&disk), UNITS + 4, "{event}, {style:?}, {bad_slot:?}");
            }
        }
    }
}

#[test]
fn a_place_in_the_log_that_cannot_be_read_is_not_its_end() {
    let image = crashed(1);
    let (header, _) = partials(&image)[7].clone();
    let at = header.start as u64;
    let failing = |options: OpenOptions| {
        let device = Arc::new(SimDevice::from_bytes(&image, 1));
        device.inject(Fault::fail(Call::Read).within(at..at + 1).forever());
        LogDisk::open(device as _, options, Arc::new(ManualClock::default()))
    };
    assert!(matches!(failing(OpenOptions::default()), Err(Error::Lost(_))));
    assert_eq!(units(&failing(read_only()).expect("what is before can be read")), 7);
    assert_eq!(units(&failing(truncating()).expect("it goes on from there")), 7);
}

#[test]
fn a_torn_superblock_behind_one_that_left_its_slot_empty_is_no_loss_later() {
    let reopened = |image: &[u8]| {
        let device = Arc::new(SimDevice::from_bytes(image, 1));
        let clock = Arc::new(ManualClock::default());
        let disk = LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock);
        (device, disk.expect("nothing is lost"))
    };
    let work = |disk: &LogDisk| {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(LIST, 1 << 40, &b"changed"[..]);
        disk.commit(aru).expect("there is room");
        disk.checkpoint()
    };
    let (device, disk) = disk_with(1);
    drop(disk);
    let (device, disk) = reopened(&device.to_bytes());
    // Of three slots that are tried, the device writes the second one, in part.
    let next = (superblock_and_checkpoint(&device.to_bytes()).0 + PAGE_SIZE) as u64;
    let slot = |number: u64| next + number * 4096..next + (number + 1) * 4096;
    device.inject(Fault::fail(Call::Write).within(slot(0)).forever());
    device.inject(Fault::fail_write_after(4096).within(slot(1)).forever());
    device.inject(Fault::fail(Call::Write).within(slot(2)).forever());
    assert!(work(&disk).is_err());
    let (device, disk) = reopened(&flip(&device.to_bytes(), slot(1).start as usize + 160));
    // The power goes when a checkpoint is durable and its superblock is not.
    device.inject(Fault::fail(Call::Write).within(0..SEGMENT_BYTES).forever());
    assert!(work(&disk).is_err());
    let (_, disk) = reopened(&device.to_bytes());
    assert_eq!(units(&disk), UNITS);
}

#[test]
fn a_lost_part_of_the_log_is_not_found_again_where_the_start_of_its_segment_was_overwritten() {
    let (device, disk) = disk_with(1);
    disk.checkpoint().expect("the device works");
    drop(disk);
    // After each crash the log goes on in another segment, behind a checkpoint of its own.
    let mut image = device.to_bytes();
    let lost: Vec<_> = (0..2)
        .map(|_| {
            let (device, disk) = open(&image, OpenOptions::default());
            let disk = disk.expect("nothing is lost");
            for unit in 0..8 {
                let mut aru = Aru::new(View::HEAD);
                aru.put_record(LIST, 1 << 40, &[unit][..]);
                disk.commit(aru).expect("there is room");
                disk.flush(CommitSeq::LATEST).expect("the device works");
            }
            image = device.to_bytes();
            let (first, _) = partials(&image)[0].clone();
            assert!((first.start as u64).is_multiple_of(SEGMENT_BYTES), "it is a new segment");
            (superblock_and_checkpoint(&image).1, first.start)
        })
        .collect();
    // The second checkpoint is lost. The first log's segment was filled with something else, and of
    // the second one's only the start.
    image[lost[1].0.clone()].fill(0);
    image[lost[0].1..][..SEGMENT_BYTES as usize].fill(0);
    image[lost[1].1..][..PAGE_SIZE].fill(0);
    assert!(matches!(open(&image, OpenOptions::default()).1, Err(Error::Lost(_))));
    let (device, disk) = open(&image, truncating());
    assert_eq!(units(&disk.expect("the loss is accepted")), UNITS);
    let (_, disk) = open(&device.to_bytes(), OpenOptions::default());
    assert_eq!(units(&disk.expect("nothing else is lost")), UNITS);
}
