//! Versions cost what they hold, and deleting them gives it back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
use dendro_format::superblock::INCOMPATIBLE_VERSIONS;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const MIB: u64 = 1 << 20;

struct Rig {
    device: Arc<MemoryDevice>,
    disk: LogDisk,
}

fn open(device: &Arc<MemoryDevice>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device = Arc::clone(device) as Arc<dyn Device>;
    LogDisk::open(device, OpenOptions::default(), clock).expect("the disk works")
}

impl Rig {
    fn new(len_bytes: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(len_bytes));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
        format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock)
            .expect("the disk works");
        let disk = open(&device);
        Self { device, disk }
    }

    fn list(&self, view: View) -> Lid {
        let list = self.disk.allocate_list().expect("the disk works");
        let mut aru = Aru::new(view);
        aru.create_list(list, ListHints::default());
        self.disk.commit(aru).expect("the disk works");
        list
    }

    /// Fills a page with content made from `seed`.
    fn write(&self, view: View, list: Lid, page_index: u64, seed: u64) -> Result<(), Error> {
        let mut aru = Aru::new(view);
        aru.write_pages(list, page_index, page(seed));
        self.disk.commit(aru).map(drop)
    }

    fn holds(&self, view: View, list: Lid, page_index: u64, seed: u64) -> bool {
        let mut found = vec![0; PAGE_SIZE];
        self.disk.read_pages(view, list, page_index, &mut found).expect("the disk works");
        found == page(seed)
    }

    /// Performs all background work and verifies the image on the device. Returns how many pages
    /// the map names.
    fn settle(&self) -> u64 {
        while self.disk.background_step().expect("the disk works") {}
        self.disk.checkpoint().expect("the disk works");
        let report = dendro_check::verify(&*self.device, &dendro_check::Options { data: true });
        assert!(report.is_sound(), "{report}");
        report.counts.page_count
    }

    /// Returns how many entries the map on the device has that are not the disk's own.
    fn client_entries(&self) -> u64 {
        let options = dendro_check::Options::default();
        let counts = dendro_check::verify(&*self.device, &options).counts;
        counts.entry_count - counts.system_entry_count
    }

    /// Opens the volume again, as after a crash that lost nothing.
    fn reopen(self) -> Self {
        self.disk.flush(CommitSeq::LATEST).expect("the disk works");
        drop(self.disk);
        let disk = open(&self.device);
        Self { device: self.device, disk }
    }
}

fn page(seed: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    Rng::new(seed).fill(&mut page);
    page
}

#[test]
fn all_blocks_of_deleted_versions_are_freed() {
    let rig = Rig::new(64 * MIB);
    let list = rig.list(View::HEAD);
    for index in 0..500 {
        rig.write(View::HEAD, list, index, index).expect("the disk works");
    }
    assert_eq!(rig.settle(), 500);
    let mut views = Vec::new();
    for round in 1..=8 {
        views.push(rig.disk.snapshot(0, None).expect("the disk works").view());
        views.push(
            rig.disk.branch_off(views[0], &format!("b{round}")).expect("the disk works").head(),
        );
        for index in 0..100 {
            rig.write(View::HEAD, list, index * 5 % 500 + round, 1000 * round + index)
                .expect("the disk works");
            rig.write(views[views.len() - 1], list, index, round).expect("the disk works");
        }
    }
    assert_eq!(rig.settle(), 500 + 8 * 100 + 8 * 100);
    let mut rng = Rng::new(7);
    while !views.is_empty() {
        let view = views.swap_remove(rng.below(views.len() as u64) as usize);
        rig.disk.delete(view).expect("the disk works");
        if rng.chance(30) {
            rig.settle();
        }
    }
    // The last rounds wrote a little past the first 500.
    assert_eq!(rig.settle(), 504);
    let rig = rig.reopen();
    assert_eq!(rig.settle(), 504);
    assert_eq!(rig.disk.versions().ancestors().len(), 0);
}

