//! Places that the device cannot write: what belongs there goes to a spare segment, nothing that
//! was promised is lost, and no later mount fills such a segment.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use dendro_base::Rng;
use dendro_check::{find_superblocks, verify};
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_device::{Device, OverlayDevice};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

use crate::common::clock;

const DEVICE_BYTES: u64 = 8 << 20;
const SEGMENT_BYTES: u64 = 128 << 10;
const PAGES: u64 = 200;

fn open(device: &Arc<SimDevice>) -> Result<LogDisk, Error> {
    let device = Arc::clone(device) as Arc<dyn Device>;
    LogDisk::open(device, OpenOptions::default(), clock())
}

fn new_volume(seed: u64) -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::new(DEVICE_BYTES, seed));
    // Every second one keeps its metadata twice.
    let options = FormatOptions {
        segment_size_bytes: SEGMENT_BYTES,
        metadata_copies: 1 + (seed % 2) as u8,
        ..FormatOptions::default()
    };
    let dynamic = Arc::clone(&device) as Arc<dyn Device>;
    format(&dynamic, &options, &clock()).expect("the device is large enough");
    device
}

/// From the `nth` write on, the device cannot write the place of that write. The writes fail after
/// `prefix_bytes`.
fn break_place(device: &SimDevice, nth: u64, prefix_bytes: u64) {
    let (mut count, mut bad): (u64, Option<Range<u64>>) = (0, None);
    let is_bad = move |offset: u64, len_bytes: u64| {
        count += 1;
        let end = offset + len_bytes;
        if count == nth {
            bad = Some(offset..end);
        }
        bad.as_ref().is_some_and(|bad| offset < bad.end && bad.start < end)
    };
    device.inject(Fault::fail_write_after(prefix_bytes).forever().when(is_bad));
}

/// What is on a disk: the byte that fills each page.
type Contents = BTreeMap<u64, u8>;

/// Writes and overwrites pages, in units of several sizes, with flushes, checkpoints and deletions
/// in between. In the end all of it is flushed.
fn work(disk: &LogDisk, list: Lid, rng: &mut Rng, contents: &mut Contents) -> Result<(), Error> {
    for step in 0..120_u64 {
        let mut aru = Aru::new(View::HEAD);
        let first = rng.below(PAGES);
        let count = 1 + rng.below(if step % 20 == 0 { 40 } else { 4 });
        let byte = 1 + rng.below(255) as u8;
        let mut next = contents.clone();
        if rng.chance(15) {
            aru.punch_pages(list, first, count);
            next.retain(|page, _| !(first..first + count).contains(page));
        } else {
            // Some pages are stored short.
            let len = if rng.chance(30) { 700 } else { PAGE_SIZE };
            let mut data = vec![0; PAGE_SIZE];
            data[..len].fill(byte);
            aru.write_pages(list, first, data.repeat(count as usize));
            next.extend((first..first + count).map(|page| (page, byte)));
        }
        disk.commit(aru)?;
        *contents = next;
        match step % 30 {
            4 | 11 | 17 | 23 => disk.flush(CommitSeq::LATEST)?,
            29 => disk.checkpoint()?,
            _ => {}
        }
    }
    disk.flush(CommitSeq::LATEST)
}

fn contents_of(disk: &LogDisk, list: Lid) -> Contents {
    let mut contents = Contents::new();
    let mut page = vec![0; PAGE_SIZE];
    for number in 0..PAGES + 40 {
        disk.read_pages(View::HEAD, list, number, &mut page).expect("it can be read");
        if page[0] != 0 {
            let len = page.iter().position(|&byte| byte == 0).unwrap_or(PAGE_SIZE);
            assert!(page[..len].iter().all(|&byte| byte == page[0]) && len >= 700);
            contents.insert(number, page[0]);
        }
    }
    contents
}

fn new_list(disk: &LogDisk) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    list
}

