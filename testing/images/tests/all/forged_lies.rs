//! Lies with right checksums: whatever an input makes a volume say, it is answered, and work on it
//! ends.

use std::collections::HashSet;
use std::sync::Arc;

use dendro_base::{ManualClock, Rng, Uuid};
use dendro_check::{FindingKind, Options, verify};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_format::{Entries, Key, Space, Value, node};
use dendro_images::forge::{Forge, by_input, fit};
use dendro_images::hostile;
use dendro_logdisk::{CleanSettings, LogDisk, OpenOptions};

use crate::common::new_disk;

#[test]
fn lies_are_answered_and_work_on_them_ends() {
    let forges = hostile::forges();
    let rng = &mut Rng::new(25);
    let (mut opened, mut refused, mut found) = (0, 0, HashSet::new());
    for _ in 0..400 {
        let mut input = [0; 48];
        rng.fill(&mut input);
        let image = by_input(&forges, &input);
        let report = verify(&MemoryDevice::from_bytes(&image), &Options { data: false });
        found.extend(report.findings.iter().map(|finding| finding.kind));
        dendro_check::testing::image(&image);
        match hostile::exercise(&image) {
            Some(_) => opened += 1,
            None => refused += 1,
        }
    }
    assert!(opened > 50 && refused > 50, "{opened} were read whole, {refused} were not");
    // Nobody notices a lie that is not told.
    for kind in [
        FindingKind::NodeLevel,
        FindingKind::NodeKeys,
        FindingKind::Overlap,
        FindingKind::UsageWrong,
        FindingKind::LiveBytesWrong,
        FindingKind::LogGoesOn,
    ] {
        assert!(found.contains(&kind), "{kind:?} is not among {found:?}");
    }
}

#[test]
fn a_segment_that_is_said_to_hold_more_than_fits_costs_no_more_than_the_device() {
    let forges = hostile::forges();
    // The first usage number of volumes, some of which have work left over that needs room.
    for forge in &forges {
        let image = forge.lying(&[3, 1, 0, 0, 1, 0, 7]);
        let device = Arc::new(MemoryDevice::from_bytes(&image));
        let clock = Arc::new(ManualClock::default());
        if let Ok(disk) = LogDisk::open(device, OpenOptions::default(), clock) {
            let written_bytes = disk.stats().written_bytes;
            assert!(written_bytes < 4 * image.len() as u64, "{written_bytes} bytes were written");
        }
    }
}

#[test]
fn numbers_at_the_end_of_their_range_are_refused_or_counted_on() {
    let forges = hostile::forges();
    for forge in &forges {
        // The clock of the log.
        hostile::exercise(&forge.lying(&[3, 0, 10, 0, 14]));
    }
    // The number of the log's first partial segment, and what follows from it.
    let input = [
        0xe2, 0xf6, 0x26, 0x95, 0x2a, 0x40, 0xcc, 0xef, 0x51, 0xce, 0xc4, 0xae, 0x61, 0x3c, 0xc2,
        0x75, 0xe3, 0xbd, 0x02, 0x25, 0xef,
    ];
    hostile::exercise(&by_input(&forges, &input));
}

const TRUE_LIST: Lid = Lid(1);
const FALSE_LIST: Lid = Lid(2);
const OTHER_LIST: Lid = Lid(3);
const PAGES: u64 = 8;
/// So often these pages are written anew: more than fits on the device.
const ROUNDS: u8 = 250;

fn page(list: Lid, index: u64, round: u8) -> Vec<u8> {
    // Bytes that take a whole block.
    let mut bytes = vec![0; PAGE_SIZE];
    Rng::new(list.0 << 16 | index << 8 | u64::from(round)).fill(&mut bytes);
    bytes
}

fn write(disk: &LogDisk, list: Lid, round: u8) -> dendro_disk::Result<()> {
    let mut aru = Aru::new(View::HEAD);
    for index in 0..PAGES {
        aru.write_pages(list, index, page(list, index, round));
    }
    disk.commit(aru)?;
    disk.flush(CommitSeq::LATEST)
}