#[test]
fn snapshots_keep_their_blocks_when_the_cleaner_moves_them() {
    const PAGES: u64 = 2000;
    let mut rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    for index in 0..PAGES {
        rig.write(View::HEAD, list, index, index).expect("the disk works");
    }
    let old = rig.disk.snapshot(0, Some("old")).expect("the disk works").view();
    let branch = rig.disk.branch_off(old, "branch").expect("the disk works").head();
    for index in (0..PAGES).step_by(3) {
        rig.write(branch, list, index, 5000 + index).expect("the disk works");
    }
    let mut rng = Rng::new(3);
    let mut newest: Vec<u64> = (0..PAGES).collect();
    // This is three times what the volume holds.
    for number in 0..36_000 {
        let index = rng.below(PAGES);
        newest[index as usize] = 10_000 + number;
        rig.write(View::HEAD, list, index, 10_000 + number).expect("the disk works");
        if number % 6000 == 0 {
            rig.disk.background_step().expect("the disk works");
        }
        if number == 20_000 {
            rig = rig.reopen();
        }
    }
    assert!(rig.disk.stats().moved_bytes > 0, "there was something to clean");
    for _ in 0..2 {
        for index in 0..PAGES {
            assert!(rig.holds(View::HEAD, list, index, newest[index as usize]));
            assert!(rig.holds(old, list, index, index));
            let of_branch = if index % 3 == 0 { 5000 + index } else { index };
            assert!(rig.holds(branch, list, index, of_branch));
        }
        rig.settle();
        rig = rig.reopen();
    }
}

#[test]
fn a_volume_that_snapshots_have_filled_is_freed_by_deleting_one() {
    let rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    let mut count = 0;
    let first = loop {
        let taken = rig.disk.snapshot(0, None);
        if taken.is_err()
            || (0..200).any(|index| rig.write(View::HEAD, list, index, count).is_err())
        {
            break rig.disk.versions().snapshots().nth(1).unwrap().view();
        }
        count += 1;
    };
    assert!(count > 10, "some fit: {count}");
    let refused = rig.write(View::HEAD, list, 300, 1);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    rig.disk.delete(first).expect("the disk works");
    for index in 0..50 {
        rig.write(View::HEAD, list, 300 + index, 2).expect("the disk works");
    }
    rig.settle();
}

#[test]
fn files_in_thousands_of_snapshots_are_found() {
    let rig = Rig::new(256 * MIB);
    let list = rig.list(View::HEAD);
    let mut views = Vec::new();
    for number in 1..=5000_u64 {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, 0, number.to_le_bytes().to_vec());
        aru.put_record(list, number, vec![1]);
        rig.disk.commit(aru).expect("the disk works");
        if number % 100 == 0 {
            rig.write(View::HEAD, list, number / 100 % 32, number).expect("the disk works");
        }
        views.push(rig.disk.snapshot(0, None).expect("the disk works").view());
    }
    let rig = rig.reopen();
    for number in (100..=5000_u64).step_by(613) {
        let view = views[number as usize - 1];
        let record =
            rig.disk.record(view, list, 0).expect("the disk works").expect("the disk works");
        assert_eq!(*record, number.to_le_bytes());
        assert_eq!(
            rig.disk.records(view, list, 1, 9000).expect("the disk works").len() as u64,
            number
        );
        let page_index = number / 100 % 32;
        assert!(rig.holds(view, list, page_index, number / 100 * 100));
    }
}

#[test]
fn a_held_snapshot_can_be_released_and_deleted_on_a_full_volume() {
    let rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    for index in 0..1000 {
        rig.write(View::HEAD, list, index, index).expect("there is room");
    }
    let held = rig.disk.snapshot(0, Some("held")).expect("there is room").view();
    rig.disk.hold(held, true).expect("there is room");
    while (0..1000).all(|index| rig.write(View::HEAD, list, index, 5).is_ok()) {
        let _ = rig.disk.snapshot(0, None);
    }
    assert!(matches!(rig.disk.delete(held), Err(Error::InUse(..))));
    rig.disk.hold(held, false).expect("it takes next to nothing");
    rig.disk.delete(held).expect("it takes next to nothing");
    rig.write(View::HEAD, list, 0, 6).expect("there is room again");
    rig.settle();
}