/// Asserts that the volume on `device` is sound, holds `contents`, and that `retired` segments of
/// it are out of use.
fn check(device: &Arc<SimDevice>, list: Lid, contents: &Contents, retired: u32) {
    let disk = open(device).expect("it can be mounted");
    assert_eq!(disk.recovery_notes(), [""; 0]);
    assert_eq!(contents_of(&disk, list), *contents);
    let counts = disk.stats().segments;
    assert!(counts.retired <= retired, "{counts:?}");
    disk.shut_down().expect("the device works");
    let report = verify(&**device, &dendro_check::Options::default());
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_place_that_cannot_be_written_costs_two_segments_and_nothing_else() {
    let mut spared = 0;
    for nth in 1.. {
        let device = new_volume(nth);
        let disk = open(&device).expect("it was formatted");
        let list = new_list(&disk);
        let capacity = disk.space().capacity_bytes;
        break_place(&device, nth, nth % 3 * 512);
        let mut contents = Contents::new();
        work(&disk, list, &mut Rng::new(nth), &mut contents).expect("the write goes elsewhere");
        assert_eq!(disk.read_only_reason(), None);
        if device.struck_count() == 0 {
            assert!(nth > 30 && spared > 20, "{nth} writes, {spared} of them spared");
            return;
        }
        let retired = disk.space().capacity_bytes < capacity;
        spared += u32::from(retired);
        assert_eq!(contents_of(&disk, list), contents, "write {nth}");
        // What was flushed outlives a power cut, with the place still bad and without.
        let image = device.crash_image(&mut Rng::new(nth), CrashStyle::Nothing);
        check(&Arc::new(image), list, &contents, 2);
        work(&disk, list, &mut Rng::new(nth + 1), &mut contents).expect("there are other places");
        disk.shut_down().expect("there are other places");
        let again = open(&device).expect("it was shut down");
        assert_eq!(contents_of(&again, list), contents, "write {nth}, mounted again");
        assert_eq!(again.space().capacity_bytes < capacity, retired, "write {nth}");
        // Everything is written again, so the segment becomes empty and is never filled again.
        for seed in 0..3 {
            work(&again, list, &mut Rng::new(seed), &mut contents).expect("there are other places");
            again.checkpoint().expect("there are other places");
        }
        let struck = device.struck_count();
        again.shut_down().expect("there are other places");
        if retired {
            check(&device, list, &contents, 2);
            assert_eq!(device.struck_count(), struck, "write {nth}: the place was used again");
        }
    }
}

#[test]
fn a_power_cut_at_any_moment_of_it_leaves_what_was_flushed() {
    for (seed, calls) in (0..40_u64).flat_map(|seed| (0..=14).map(move |calls| (seed, calls))) {
        let device = new_volume(seed);
        let disk = open(&device).expect("it was formatted");
        let list = new_list(&disk);
        let mut contents = Contents::new();
        work(&disk, list, &mut Rng::new(seed), &mut contents).expect("the device works");
        let mut written = contents.clone();
        break_place(&device, 1 + seed % 7, 512 * (seed % 9));
        let (mut aru, first) = (Aru::new(View::HEAD), seed * 3 % PAGES);
        aru.write_pages(list, first, vec![99; 3 * PAGE_SIZE]);
        disk.commit(aru).expect("it is taken into memory");
        written.extend((first..first + 3).map(|page| (page, 99)));
        // The first calls are writes that fail; what follows is the sparing.
        device.cut_after_calls(if calls < 14 { calls } else { 1000 });
        let is_flushed = disk.flush(CommitSeq::LATEST).is_ok();
        if seed % 2 == 0 {
            // The next calls are those of a checkpoint, which may meet the place, too.
            disk.checkpoint().ok();
        }
        for style in [CrashStyle::Nothing, CrashStyle::Everything, CrashStyle::Torn] {
            let image = Arc::new(device.crash_image(&mut Rng::new(seed), style));
            let again = open(&image).expect("a crash loses nothing that was flushed");
            let found = contents_of(&again, list);
            assert!(found == written || (!is_flushed && found == contents), "{seed} {calls}");
            again.shut_down().expect("the image works");
            let report = verify(&*image, &dendro_check::Options::default());
            assert!(report.is_sound(), "{seed} {calls}: {report:?}");
        }
    }
}

/// Only superblocks tell where a spare is, and a volume without backups has no others.
#[test]
fn damage_to_the_newest_superblock_hides_no_spare() {
    for nth in 1..=6 {
        let device = new_volume(nth);
        let disk = open(&device).expect("it was formatted");
        let list = new_list(&disk);
        break_place(&device, nth, 0);
        let mut contents = Contents::new();
        for page in 0..6 {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, page, vec![5; PAGE_SIZE]);
            disk.commit(aru).expect("there is room");
            disk.flush(CommitSeq::LATEST).expect("there are other places");
            contents.insert(page, 5);
            let image = Arc::new(device.crash_image(&mut Rng::new(nth), CrashStyle::Everything));
            let found = find_superblocks(&*image).expect("it was formatted");
            let newest = found.current();
            assert_eq!(newest.superblock.retired.is_empty(), device.struck_count() == 0);
            image.corrupt(newest.offset..newest.offset + 4096, 1);
            let again = open(&image).expect("the log tells all that was flushed");
            assert_ne!(again.recovery_notes(), [""; 0]);
            assert_eq!(contents_of(&again, list), contents, "write {nth}, page {page}");
        }
        assert!(device.struck_count() > 0);
    }
}

