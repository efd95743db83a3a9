//! Versions cost what they hold, and give it back.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
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

    /// Fills a page with what `seed` makes.
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

    /// Does all background work, and verifies what lies on the device then. Returns how many pages
    /// the map names.
    fn settle(&self) -> u64 {
        while self.disk.background_step().expect("the disk works") {}
        self.disk.checkpoint().expect("the disk works");
        let report = dendro_check::verify(&*self.device, &dendro_check::Options { data: true });
        assert!(report.is_sound(), "{report}");
        report.counts.page_count
    }

    /// As after a crash that lost nothing.
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
fn what_deleted_versions_held_comes_back_to_the_block() {
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
    assert_eq!(rig.disk.versions().ancestors, []);
}

#[test]
fn the_cleaner_moves_what_only_snapshots_see_and_they_keep_it() {
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
    // Three times what the volume holds.
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
            break rig.disk.versions().snapshots[1].view();
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
fn a_held_snapshot_can_be_let_go_and_deleted_on_a_full_volume() {
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
    assert_eq!(rig.disk.superblock().incompatible, 0);
    rig.disk.snapshot(0, Some("ab")).expect("there is room");
    assert_ne!(rig.disk.superblock().incompatible, 0);
}

#[test]
fn holes_that_hide_nothing_do_not_pile_up() {
    let rig = Rig::new(32 * MIB);
    let list = rig.list(View::HEAD);
    let view = rig.disk.snapshot(0, None).expect("there is room").view();
    rig.disk.delete(view).expect("it is not held");
    rig.settle();
    let entries = |rig: &Rig| {
        let report = dendro_check::verify(&*rig.device, &dendro_check::Options::default());
        report.counts.entry_count
    };
    let before = entries(&rig);
    // A queue: what is written in front is taken away behind.
    for index in 0..3000 {
        rig.write(View::HEAD, list, index, index).expect("there is room");
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::PunchPages { list, first_page: index, count: 1 });
        rig.disk.commit(aru).expect("there is room");
    }
    rig.settle();
    assert!(entries(&rig) < before + 20, "{} entries after {before}", entries(&rig));
}

#[test]
fn space_of_deleted_versions_is_found_by_commits_and_reservations_on_a_full_volume() {
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
        let old = rig.disk.versions().snapshots[0].view();
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