#[test]
fn a_unit_that_is_wrong_copies_no_shared_pages() {
    let rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    for index in 0..32 {
        rig.write(View::HEAD, list, index, index).expect("there is room");
    }
    rig.disk.snapshot(0, None).expect("there is room");
    let before = rig.disk.stats().live_bytes;
    let mut aru = Aru::new(View::HEAD);
    let (from, to) = (list, list);
    aru.push(Op::MovePages { from, from_page: 0, to, to_page: 100, count: 32 });
    aru.delete_list(Lid(99));
    assert_eq!(rig.disk.commit(aru), Err(Error::NoSuchList(Lid(99))));
    assert_eq!(rig.disk.stats().live_bytes, before);
}

#[test]
fn a_change_that_is_refused_does_not_mark_the_volume() {
    let rig = Rig::new(32 * MIB);
    assert!(rig.disk.snapshot(7, None).is_err());
    assert!(rig.disk.snapshot(0, Some("a/b")).is_err());
    let features = || rig.disk.superblock().incompatible;
    assert_eq!(features() & INCOMPATIBLE_VERSIONS, 0);
    rig.disk.snapshot(0, Some("ab")).expect("there is room");
    assert_ne!(features() & INCOMPATIBLE_VERSIONS, 0);
}

#[test]
fn holes_that_hide_nothing_are_pruned() {
    let rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    let view = rig.disk.snapshot(0, None).expect("there is room").view();
    rig.disk.delete(view).expect("it is not held");
    rig.settle();
    let before = rig.client_entries();
    // This is a queue: records are put at one end and deleted at the other.
    for index in 0..3000 {
        rig.write(View::HEAD, list, index, index).expect("there is room");
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::PunchPages { list, first_page: index, count: 1 });
        rig.disk.commit(aru).expect("there is room");
    }
    rig.settle();
    assert!(rig.client_entries() < before + 20, "{} entries after {before}", rig.client_entries());
}

#[test]
fn commits_and_reservations_on_a_full_volume_can_use_the_space_of_deleted_versions() {
    for reserves in [false, true] {
        let rig = Rig::new(32 * MIB);
        let list = rig.list(View::HEAD);
        let mut index = 0;
        while rig.write(View::HEAD, list, index, index).is_ok() {
            index += 1;
            if index == 3000 {
                rig.disk.snapshot(0, Some("old")).expect("there is room");
                (0..2000).for_each(|index| drop(rig.write(View::HEAD, list, index, 1)));
            }
        }
        let old = rig.disk.versions().snapshots().next().unwrap().view();
        rig.disk.delete(old).expect("it is not held");
        if reserves {
            rig.disk.reserve(2 << 20).expect("the deleted snapshot held as much");
        } else {
            (0..400).for_each(|more| {
                rig.write(View::HEAD, list, index + more, 2).expect("there is room again");
            });
        }
        assert_eq!(rig.disk.read_only_reason(), None);
        rig.settle();
    }
}

/// A device that counts what is read.
struct CountingDevice {
    device: Arc<MemoryDevice>,
    reads: AtomicU64,
}

impl Device for CountingDevice {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.device.write_at(offset, bytes)
    }

    fn flush(&self) -> dendro_device::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

const MANY_LISTS: u64 = 20_000;

/// Returns a disk with so many lists that the map has hundreds of leaves. Two snapshots differ in
/// ten of the lists, whose numbers are returned.
fn rig_with_many_lists() -> (Rig, View, View, Vec<Lid>) {
    let rig = Rig::new(64 * MIB);
    let put = |list, is_new, value: u8| {
        let mut aru = Aru::new(View::HEAD);
        if is_new {
            aru.create_list(list, ListHints::default());
        }
        aru.put_record(list, 0, vec![value; 200]);
        rig.disk.commit(aru).expect("there is room");
    };
    let lists: Vec<Lid> = (0..MANY_LISTS)
        .map(|_| {
            let list = rig.disk.allocate_list().expect("the disk works");
            put(list, true, 1);
            list
        })
        .collect();
    rig.settle();
    let before = rig.disk.snapshot(0, None).expect("there is room").view();
    let changed: Vec<Lid> = lists.into_iter().step_by(MANY_LISTS as usize / 10).collect();
    changed.iter().for_each(|&list| put(list, false, 2));
    let after = rig.disk.snapshot(0, None).expect("there is room").view();
    rig.settle();
    (rig, before, after, changed)
}

