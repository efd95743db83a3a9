//! Frames: pages that were compressed together when they were moved.

use dendro_base::sync::Arc;
use dendro_check::{Options, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListCompression, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
use dendro_format::CompressedPages;
use dendro_format::superblock::INCOMPATIBLE_FRAMES;
use dendro_logdisk::external::{Block, BlockName, Rewritten};
use dendro_logdisk::{CleanSettings, CoalesceSettings, LogDisk, OpenOptions, Place};

use crate::common::clock;
use crate::compression::{
    COLD, PAGES, clean_all, counted, device, flip, list, noise, open, read, text, write,
};

/// A list whose pages were moved together, and what it holds.
fn framed(device: &Arc<MemoryDevice>) -> (LogDisk, Lid, Vec<u8>) {
    let disk = open(device, None);
    let one = list(&disk, ListCompression::AsOthers);
    let data = text(1, PAGES);
    write(&disk, one, 0, &data);
    disk.shut_down().expect("there is room");
    drop(disk);
    let disk = open_to_move(device);
    let end = Lid(one.0 + 1);
    disk.coalesce(View::HEAD, Place { list: one.0, page: 0 }, end, false).expect("there is room");
    fill_segments(&disk);
    assert_eq!(read(&disk, View::HEAD, one, PAGES).expect("it is sound"), data);
    (disk, one, data)
}

/// Opens the disk so that whatever is to be laid down together is moved.
fn open_to_move(device: &Arc<MemoryDevice>) -> LogDisk {
    let coalescing = CoalesceSettings { moves_everything: true, ..CoalesceSettings::default() };
    let cleaning =
        CleanSettings { max_clean_segments: Some(1000), coalescing, ..CleanSettings::default() };
    let options = OpenOptions { cold_compression: COLD, cleaning, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device) as Arc<dyn Device>, options, clock())
        .expect("it was formatted")
}

/// Writes so much that no segment that was being filled is any more.
fn fill_segments(disk: &LogDisk) {
    let garbage = list(disk, ListCompression::Never);
    (0..4).for_each(|_| write(disk, garbage, 0, &noise(64)));
    disk.flush(CommitSeq::LATEST).expect("the device works");
}

fn addr_of(disk: &LogDisk, list: Lid, page: u64) -> u64 {
    disk.page_addr(View::HEAD, list, page).expect("it can be read").expect("the page has a block")
}

/// The first pages of the frames that pages of the list lie in, and how many pages each has.
fn frames(disk: &LogDisk, list: Lid) -> Vec<(u64, u64)> {
    let addrs: Vec<u64> = (0..PAGES).map(|page| addr_of(disk, list, page)).collect();
    let mut found = Vec::new();
    let mut at = 0;
    for run in addrs.chunk_by(|a, b| a == b) {
        if run.len() > 1 {
            found.push((at, run.len() as u64));
        }
        at += run.len() as u64;
    }
    found
}

