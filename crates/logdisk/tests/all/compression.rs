//! Pages that are stored compressed.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_check::{Options, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListCompression, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions,
    View,
};
use dendro_format::CompressedPages;
use dendro_format::superblock::INCOMPATIBLE_COMPRESSION;
use dendro_logdisk::{
    CleanSettings, Compression, FormatOptions, LogDisk, OpenOptions, Place, format,
};

use crate::common::clock;

pub(crate) const PAGES: u64 = 96;

pub(crate) fn device(compression: Option<Compression>) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let options =
        FormatOptions { segment_size_bytes: 256 << 10, compression, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock())
        .expect("the device is large enough");
    device
}

pub(crate) fn open(
    device: &Arc<MemoryDevice>,
    compression: Option<Option<Compression>>,
) -> LogDisk {
    let options = OpenOptions { compression, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device) as Arc<dyn Device>, options, clock())
        .expect("it was formatted")
}

pub(crate) fn list(disk: &LogDisk, compression: ListCompression) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints { compression, ..ListHints::default() });
    disk.commit(aru).expect("there is room");
    list
}

pub(crate) fn text(seed: u64, pages: u64) -> Vec<u8> {
    let lines = (0..).flat_map(|line: u64| format!("line {line} of {seed}\n").into_bytes());
    lines.take(pages as usize * PAGE_SIZE).collect()
}

pub(crate) fn noise(pages: u64) -> Vec<u8> {
    let mut bytes = vec![0; pages as usize * PAGE_SIZE];
    Rng::new(9).fill(&mut bytes);
    bytes
}

pub(crate) fn write(disk: &LogDisk, list: Lid, first_page: u64, data: &[u8]) {
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages(list, first_page, data);
    disk.commit(aru).expect("there is room");
}

pub(crate) fn read(disk: &LogDisk, view: View, list: Lid, pages: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![1; pages as usize * PAGE_SIZE];
    disk.read_pages(view, list, 0, &mut bytes).map(|()| bytes)
}

/// The bytes that writing `data` to a new list takes.
fn stored_bytes(disk: &LogDisk, hint: ListCompression, data: &[u8]) -> u64 {
    let list = list(disk, hint);
    let before = disk.space().live_bytes;
    write(disk, list, 0, data);
    let bytes = disk.space().live_bytes - before;
    assert!(read(disk, View::HEAD, list, PAGES).expect("it is sound") == data);
    bytes
}

/// Flips a bit of the byte at `at` of the device.
pub(crate) fn flip(device: &MemoryDevice, at: u64) {
    let (start, mut block) = (at / 4096 * 4096, [0; 4096]);
    device.read_at(start, &mut block).expect("it is on the device");
    block[(at - start) as usize] ^= 4;
    device.write_at(start, &block).expect("it is on the device");
}

#[test]
fn lists_are_compressed_as_they_and_the_volume_ask_for() {
    let whole_bytes = PAGES * PAGE_SIZE as u64;
    let data = text(1, PAGES);
    for (made, opened, expected) in [
        (None, None, false),
        (Some(Compression::Lz4), None, true),
        (Some(Compression::ZSTD), Some(None), false),
        (None, Some(Some(Compression::Zstd { level: 9 })), true),
    ] {
        let disk = open(&device(made), opened);
        let is_small = |hint| stored_bytes(&disk, hint, &data) < whole_bytes / 2;
        assert_eq!(is_small(ListCompression::AsOthers), expected, "{made:?} {opened:?}");
        assert!(!is_small(ListCompression::Never));
        assert!(is_small(ListCompression::Lz4) && is_small(ListCompression::Zstd));
    }
}

#[test]
fn the_feature_is_set_when_something_is_to_be_compressed() {
    let is_set = |disk: &LogDisk| disk.superblock().incompatible & INCOMPATIBLE_COMPRESSION != 0;
    let made = device(None);
    let disk = open(&made, Some(Some(Compression::Lz4)));
    let plain = list(&disk, ListCompression::AsOthers);
    write(&disk, plain, 0, &noise(PAGES));
    write(&disk, plain, 200, &[7; 50]);
    assert!(!is_set(&disk), "nothing gained");
    // In another list, because compressing has gained nothing in that one.
    let other = list(&disk, ListCompression::AsOthers);
    write(&disk, other, 0, &text(1, 1));
    assert!(is_set(&disk));
    let disk = open(&device(None), None);
    list(&disk, ListCompression::Never);
    assert!(!is_set(&disk));
    list(&disk, ListCompression::Zstd);
    assert!(is_set(&disk), "the list asks for it");
    assert!(is_set(&open(&device(Some(Compression::ZSTD)), None)), "mkfs did");
}