/// Opens the volume again with nothing in memory, and counts what `work` reads.
fn reads_of(rig: &Rig, work: impl FnOnce(&LogDisk)) -> u64 {
    let device = Arc::clone(&rig.device);
    let device = Arc::new(CountingDevice { device, reads: AtomicU64::new(0) });
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let disk = LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock)
        .expect("the disk works");
    device.reads.store(0, Ordering::Relaxed);
    work(&disk);
    device.reads.load(Ordering::Relaxed)
}

#[test]
fn comparing_versions_reads_only_where_they_differ() {
    let (rig, before, after, changed) = rig_with_many_lists();
    let max = usize::MAX;
    let compare = |disk: &LogDisk, a, b| disk.changed_lists(a, b, Lid(0), max).expect("it works");
    rig.disk.shut_down().expect("the disk works");
    let few = reads_of(&rig, |disk| assert_eq!(compare(disk, before, after), changed));
    assert!(few < 40, "{few} reads");
    // Nothing was written since the later snapshot.
    let none = reads_of(&rig, |disk| assert_eq!(compare(disk, after, View::HEAD), []));
    assert!(none < 4, "{none} reads");
    // Everything there differs from what a branch with nothing in it has.
    let all = reads_of(&rig, |disk| {
        let mut lists = 0;
        for list in 0..MANY_LISTS + 10 {
            let record = disk.record(before, Lid(list), 0).expect("it can be read");
            lists += usize::from(record.is_some());
        }
        assert_eq!(lists, MANY_LISTS as usize);
    });
    assert!(all > 400, "{all} reads");
}

#[test]
fn a_collection_reads_only_what_was_written_since_and_finds_all_of_it() {
    let (rig, before, after, _) = rig_with_many_lists();
    // A list of many leaves. Only its first entry states that it was deleted.
    let large = rig.list(View::HEAD);
    for index in 0..2000 {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(large, index, vec![3; 200]);
        rig.disk.commit(aru).expect("there is room");
    }
    let with_large = rig.disk.snapshot(0, None).expect("there is room").view();
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(large);
    rig.disk.commit(aru).expect("there is room");
    rig.settle();
    let all = rig.client_entries();
    let delete = |view| {
        move |disk: &LogDisk| {
            disk.delete(view).expect("it is not held");
            while disk.background_step().expect("the disk works") {}
            disk.shut_down().expect("the disk works");
        }
    };
    rig.disk.shut_down().expect("the disk works");
    let reads = reads_of(&rig, delete(with_large));
    assert!(reads < 2 * 2000 / 30 + 60, "{reads} reads");
    let rest = rig.client_entries();
    // The list, its records, and the tombstone that hid them.
    assert_eq!(all - rest, 2000 + 2);
    let reads = reads_of(&rig, delete(before));
    assert!(reads < 60, "{reads} reads");
    // The old records of the ten lists.
    assert_eq!(rest - rig.client_entries(), 10);
    reads_of(&rig, delete(after));
    let rig = rig.reopen();
    rig.settle();
    assert_eq!(rig.disk.versions().snapshots().len(), 0);
}

#[test]
fn a_collection_that_a_crash_interrupted_in_a_deleted_list_finds_the_rest() {
    let rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    for index in 0..2000 {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, index, vec![3; 200]);
        rig.disk.commit(aru).expect("there is room");
    }
    let view = rig.disk.snapshot(0, None).expect("there is room").view();
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(list);
    rig.disk.commit(aru).expect("there is room");
    rig.settle();
    rig.disk.delete(view).expect("it is not held");
    for _ in 0..3 {
        assert!(rig.disk.collection_step().expect("the disk works"));
        rig.disk.checkpoint().expect("the disk works");
    }
    let rig = rig.reopen();
    rig.settle();
    let report = dendro_check::verify(&*rig.device, &dendro_check::Options::default());
    // The counters of the versions are the only record.
    assert_eq!(report.counts.record_count, 1, "{report}");
}