pub(crate) fn check_sound(device: &MemoryDevice) {
    let report = verify(device, &Options { data: true });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn pages_that_are_moved_together_share_a_block() {
    let device = device(None);
    let has_feature = |disk: &LogDisk| disk.superblock().incompatible & INCOMPATIBLE_FRAMES != 0;
    let (disk, list, data) = framed(&device);
    assert!(has_feature(&disk) && !has_feature(&open(&self::device(None), COLD)));
    let framed: u64 = frames(&disk, list).iter().map(|(_, count)| count).sum();
    assert!(framed > PAGES / 2, "{framed} pages lie in frames");
    // A page of a frame takes one read.
    let (first, count) = frames(&disk, list)[0];
    let before = disk.activity();
    let mut page = [0; PAGE_SIZE];
    disk.read_pages(View::HEAD, list, first + count - 1, &mut page).unwrap();
    assert_eq!(disk.activity(), before + 1);
    let at = (first + count - 1) as usize * PAGE_SIZE;
    assert!(page[..] == data[at..at + PAGE_SIZE]);
    // So do all of it together.
    let mut pages = vec![0; count as usize * PAGE_SIZE];
    disk.read_pages(View::HEAD, list, first, &mut pages).unwrap();
    assert_eq!(disk.activity(), before + 2);
    let before = disk.stats().compressed;
    let totals = counted(&device, disk);
    assert_eq!(before, Some(totals));
    check_sound(&device);
    assert_eq!(read(&open(&device, None), View::HEAD, list, PAGES).unwrap(), data);
}

#[test]
fn a_frame_is_live_as_long_as_one_of_its_pages_is() {
    let device = device(None);
    let (disk, list, mut data) = framed(&device);
    let (first, count) = frames(&disk, list)[0];
    let footprint = {
        // What the last of its pages gives back is what the frame takes.
        let (next, _) = frames(&disk, list)[1];
        addr_of(&disk, list, next) - addr_of(&disk, list, first)
    };
    assert!((1..=8192).contains(&footprint), "{footprint}: frames lie side by side");
    let live = |disk: &LogDisk| disk.stats().live_bytes - disk.stats().node_bytes;
    for page in first..first + count {
        let before = live(&disk);
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::PunchPages { list, first_page: page, count: 1 });
        disk.commit(aru).unwrap();
        let expected = if page + 1 == first + count { footprint } else { 0 };
        assert_eq!(before - live(&disk), expected, "page {page}");
        let at = page as usize * PAGE_SIZE;
        data[at..at + PAGE_SIZE].fill(0);
        assert_eq!(read(&disk, View::HEAD, list, PAGES).unwrap(), data);
    }
    // A crash, and what is counted then.
    let before = (live(&disk), disk.stats().compressed);
    disk.flush(CommitSeq::LATEST).unwrap();
    drop(disk);
    let disk = open(&device, None);
    assert_eq!((live(&disk), disk.stats().compressed), before);
    counted(&device, disk);
    check_sound(&device);
}

/// Lists, and what they hold.
type Left = [(Lid, Vec<u8>); 2];

/// Two lists of frames of which only the last two pages are left, in segments that have little
/// else; what the lists hold, and what is counted as compressed before and after that.
fn nearly_emptied(device: &Arc<MemoryDevice>) -> (LogDisk, Left, [CompressedPages; 2]) {
    let (disk, first, data) = framed(device);
    // Two segments are needed: what is moved out of one alone takes another one.
    let second = list(&disk, ListCompression::AsOthers);
    write(&disk, second, 0, &data);
    fill_segments(&disk);
    let end = Lid(second.0 + 1);
    disk.coalesce(View::HEAD, Place { list: second.0, page: 0 }, end, false)
        .expect("there is room");
    fill_segments(&disk);
    let before = disk.stats().compressed.expect("they are counted");
    let mut left = [(first, data.clone()), (second, data)];
    for (list, left) in &mut left {
        for (first_page, count) in frames(&disk, *list) {
            let mut aru = Aru::new(View::HEAD);
            aru.push(Op::PunchPages { list: *list, first_page, count: count - 2 });
            disk.commit(aru).expect("there is room");
            left[first_page as usize * PAGE_SIZE..][..(count - 2) as usize * PAGE_SIZE].fill(0);
        }
    }
    let punched = disk.stats().compressed.expect("they are counted");
    let mut aru = Aru::new(View::HEAD);
    for number in (0..second.0 + 10).filter(|number| ![first.0, second.0].contains(number)) {
        if disk.hints(View::HEAD, Lid(number)).expect("the map is sound").is_some() {
            aru.delete_list(Lid(number));
        }
    }
    disk.commit(aru).expect("there is room");
    while disk.background_step().expect("the device works") {}
    (disk, left, [before, punched])
}