/// A volume in which the second list names the blocks of the first: all of them, or in its first
/// page alone that of the last page of its own.
fn image(of_own: bool) -> Vec<u8> {
    let (disk, device) = new_disk(8 << 20, 128 << 10, OpenOptions::default());
    for list in [TRUE_LIST, OTHER_LIST, FALSE_LIST] {
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default()).put_record(list, 0, vec![1; 100]);
        disk.commit(aru).expect("the device works");
        // The lists lie in segments of their own.
        for _ in 0..5 {
            write(&disk, list, 0).expect("the device works");
        }
    }
    disk.shut_down().expect("the device works");
    let forge = Forge::new(&device.to_bytes()).expect("it is sound");
    let place = forge.nodes().next().expect("the map has a node");
    let image = forge.forge(|image| {
        let bytes = &mut image[place];
        let uuid = Uuid(bytes[24..40].try_into().expect("16 bytes"));
        let Ok((info, Entries::Leaf(mut entries))) = node::decode(bytes, &uuid) else {
            panic!("the map is one leaf");
        };
        let chunk_of = |list: Lid| {
            move |(key, _): &(Key, Value)| key.list == list.0 && key.space == Space::Chunks
        };
        let from = entries.iter().position(chunk_of(TRUE_LIST)).expect("it has pages");
        let to = entries.iter().position(chunk_of(FALSE_LIST)).expect("it has pages");
        let taken = entries[from].1.clone();
        match &mut entries[to].1 {
            Value::Chunk(chunk) if of_own => {
                let last = chunk.get(PAGES as u32 - 1).expect("it is there");
                Arc::make_mut(chunk).set(0, last);
            }
            value => *value = taken,
        }
        fit(&info, &mut entries, bytes.len());
        let (changed, _) = node::encode(&info, &Entries::Leaf(entries));
        bytes.copy_from_slice(&changed);
    });
    let report = verify(&MemoryDevice::from_bytes(&image), &Options { data: true });
    let is_overlap = |kind: &FindingKind| *kind == FindingKind::Overlap;
    assert!(report.findings.iter().map(|finding| finding.kind).any(|kind| is_overlap(&kind)));
    image
}

/// Each page of a list, if it is there, is one of `allowed`, or an error. Says how many are errors.
fn check_pages(disk: &LogDisk, list: Lid, allowed: impl Fn(u64) -> Vec<Vec<u8>>) -> u32 {
    let mut errors = 0;
    if matches!(disk.hints(View::HEAD, list), Ok(None)) {
        return errors;
    }
    for index in 0..PAGES {
        let mut bytes = vec![0; PAGE_SIZE];
        match disk.read_pages(View::HEAD, list, index, &mut bytes) {
            Ok(_) => assert!(allowed(index).contains(&bytes), "page {index} of list {}", list.0),
            Err(Error::Corrupted(_)) => errors += 1,
            Err(error) => panic!("page {index} of list {}: {error}", list.0),
        }
    }
    errors
}

/// Moves all that lies in dirty segments.
fn clean(disk: &LogDisk) {
    let min_clean_segments = Some(u32::MAX);
    disk.set_clean_settings(CleanSettings { min_clean_segments, ..disk.clean_settings() });
    assert!((0..10_000).any(|_| disk.clean_step() != Ok(true)), "cleaning has no end");
    assert!(disk.stats().moved_bytes > 0, "nothing was moved");
    disk.set_clean_settings(CleanSettings::default());
}

#[test]
fn two_entries_that_name_one_block_are_read_right_or_not_at_all() {
    for of_own in [false, true] {
        let image = image(of_own);
        dendro_check::testing::image(&image);
        hostile::exercise(&image);
        let of_false = |index: u64| match of_own {
            true if index == 0 => vec![page(FALSE_LIST, PAGES - 1, 0)],
            true => vec![page(FALSE_LIST, index, 0)],
            false => vec![page(TRUE_LIST, index, 0)],
        };
        for (first, is_cleaned) in
            [(TRUE_LIST, false), (FALSE_LIST, false), (TRUE_LIST, true), (FALSE_LIST, true)]
        {
            let device = Arc::new(MemoryDevice::from_bytes(&image));
            let open = || {
                let clock = Arc::new(ManualClock::default());
                LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock)
            };
            let disk = open().expect("nothing that opening needs is wrong");
            check_pages(&disk, TRUE_LIST, |index| vec![page(TRUE_LIST, index, 0)]);
            check_pages(&disk, FALSE_LIST, of_false);
            if is_cleaned {
                clean(&disk);
                check_pages(&disk, TRUE_LIST, |index| vec![page(TRUE_LIST, index, 0)]);
                check_pages(&disk, FALSE_LIST, of_false);
            }
            let mut errors = 0;
            for removed in [first, Lid(TRUE_LIST.0 + FALSE_LIST.0 - first.0)] {
                let mut aru = Aru::new(View::HEAD);
                aru.delete_list(removed);
                disk.commit(aru).expect("a list can be deleted");
                // What is free is written to, so that what was freed too early is another's then.
                for round in 1..=ROUNDS {
                    let _ = write(&disk, OTHER_LIST, round);
                    hostile::finish_background(&disk);
                    for _ in 0..4 {
                        let _ = disk.clean_step();
                    }
                }
                let _ = disk.checkpoint();
                check_pages(&disk, OTHER_LIST, |index| {
                    (0..=ROUNDS).map(|round| page(OTHER_LIST, index, round)).collect()
                });
                errors += check_pages(&disk, TRUE_LIST, |index| vec![page(TRUE_LIST, index, 0)]);
                errors += check_pages(&disk, FALSE_LIST, of_false);
            }
            assert!(of_own || is_cleaned || errors > 0, "what the second list named was kept");
            let _ = disk.shut_down();
            drop(disk);
            hostile::exercise(&device.to_bytes());
        }
    }
}
