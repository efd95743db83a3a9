//! Compressing what is there when a client asks for it.

use dendro_base::sync::Arc;
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, Lid, ListCompression, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_format::superblock::INCOMPATIBLE_COMPRESSION;
use dendro_logdisk::{Coalesced, Compression, LogDisk, Place};

use crate::compression::{PAGES, counted, device, list, noise, open, read, text, write};
use crate::frames::check_sound;

const HARD: Compression = Compression::Zstd { level: 15 };

/// Compresses what `view` sees of a list.
fn compress(disk: &LogDisk, view: View, list: Lid, with: Compression, is_trial: bool) -> Coalesced {
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let (from, until) = (Place { list: list.0, page: 0 }, Lid(list.0 + 1));
    let done = disk.compress(view, from, until, with, is_trial).expect("it works");
    assert_eq!(done.next, None, "{done:?}");
    done
}

fn data_bytes(disk: &LogDisk) -> u64 {
    disk.stats().live_bytes - disk.stats().node_bytes
}

/// Opens the disk again, as after a crash that lost nothing.
fn reopen(device: &Arc<MemoryDevice>, disk: LogDisk) -> LogDisk {
    disk.checkpoint().expect("there is room");
    drop(disk);
    open(device, None)
}

#[test]
fn what_is_there_is_compressed_where_that_takes_less_and_stays_what_it_is() {
    let device = device(None);
    let disk = open(&device, None);
    let hints = [ListCompression::AsOthers, ListCompression::AsOthers, ListCompression::Never];
    let [some, random, never] = hints.map(|hint| list(&disk, hint));
    let data = [text(1, PAGES), noise(PAGES), text(3, PAGES)];
    for (list, data) in [some, random, never].into_iter().zip(&data) {
        write(&disk, list, 0, data);
    }
    for list in [random, never] {
        assert_eq!(compress(&disk, View::HEAD, list, HARD, false).moved_bytes, 0);
    }
    let is_marked = |disk: &LogDisk| disk.superblock().incompatible & INCOMPATIBLE_COMPRESSION != 0;
    let before = data_bytes(&disk);
    let trial = compress(&disk, View::HEAD, some, HARD, true);
    assert!(data_bytes(&disk) == before && !is_marked(&disk));
    let done = compress(&disk, View::HEAD, some, HARD, false);
    assert!(is_marked(&disk));
    assert_eq!((done.moved_bytes, done.saved_bytes), (trial.moved_bytes, trial.saved_bytes));
    assert_eq!(done.saved_bytes, before - data_bytes(&disk));
    assert!(done.moved_bytes < PAGES * PAGE_SIZE as u64 / 5, "{done:?}");
    assert_eq!(compress(&disk, View::HEAD, some, Compression::Lz4, false).moved_bytes, 0);
    let after = disk.stats().compressed;

    let disk = reopen(&device, disk);
    for (list, data) in [some, random, never].into_iter().zip(&data) {
        assert!(read(&disk, View::HEAD, list, PAGES).expect("it is sound") == *data);
    }
    assert_eq!(disk.stats().compressed, after);
    assert_eq!(Some(counted(&device, disk)), after);
    check_sound(&device);
}

#[test]
fn frames_of_which_others_see_more_are_compressed_harder_whole() {
    let device = device(None);
    let disk = open(&device, None);
    let one = list(&disk, ListCompression::AsOthers);
    let mut data = text(1, PAGES);
    write(&disk, one, 0, &data);
    assert!(compress(&disk, View::HEAD, one, Compression::Lz4, false).saved_bytes > 0);
    let kept = disk.snapshot(0, None).expect("there is room").view();
    let old = data.clone();
    for page in (0..PAGES).step_by(5) {
        let new = text(page + 2, 1);
        write(&disk, one, page, &new);
        data[page as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&new);
    }
    let before = data_bytes(&disk);
    let done = compress(&disk, View::HEAD, one, HARD, false);
    assert!(done.saved_bytes > 0);
    assert_eq!(done.saved_bytes, before - data_bytes(&disk));
    let disk = reopen(&device, disk);
    assert!(read(&disk, View::HEAD, one, PAGES).expect("it is sound") == data);
    assert!(read(&disk, kept, one, PAGES).expect("it is sound") == old);
    drop(disk);
    check_sound(&device);
}

#[test]
fn a_full_volume_is_not_compressed_and_stays_as_it_is() {
    let device = device(None);
    let disk = open(&device, None);
    let one = list(&disk, ListCompression::AsOthers);
    for number in 0.. {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(one, number * 32, text(number, 32));
        if disk.commit(aru).is_err() {
            break;
        }
    }
    let before = data_bytes(&disk);
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let (from, until) = (Place { list: one.0, page: 0 }, Lid(one.0 + 1));
    let done = disk.compress(View::HEAD, from, until, HARD, false).expect("it is refused cleanly");
    assert!(done.lacks_room && done.next.is_some(), "{done:?}");
    assert_eq!(done.saved_bytes, before - data_bytes(&disk));
}