#[test]
fn what_is_left_of_a_frame_is_put_into_a_smaller_one_when_it_is_moved() {
    let device = device(None);
    let (disk, left, [before, punched]) = nearly_emptied(&device);
    assert_eq!(punched.stored_bytes(), before.stored_bytes());
    clean_all(&disk);
    let after = disk.stats().compressed.unwrap();
    assert_eq!(after.page_count(), punched.page_count());
    assert!(after.stored_bytes() * 2 < before.stored_bytes(), "{before:?}, {after:?}");
    for (list, left) in &left {
        assert!(read(&disk, View::HEAD, *list, PAGES).unwrap() == *left);
    }
    counted(&device, disk);
    check_sound(&device);
}

#[test]
fn frames_outlive_whatever_happens_to_their_pages() {
    let device = device(None);
    let (disk, list, mut data) = framed(&device);
    let kept = disk.snapshot(0, None).unwrap().view();
    let kept_data = data.clone();
    let branch = disk.branch_off(kept, "branch").unwrap();
    for (round, page) in (0..PAGES).step_by(3).enumerate() {
        let page_data = if round % 2 == 0 { noise(1) } else { text(round as u64, 1) };
        write(&disk, list, page, &page_data);
        data[page as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page_data);
    }
    let check = |disk: &LogDisk, data: &[u8]| {
        assert!(read(disk, View::HEAD, list, PAGES).unwrap() == data);
        assert!(read(disk, kept, list, PAGES).unwrap() == kept_data);
        assert!(read(disk, branch.head(), list, PAGES).unwrap() == kept_data);
    };
    check(&disk, &data);
    // Pages of frames, which other versions see or not, move within a list and between lists.
    let other = self::list(&disk, ListCompression::AsOthers);
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::MovePages { from: list, from_page: 3, to: list, to_page: 50, count: 30 });
    disk.commit(aru).unwrap();
    let taken = data[3 * PAGE_SIZE..33 * PAGE_SIZE].to_vec();
    data[3 * PAGE_SIZE..33 * PAGE_SIZE].fill(0);
    data[50 * PAGE_SIZE..80 * PAGE_SIZE].copy_from_slice(&taken);
    check(&disk, &data);
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::SwapPages { a: list, b: other });
    disk.commit(aru).unwrap();
    assert!(read(&disk, View::HEAD, other, PAGES).unwrap() == data);
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::SwapPages { a: list, b: other });
    disk.commit(aru).unwrap();
    check(&disk, &data);
    // All of it is moved again, and laid down together.
    clean_all(&disk);
    check(&disk, &data);
    disk.coalesce(View::HEAD, Place { list: list.0, page: 0 }, Lid(list.0 + 1), false).unwrap();
    check(&disk, &data);
    write(&disk, other, 0, b"later");
    disk.flush(CommitSeq::LATEST).unwrap();
    let counts = disk.stats().compressed;
    drop(disk);
    let disk = open_to_move(&device);
    assert_eq!(disk.stats().compressed, counts);
    check(&disk, &data);
    counted(&device, disk);
    check_sound(&device);

    // A version takes what it takes, and gives back what was foretold.
    let disk = open_to_move(&device);
    let usage = disk.version_usage().unwrap();
    let exclusive: u64 = usage.iter().map(|usage| usage.exclusive_bytes).sum();
    assert!(exclusive < disk.stats().live_bytes, "{usage:?}");
    let views = [kept, branch.head()];
    let foretold = disk.freed_by(&views).unwrap();
    let live = |disk: &LogDisk| disk.stats().live_bytes - disk.stats().node_bytes;
    let before = live(&disk);
    views.iter().for_each(|view| disk.delete(*view).unwrap());
    while disk.background_step().unwrap() {}
    assert_eq!(before - live(&disk), foretold);
    assert!(read(&disk, View::HEAD, list, PAGES).unwrap() == data);
    counted(&device, disk);
    check_sound(&device);
}