#[test]
fn a_promoted_clone_keeps_nothing_that_it_replaced() {
    let rig = Rig::new(64 * MIB);
    let mut head = View::HEAD;
    let list = rig.list(head);
    for index in 0..500 {
        rig.write(head, list, index, index).expect("there is room");
    }
    let mut expected: Vec<u64> = (0..500).collect();
    for round in 1..=20 {
        let clone = rig.disk.branch_off(head, &format!("b{round}")).expect("there is room").head();
        let mut rewrite = |view, first: u64, count, seed| {
            for index in (first..first + count).map(|index| index % 500) {
                rig.write(view, list, index, seed + index).expect("there is room");
                expected[index as usize] = seed + index;
            }
        };
        // Pages are replaced while the parent is there, and after it was deleted.
        rewrite(clone, 37 * round, 50, 1000 * round);
        let short = rig.list(clone);
        rig.write(clone, short, 0, round).expect("there is room");
        rig.disk.promote(clone.branch).expect("it has a head");
        rig.disk.delete(head).expect("it is not the main one");
        if round % 3 == 0 {
            rig.settle();
        }
        rewrite(clone, 37 * round + 20, 60, 1_000_000 * round);
        let mut aru = Aru::new(clone);
        aru.delete_list(short);
        rig.disk.commit(aru).expect("there is room");
        head = clone;
        assert_eq!(rig.settle(), 500, "after {round} rounds");
    }
    for (index, seed) in (0..).zip(&expected) {
        assert!(rig.holds(head, list, index, *seed), "page {index}");
    }
    let rig = rig.reopen();
    assert_eq!(rig.settle(), 500);
    assert_eq!(rig.disk.lists(head, Lid(0), 10).expect("the disk works"), [list]);
}

#[test]
fn blocks_that_only_the_head_sees_are_freed_when_it_overwrites_them() {
    let rig = Rig::new(64 * MIB);
    let list = rig.list(View::HEAD);
    let write_both = |seed| {
        // The second write finds a chunk entry of its own to go into.
        for index in [1, 0] {
            rig.write(View::HEAD, list, index, seed + index).expect("there is room");
        }
    };
    write_both(10);
    let kept = rig.disk.snapshot(0, None).expect("there is room").view();
    write_both(20);
    let deleted = rig.disk.snapshot(0, None).expect("there is room").view();
    rig.disk.delete(deleted).expect("it is not held");
    assert_eq!(rig.settle(), 4);
    write_both(30);
    assert_eq!(rig.settle(), 4);
    for index in 0..2 {
        assert!(rig.holds(kept, list, index, 10 + index));
        assert!(rig.holds(View::HEAD, list, index, 30 + index));
    }
}

#[test]
fn replaced_blocks_stay_for_snapshots_and_sibling_branches_and_are_freed_with_them() {
    let rig = Rig::new(64 * MIB);
    let list = rig.list(View::HEAD);
    for index in 0..100 {
        rig.write(View::HEAD, list, index, index).expect("there is room");
    }
    let branch = |name| rig.disk.branch_off(View::HEAD, name).expect("there is room").head();
    let (next, brother) = (branch("next"), branch("brother"));
    let early = rig.disk.snapshot(next.branch, None).expect("there is room").view();
    for index in 0..100 {
        rig.write(next, list, index, 1000 + index).expect("there is room");
    }
    rig.disk.promote(next.branch).expect("it has a head");
    rig.disk.delete(View::HEAD).expect("it is not the main one");
    assert_eq!(rig.settle(), 200);
    let is_old = |view| (0..100).all(|index| rig.holds(view, list, index, index));
    assert!(is_old(early) && is_old(brother));
    rig.disk.delete(brother).expect("it is not the main one");
    assert_eq!(rig.settle(), 200);
    assert!(is_old(early));
    rig.disk.delete(early).expect("it is not held");
    assert_eq!(rig.settle(), 100);
    assert!((0..100).all(|index| rig.holds(next, list, index, 1000 + index)));
}