#[test]
fn compressed_pages_survive_whatever_happens_to_them() {
    let device = device(Some(Compression::ZSTD));
    let disk = open(&device, None);
    let (one, other) = (list(&disk, ListCompression::AsOthers), list(&disk, ListCompression::Lz4));
    let mut expected = text(1, PAGES);
    write(&disk, one, 0, &expected);
    write(&disk, other, 0, &text(2, PAGES));
    let kept = disk.snapshot(0, None).unwrap();
    let before = expected.clone();
    // Pages of every kind replace each other, in place and not.
    for (round, page) in (0..PAGES).step_by(3).enumerate() {
        let data = match round % 3 {
            0 => noise(1),
            1 => text(round as u64, 1),
            _ => vec![5; 100],
        };
        for _ in 0..2 {
            write(&disk, one, page, &data);
        }
        let at = page as usize * PAGE_SIZE;
        expected[at..at + PAGE_SIZE].fill(0);
        expected[at..at + data.len()].copy_from_slice(&data);
    }
    // Pages that the snapshot shares are copied.
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::MovePages { from: other, from_page: 0, to: one, to_page: 40, count: 20 });
    disk.commit(aru).unwrap();
    let moved = 40 * PAGE_SIZE..60 * PAGE_SIZE;
    expected[moved].copy_from_slice(&text(2, PAGES)[..20 * PAGE_SIZE]);
    let check = |disk: &LogDisk| {
        assert!(read(disk, View::HEAD, one, PAGES).unwrap() == expected);
        assert!(read(disk, kept.view(), one, PAGES).unwrap() == before);
        assert!(read(disk, kept.view(), other, PAGES).unwrap() == text(2, PAGES));
    };
    check(&disk);
    disk.flush(CommitSeq::LATEST).unwrap();
    check(&disk);
    drop(disk);
    let disk = open(&device, Some(None));
    check(&disk);
    // All that is live moves.
    for _ in 0..200 {
        if !disk.clean_step().unwrap() {
            break;
        }
    }
    check(&disk);
    disk.shut_down().unwrap();
    drop(disk);
    let report = verify(&*device, &Options { data: true });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    check(&open(&device, None));
}

#[test]
fn damage_of_a_compressed_block_is_of_one_page() {
    let device = device(None);
    let disk = open(&device, None);
    let list = list(&disk, ListCompression::Zstd);
    let data = text(3, PAGES);
    write(&disk, list, 0, &data);
    disk.shut_down().unwrap();
    drop(disk);
    let disk = open(&device, None);
    assert!(read(&disk, View::HEAD, list, PAGES).unwrap() == data);
    let addr = disk.page_addr(View::HEAD, list, 33).unwrap().unwrap();
    let ends = disk.page_addr(View::HEAD, list, 34).unwrap().unwrap();
    assert!((1..2048).contains(&(ends - addr)), "they lie side by side");
    for at in [addr, addr + 20] {
        flip(&device, at);
        let mut page = [0; PAGE_SIZE];
        let read = disk.read_pages(View::HEAD, list, 33, &mut page);
        assert!(matches!(read, Err(Error::Corrupted(_))), "{read:?}");
        disk.read_pages(View::HEAD, list, 34, &mut page).unwrap();
        assert!(page[..] == data[34 * PAGE_SIZE..35 * PAGE_SIZE]);
        flip(&device, at);
    }
    assert!(read(&disk, View::HEAD, list, PAGES).unwrap() == data);
}

/// Checks that what the disk counts as compressed is what is found in it when it is closed.
/// Returns that.
pub(crate) fn counted(device: &Arc<MemoryDevice>, disk: LogDisk) -> CompressedPages {
    disk.checkpoint().expect("there is room");
    let stats = disk.stats();
    let counted = stats.compressed.expect("they are counted from the start");
    disk.shut_down().expect("there is room");
    drop(disk);
    let report = verify(&**device, &Options { data: false });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let counts = report.counts;
    let found = CompressedPages::new(counts.compressed_page_count, counts.compressed_bytes);
    assert_eq!(counted, found);
    let again = open(device, None).stats();
    assert_eq!((again.compressed, again.live_bytes), (Some(counted), counts.live_bytes));
    counted
}