/// Opens the disk anew, so that nothing of it is in memory, and damages what is stored at `at`.
fn damaged(device: &Arc<MemoryDevice>, disk: LogDisk, at: u64) -> LogDisk {
    disk.shut_down().expect("there is room");
    drop(disk);
    flip(device, at);
    open_to_move(device)
}

#[test]
fn damage_of_a_frame_is_of_its_pages_alone() {
    let device = device(None);
    let (mut disk, list, data) = framed(&device);
    let (first, count) = frames(&disk, list)[0];
    let addr = addr_of(&disk, list, first);
    for at in (0..600).step_by(60).map(|at| addr + at) {
        disk = damaged(&device, disk, at);
        for page in 0..PAGES {
            let mut bytes = [0; PAGE_SIZE];
            let read = disk.read_pages(View::HEAD, list, page, &mut bytes);
            if (first..first + count).contains(&page) {
                assert!(matches!(read, Err(Error::Corrupted(_))), "{read:?}");
            } else {
                read.unwrap();
                assert!(bytes[..] == data[page as usize * PAGE_SIZE..][..PAGE_SIZE]);
            }
        }
        flip(&device, at);
        assert!(read(&disk, View::HEAD, list, PAGES).unwrap() == data);
    }
}

#[test]
fn a_damaged_frame_stays_where_it_is_whoever_would_move_it() {
    let device = device(None);
    let (mut disk, left, _) = nearly_emptied(&device);
    let [(list, data), (_, _)] = &left;
    let last = (0..PAGES).rfind(|page| data[*page as usize * PAGE_SIZE] != 0).unwrap();
    let first = (0..PAGES).find(|page| data[*page as usize * PAGE_SIZE] != 0).unwrap();
    let (addr_of_first, addr) = (addr_of(&disk, *list, first), addr_of(&disk, *list, last));
    for at in (0..600).step_by(60).map(|at| addr + at) {
        disk = damaged(&device, disk, at);
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::MovePages { from: *list, from_page: last, to: *list, to_page: 500, count: 1 });
        assert!(matches!(disk.commit(aru), Err(Error::Corrupted(_))));
        let name = BlockName::Page { list: list.0, page_index: last, branch: 0, epoch: 1 };
        let block = Block { name, addr: dendro_format::Addr::from_bytes(addr) };
        assert_eq!(disk.rewrite(&[block]).unwrap(), [Rewritten::Unreadable]);
        let from = Place { list: list.0, page: 0 };
        let _ = disk.coalesce(View::HEAD, from, Lid(list.0 + 1), false);
        clean_all(&disk);
        assert_eq!(addr_of(&disk, *list, last), addr);
        flip(&device, at);
        assert!(read(&disk, View::HEAD, *list, PAGES).unwrap() == *data);
    }
    assert_ne!(addr_of(&disk, *list, first), addr_of_first, "others were moved");
}

#[test]
fn who_has_one_page_of_a_frame_written_again_has_all_of_it() {
    let device = device(None);
    let (disk, list, data) = framed(&device);
    let (first, count) = frames(&disk, list)[0];
    fill_segments(&disk);
    let addr = dendro_format::Addr::from_bytes(addr_of(&disk, list, first));
    let block = |page_index: u64| Block {
        name: BlockName::Page { list: list.0, page_index, branch: 0, epoch: 1 },
        addr,
    };
    let before = disk.stats().compressed;
    let outcomes = disk.rewrite(&[block(first + 1), block(first), block(99_999)]).unwrap();
    assert_eq!(outcomes, [Rewritten::Moved, Rewritten::Moved, Rewritten::Dead]);
    assert_eq!(disk.stats().compressed, before);
    let moved = addr_of(&disk, list, first);
    assert!((first..first + count).all(|page| addr_of(&disk, list, page) == moved));
    assert!(moved != addr.bytes());
    assert!(read(&disk, View::HEAD, list, PAGES).unwrap() == data);
    counted(&device, disk);
    check_sound(&device);
}