#[test]
fn deleting_the_last_snapshot_of_a_branch_without_a_head_frees_its_blocks() {
    let (rig, ..) = rig_with_many_lists();
    let branch = rig.disk.branch_off(View::HEAD, "branch").expect("there is room").branch;
    let head = View { branch, epoch: None };
    let change = |value: u8| {
        for list in (0..10).map(|number| Lid(Lid::FIRST.0 + 1900 * number)) {
            let mut aru = Aru::new(head);
            aru.put_record(list, 0, vec![value; 100]);
            rig.disk.commit(aru).expect("there is room");
        }
        rig.disk.snapshot(branch, None).expect("there is room").view()
    };
    let (first, last) = (change(3), change(4));
    rig.settle();
    let all = rig.client_entries();
    rig.disk.delete(head).expect("it is not the main one");
    rig.settle();
    // Nothing newer is left beside what the snapshot saw.
    rig.disk.delete(last).expect("it is not held");
    rig.settle();
    assert_eq!(all - rig.client_entries(), 10);
    rig.disk.delete(first).expect("it is not held");
    rig.settle();
    assert_eq!(all - rig.client_entries(), 20);
}

/// Pages that are rarely written lie far below those that are written in every epoch.
#[test]
fn every_version_of_a_chunk_with_a_long_history_keeps_its_content() {
    const VERSIONS: u64 = 300;
    let mut rig = Rig::new(64 * MIB);
    let list = rig.list(View::HEAD);
    let mut rng = Rng::new(11);
    let mut now: Vec<Option<u64>> = vec![None; 32];
    let mut kept: Vec<(View, Vec<Option<u64>>)> = Vec::new();
    // The moments that branches were made from, with their content; and heads that are not written
    // any more.
    let mut forks: Vec<(View, Vec<Option<u64>>)> = Vec::new();
    let mut heads: Vec<(View, Vec<Option<u64>>)> = Vec::new();
    let mut branch = View::HEAD;
    for number in 0..VERSIONS {
        // Half of all changes are of one page. The others are of pages that are rarer the higher
        // their index is.
        let bound = 1 + rng.below(32);
        let slot = if rng.chance(50) { 3 } else { rng.below(bound) };
        if rng.chance(10) {
            let mut aru = Aru::new(branch);
            aru.punch_pages(list, slot, 1);
            rig.disk.commit(aru).expect("the disk works");
            now[slot as usize] = None;
        } else {
            rig.write(branch, list, slot, number).expect("the disk works");
            now[slot as usize] = Some(number);
        }
        let snapshot = rig.disk.snapshot(branch.branch, None).expect("the disk works").view();
        kept.push((snapshot, now.clone()));
        if rng.chance(20) {
            let (view, _) = kept.swap_remove(rng.below(kept.len() as u64) as usize);
            rig.disk.delete(view).expect("it is a snapshot");
        }
        match rng.below(60) {
            0 => {
                heads.push((branch, now.clone()));
                branch = rig
                    .disk
                    .branch_off(branch, &format!("b{number}"))
                    .expect("the disk works")
                    .head();
                forks.push((branch, now.clone()));
            }
            1 => drop(rig.settle()),
            2 => rig = rig.reopen(),
            _ => {}
        }
        kept.push((branch, now.clone()));
        for (view, pages) in [&kept[kept.len() - 1], &kept[rng.below(kept.len() as u64) as usize]] {
            for (slot, seed) in (0..).zip(pages) {
                let is_as_it_was = match seed {
                    Some(seed) => rig.holds(*view, list, slot, *seed),
                    None => {
                        let mut found = vec![1; PAGE_SIZE];
                        rig.disk.read_pages(*view, list, slot, &mut found).expect("the disk works");
                        found.iter().all(|byte| *byte == 0)
                    }
                };
                assert!(is_as_it_was, "version {number}, {view:?}, page {slot}");
            }
        }
        kept.pop();
        if number % 25 == 0 {
            let mut views = [&kept[..], &heads[..]].concat();
            views.push((branch, now.clone()));
            compare_version_usage(&rig.disk, &views, &forks);
        }
    }
    rig.settle();
}