#[test]
fn compressed_pages_are_counted_in_all_versions() {
    let device = device(None);
    assert_eq!(counted(&device, open(&device, None)), CompressedPages::default());
    let disk = open(&device, None);
    let (one, other) = (list(&disk, ListCompression::Lz4), list(&disk, ListCompression::Zstd));
    write(&disk, one, 0, &text(1, 64));
    write(&disk, other, 0, &text(2, 32));
    write(&disk, other, 32, &noise(8));
    let first = counted(&device, disk);
    assert_eq!(first.page_count(), 96);
    assert!(first.stored_bytes() < 96 * PAGE_SIZE as u64 / 2, "{first:?}");

    // What a snapshot keeps counts, and what is overwritten without one does not.
    let disk = open(&device, None);
    disk.snapshot(0, Some("kept")).unwrap();
    write(&disk, one, 0, &noise(16));
    write(&disk, one, 32, &text(5, 16));
    write(&disk, one, 32, &text(6, 16));
    let second = counted(&device, disk);
    assert_eq!(second.page_count(), 96 + 16);

    // A version takes what it takes, and would take what it has.
    let disk = open(&device, None);
    let usage = disk.version_usage().unwrap();
    let of = |view: View| usage.iter().find(|usage| usage.view == view).unwrap();
    let kept = disk.versions().snapshots().next().unwrap().view();
    assert_eq!(of(kept).seen_bytes, first.stored_bytes() + 8 * PAGE_SIZE as u64);
    assert_eq!(of(kept).seen_plain_bytes, 104 * PAGE_SIZE as u64);
    assert_eq!(of(View::HEAD).seen_plain_bytes, 104 * PAGE_SIZE as u64);
    disk.shut_down().unwrap();
    drop(disk);

    // After a crash the log is counted.
    let disk = open(&device, None);
    write(&disk, one, 0, &text(7, 8));
    disk.flush(CommitSeq::LATEST).unwrap();
    let before = disk.stats().compressed;
    drop(disk);
    let disk = open(&device, None);
    assert_eq!(disk.stats().compressed, before);
    assert_eq!(counted(&device, disk).page_count(), 96 + 16 + 8);

    // A failed unit changes nothing, and without the lists nothing is left.
    let disk = open(&device, None);
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages(one, 0, text(8, 8));
    aru.push(Op::DeleteList { list: Lid(9999) });
    assert!(disk.commit(aru).is_err());
    assert_eq!(disk.stats().compressed.unwrap().page_count(), 96 + 16 + 8);
    let kept = disk.versions().snapshots().next().unwrap().view();
    disk.delete(kept).unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::DeleteList { list: one });
    aru.push(Op::DeleteList { list: other });
    disk.commit(aru).unwrap();
    while disk.background_step().unwrap() {}
    assert_eq!(counted(&device, disk), CompressedPages::default());
}

#[test]
fn what_lists_take_is_told_exactly_for_each_alone() {
    let disk = open(&device(None), Some(Some(Compression::ZSTD)));
    let first = list(&disk, ListCompression::AsOthers);
    // It is laid down beside the first one, and looked at with it.
    let other = disk.allocate_list().unwrap();
    let mut aru = Aru::new(View::HEAD);
    let hints = ListHints { near: Some(first), ..ListHints::default() };
    aru.create_list(other, hints);
    disk.commit(aru).unwrap();
    let data_bytes = || disk.stats().live_bytes - disk.stats().node_bytes;
    for (list, data) in [
        (first, [text(1, 600), noise(3)].concat()),
        (other, [text(2, 9), noise(2), noise(1)[..100].to_vec()].concat()),
    ] {
        let before = data_bytes();
        let whole_bytes = data.len().next_multiple_of(PAGE_SIZE);
        let mut pages = data;
        pages.resize(whole_bytes, 0);
        write(&disk, list, 0, &pages);
        let stored_bytes = data_bytes() - before;
        let place = Place { list: list.0, page: 0 };
        let told = disk.coalesce(View::HEAD, place, Lid(list.0 + 1), true).unwrap();
        assert_eq!((told.stored_bytes, told.next), (stored_bytes, None));
        let tail_bytes = if list == other { PAGE_SIZE - 128 } else { 0 };
        assert_eq!(told.plain_bytes, (whole_bytes - tail_bytes) as u64);
    }
}

pub(crate) const COLD: Option<Option<Compression>> = Some(Some(Compression::Zstd { level: 9 }));

/// Opens the disk to be cleaned in idle steps. What is moved is compressed as `cold` says, and
/// cleaning is urgent with fewer clean segments than `least_clean`.
fn open_cold(
    device: &Arc<MemoryDevice>,
    cold: Option<Option<Compression>>,
    least_clean: Option<u32>,
) -> LogDisk {
    let cleaning = CleanSettings {
        min_clean_segments: least_clean,
        max_clean_segments: Some(1000),
        ..CleanSettings::default()
    };
    let options = OpenOptions { cold_compression: cold, cleaning, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device) as Arc<dyn Device>, options, clock())
        .expect("it was formatted")
}

const HINTS: [ListCompression; 3] =
    [ListCompression::AsOthers, ListCompression::Lz4, ListCompression::Never];