#[test]
fn spares_that_cannot_be_written_either_are_passed_over_and_a_device_that_writes_nothing_latches() {
    let device = new_volume(1);
    let disk = open(&device).expect("it was formatted");
    let list = new_list(&disk);
    let mut contents = Contents::new();
    work(&disk, list, &mut Rng::new(1), &mut contents).expect("the device works");
    // Each of the tries in the place, and the first spare.
    device.inject(Fault::fail_write_after(0).times(4));
    work(&disk, list, &mut Rng::new(2), &mut contents).expect("the second spare works");
    assert_eq!(disk.retired_segment_count(), 3);
    let image = Arc::new(device.crash_image(&mut Rng::new(1), CrashStyle::Nothing));
    check(&image, list, &contents, 3);
    device.inject(Fault::fail_write_after(0).forever());
    let error = work(&disk, list, &mut Rng::new(3), &mut contents).expect_err("nothing helps");
    assert!(matches!(error, Error::Failed(_)), "{error}");
    assert!(disk.read_only_reason().is_some());
    device.clear_faults();
    assert!(disk.flush(CommitSeq::LATEST).is_err());
}

#[test]
fn many_bad_places_on_a_volume_that_is_full_lose_nothing_that_was_accepted() {
    for seed in 0..20 {
        let device = new_volume(seed);
        let disk = open(&device).expect("it was formatted");
        let list = new_list(&disk);
        let mut rng = Rng::new(seed);
        for _ in 0..1 + seed % 5 {
            let start = SEGMENT_BYTES * 2 + rng.below(DEVICE_BYTES - SEGMENT_BYTES * 3);
            let len_bytes = 4096 << rng.below(4);
            device.inject(Fault::fail_write_after(0).within(start..start + len_bytes).forever());
        }
        let (mut written, mut flushed) = (0, 0);
        let outcome = loop {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, written, vec![(written % 250) as u8 + 1; PAGE_SIZE]);
            match disk.commit(aru) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            if rng.chance(3) {
                if let Err(error) = disk.flush(CommitSeq::LATEST) {
                    break error;
                }
                flushed = written;
            }
        };
        if matches!(outcome, Error::NoSpace { .. }) {
            disk.flush(CommitSeq::LATEST).expect("what was accepted fits");
            flushed = written;
            // Space can still be given back.
            let mut aru = Aru::new(View::HEAD);
            aru.punch_pages(list, 0, 100);
            aru.set_reclaims();
            disk.commit(aru).expect("what gives space back is accepted");
            disk.flush(CommitSeq::LATEST).expect("it was accepted");
        } else {
            assert!(matches!(outcome, Error::Failed(_)), "{outcome}");
        }
        let image = Arc::new(device.crash_image(&mut Rng::new(seed), CrashStyle::Nothing));
        let again = open(&image).expect("it can be mounted");
        let mut page = vec![0; PAGE_SIZE];
        for number in 100..flushed {
            again.read_pages(View::HEAD, list, number, &mut page).expect("it can be read");
            assert!(page[0] == (number % 250) as u8 + 1, "{seed}: page {number} of {flushed}");
        }
        again.shut_down().expect("the image works");
        assert!(verify(&*image, &dendro_check::Options::default()).is_sound());
    }
}