/// Compares the usage of versions with a model: each page of `views` was written once, with a
/// number of its own, and is 4 KiB.
fn compare_version_usage(
    disk: &LogDisk,
    views: &[(View, Vec<Option<u64>>)],
    forks: &[(View, Vec<Option<u64>>)],
) {
    let usages = disk.version_usage().expect("the map can be read");
    assert_eq!(usages.len(), views.len());
    for (view, pages) in views {
        let usage = usages.iter().find(|usage| usage.view == *view).expect("it is listed");
        let others = || views.iter().chain(forks).filter(|(other, _)| other != view);
        let is_alone = |page: &&u64| others().all(|(_, pages)| !pages.contains(&Some(**page)));
        // What a version has changed since it was made is kept for it too.
        let mut mine: Vec<&u64> = views
            .iter()
            .chain(forks)
            .filter(|(other, _)| other == view)
            .flat_map(|(_, pages)| pages.iter().flatten())
            .collect();
        mine.sort_unstable();
        mine.dedup();
        let len = PAGE_SIZE as u64;
        assert_eq!(usage.seen_bytes, len * pages.iter().flatten().count() as u64, "{view:?}");
        let alone = mine.into_iter().filter(is_alone).count() as u64;
        assert_eq!(usage.exclusive_bytes, len * alone, "{view:?}");
    }
    let all: Vec<View> = views.iter().map(|(view, _)| *view).collect();
    for step in 2..5 {
        let together: Vec<View> = all.iter().copied().step_by(step).collect();
        let pages_of = |are_within: bool| -> BTreeSet<u64> {
            let of = views.iter().chain(forks);
            of.filter(|(view, _)| together.contains(view) == are_within)
                .flat_map(|(_, pages)| pages.iter().flatten().copied())
                .collect()
        };
        let freed = pages_of(true).difference(&pages_of(false)).count() as u64;
        let freed_by = disk.freed_by(&together).expect("the map can be read");
        assert_eq!(freed_by, PAGE_SIZE as u64 * freed, "{together:?}");
    }
}

#[test]
fn blocks_of_a_moment_are_freed_with_the_last_branch_made_from_it() {
    let rig = Rig::new(64 * MIB);
    let list = rig.list(View::HEAD);
    rig.write(View::HEAD, list, 0, 1).expect("there is room");
    let moment = rig.disk.snapshot(0, None).expect("there is room").view();
    let branch = |name| rig.disk.branch_off(moment, name).expect("there is room").head();
    let (a, b) = (branch("a"), branch("b"));
    rig.disk.delete(moment).expect("it is not held");
    for (view, seed) in [(View::HEAD, 2), (a, 3), (b, 4)] {
        rig.write(view, list, 0, seed).expect("there is room");
    }
    let pages_freed_by =
        |views: &[View]| rig.disk.freed_by(views).expect("the map can be read") / PAGE_SIZE as u64;
    assert_eq!(pages_freed_by(&[a]), 1);
    assert_eq!(pages_freed_by(&[b, View::HEAD]), 2);
    assert_eq!(pages_freed_by(&[a, b]), 3);
    for branch in [a, b] {
        rig.disk.delete(branch).expect("it is not the main one");
    }
    assert_eq!(rig.settle(), 1);
}

#[test]
fn blocks_replaced_by_a_branch_and_its_clone_are_freed_before_the_disk_is_full() {
    let rig = Rig::new(64 * MIB);
    let capacity = rig.disk.space().capacity_bytes;
    let page_count = capacity * 3 / 10 / PAGE_SIZE as u64;
    let list = rig.list(View::HEAD);
    for index in 0..page_count {
        rig.write(View::HEAD, list, index, index).expect("the disk works");
    }
    let clone = rig.disk.branch_off(View::HEAD, "clone").expect("the disk works").head();
    for index in 0..page_count {
        rig.write(View::HEAD, list, index, 1).expect("the disk works");
        rig.write(clone, list, index, 2).expect("the disk works");
    }
    // Nine tenths of the volume are in use, and two are wanted.
    let other = rig.list(View::HEAD);
    for index in 0..page_count * 2 / 3 {
        rig.write(View::HEAD, other, index, 3).expect("what no version sees makes room");
    }
    assert!(rig.holds(View::HEAD, list, page_count - 1, 1));
    assert!(rig.holds(clone, list, page_count - 1, 2));
    assert_eq!(rig.settle(), 2 * page_count + page_count * 2 / 3);
    // What exists must fit.
    let error = (0..).map(|index| rig.write(clone, other, index, 4)).find_map(Result::err);
    assert!(matches!(error, Some(Error::NoSuchList(_))));
    let more = rig.list(clone);
    let error = (0..).map(|index| rig.write(clone, more, index, 4)).find_map(Result::err);
    assert!(matches!(error, Some(Error::NoSpace { .. })), "{error:?}");
}