/// A volume with a list for each hint, and garbage between their pages. A snapshot has them all,
/// and the head has not the last one.
fn with_garbage(device: &Arc<MemoryDevice>) -> (Vec<Lid>, View) {
    let disk = open(device, None);
    let lists = HINTS.map(|hint| list(&disk, hint));
    let garbage = list(&disk, ListCompression::Never);
    for round in 0..8 {
        for list in lists {
            write(&disk, list, round * 32, &text(round, 32));
        }
        write(&disk, garbage, 0, &noise(64));
    }
    let kept = disk.snapshot(0, Some("kept")).expect("the name is new");
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(lists[2]);
    disk.commit(aru).expect("there is room");
    disk.shut_down().expect("there is room");
    (lists.to_vec(), kept.view())
}

pub(crate) fn clean_all(disk: &LogDisk) {
    for _ in 0..400 {
        if !disk.idle_step().expect("the device works") {
            break;
        }
    }
    disk.checkpoint().expect("there is room");
}

fn check_lists(disk: &LogDisk, lists: &[Lid], kept: View) {
    for (number, list) in lists.iter().enumerate() {
        for round in 0..8 {
            let mut pages = vec![1; 32 * PAGE_SIZE];
            let views = [kept, View::HEAD].into_iter().take(if number == 2 { 1 } else { 2 });
            for view in views {
                disk.read_pages(view, *list, round * 32, &mut pages).expect("it is there");
                assert!(pages == text(round, 32), "list {number}, round {round}");
            }
        }
    }
}

#[test]
fn what_the_cleaner_moves_is_compressed_harder_unless_its_list_is_not_to_be() {
    let device = device(None);
    let (lists, kept) = with_garbage(&device);
    let disk = open_cold(&device, COLD, None);
    let before = disk.stats();
    let lz4 = before.compressed.unwrap();
    assert_eq!(lz4.page_count(), 8 * 32);
    clean_all(&disk);
    let after = disk.stats();
    let zstd = after.compressed.unwrap();
    assert!(after.moved_bytes > 0);
    assert!(after.live_bytes < before.live_bytes - (128 << 10), "{before:?}, {after:?}");
    // The first list was not compressed, and the last one is not.
    assert!((300..=512).contains(&zstd.page_count()), "{zstd:?}");
    assert!(zstd.stored_bytes() < lz4.stored_bytes() * 2, "{zstd:?}, {lz4:?}");
    check_lists(&disk, &lists, kept);
    // After a crash it is the same.
    disk.flush(CommitSeq::LATEST).unwrap();
    drop(disk);
    let disk = open_cold(&device, COLD, None);
    check_lists(&disk, &lists, kept);
    assert_eq!(disk.stats().compressed, Some(zstd));
    assert_eq!(counted(&device, disk), zstd);
    let report = verify(&*device, &Options { data: true });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn nothing_is_compressed_where_cleaning_is_urgent_or_that_gains_nothing_or_must_not_be() {
    let device = device(None);
    let (lists, kept) = with_garbage(&device);
    // All segments should be clean, so they are always too few.
    let disk = open_cold(&device, COLD, Some(u32::MAX - 1));
    let before = disk.stats().compressed;
    clean_all(&disk);
    assert!(disk.stats().moved_bytes > 0);
    assert_eq!(disk.stats().compressed, before);
    check_lists(&disk, &lists, kept);
    drop(disk);

    let device = self::device(None);
    let disk = open(&device, None);
    let (one, other) =
        (list(&disk, ListCompression::AsOthers), list(&disk, ListCompression::Never));
    let garbage = list(&disk, ListCompression::Never);
    for round in 0..8 {
        write(&disk, one, round * 32, &noise(32));
        write(&disk, other, round * 32, &text(round, 32));
        write(&disk, garbage, 0, &noise(64));
    }
    disk.shut_down().unwrap();
    drop(disk);
    let disk = open_cold(&device, COLD, None);
    clean_all(&disk);
    assert!(disk.stats().moved_bytes > 0);
    assert_eq!(disk.stats().compressed.unwrap().page_count(), 0);
}

#[test]
fn mkfs_says_how_what_is_moved_is_compressed() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let options = FormatOptions {
        segment_size_bytes: 256 << 10,
        cold_compression: Some(Compression::ZSTD),
        ..FormatOptions::default()
    };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock()).unwrap();
    let (lists, kept) = with_garbage(&device);
    let disk = open_cold(&device, None, None);
    let before = disk.superblock();
    assert_eq!(before.cold_compression, Compression::byte(Some(Compression::ZSTD)));
    clean_all(&disk);
    assert!(disk.stats().compressed.unwrap().page_count() > 8 * 32);
    check_lists(&disk, &lists, kept);
}