#[test]
fn a_spare_segment_is_none_that_a_frozen_state_has() {
    let (mut spared, mut held) = (0, 0);
    for nth in 1..=30 {
        let device = new_volume(nth);
        let disk = open(&device).expect("it was formatted");
        let list = new_list(&disk);
        let mut contents = Contents::new();
        for seed in 0..2 {
            work(&disk, list, &mut Rng::new(seed), &mut contents).expect("the device works");
        }
        let frozen = disk.freeze().expect("the device works").expect("nothing is frozen");
        let frozen = Arc::new(frozen);
        let then = contents.clone();
        break_place(&device, nth, nth % 3 * 512);
        work(&disk, list, &mut Rng::new(nth), &mut contents).expect("the write goes elsewhere");
        let is_spared = disk.retired_segment_count() > 0;
        spared += u32::from(is_spared);
        let report = verify(&*frozen, &dendro_check::Options { data: true });
        let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(&frozen)));
        let opened = LogDisk::open(overlay, OpenOptions::default(), clock());
        if frozen.is_held() {
            assert!(report.is_sound(), "write {nth}: {report:?}");
            let opened = opened.expect("it is a volume");
            assert_eq!(contents_of(&opened, list), then, "write {nth}");
            opened.shut_down().expect("the overlay takes writes");
            held += u32::from(is_spared);
        }
        drop(frozen);
        assert_eq!(contents_of(&disk, list), contents, "write {nth}");
        let image = device.crash_image(&mut Rng::new(nth), CrashStyle::Nothing);
        check(&Arc::new(image), list, &contents, 2);
        // The end of the hold gives no segment back that cannot be written.
        work(&disk, list, &mut Rng::new(nth + 1), &mut contents).expect("there are other places");
        disk.shut_down().expect("there are other places");
        check(&device, list, &contents, 2);
    }
    assert!(spared > 10 && held > 5, "{spared} spared, {held} of them during a hold");
}

#[test]
fn a_device_that_fails_while_the_volume_is_closed_for_writing_is_told_and_never_forgotten() {
    for failing in 0..3 {
        let device = new_volume(failing);
        let disk = open(&device).expect("it was formatted");
        let list = new_list(&disk);
        let mut contents = Contents::new();
        work(&disk, list, &mut Rng::new(failing), &mut contents).expect("the device works");
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 7, vec![99; PAGE_SIZE]);
        disk.commit(aru).expect("it is taken into memory");
        // Writes, flushes, or the first writes alone, so that a spare segment takes them.
        match failing {
            0 => device.inject(Fault::fail_write_after(0).forever()),
            1 => device.inject(Fault::fail(Call::Flush).forever()),
            _ => device.inject(Fault::fail_write_after(0).times(4)),
        }
        let closed = disk.close_for_writing("a check has found damage");
        let is_lost = failing < 2;
        assert_eq!(matches!(closed, Err(Error::Failed(_))), is_lost, "{closed:?}");
        assert!(disk.read_only_reason().is_some());
        device.clear_faults();
        // The device works again, and still no sync may say that all is well.
        assert_eq!(disk.flush(CommitSeq::LATEST).is_err(), is_lost, "case {failing}");
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 8, vec![98; PAGE_SIZE]);
        assert!(disk.commit(aru).is_err(), "a closed volume takes changes");
        let mut with_last = contents.clone();
        with_last.insert(7, 99);
        assert_eq!(contents_of(&disk, list), with_last, "what is in memory can be read");
        let image = Arc::new(device.crash_image(&mut Rng::new(failing), CrashStyle::Nothing));
        check(&image, list, if is_lost { &contents } else { &with_last }, 3);
    }
}
