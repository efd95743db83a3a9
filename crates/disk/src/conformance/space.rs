//! Space and reservations.

use super::rig::{Rig, noise};
use crate::model::ModelState;
use crate::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View};

/// What the figures may be off by, for what a disk stores besides the data.
const SLACK_BYTES: u64 = 256 << 10;

/// It grows by what is written and shrinks by what is deleted.
pub fn space_follows_what_is_stored(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let empty = disk.space();
    assert!(empty.available_bytes <= empty.capacity_bytes, "{empty:?}");
    assert_eq!(empty.reserved_bytes, 0);
    rig.push(Op::WritePages { list, first_page: 0, data: noise(1, 4 << 20).into() });
    let filled = disk.space();
    let grown = filled.live_bytes - empty.live_bytes;
    assert!(grown.abs_diff(4 << 20) <= SLACK_BYTES, "grown by {grown}");
    assert!(filled.available_bytes + (4 << 20) <= empty.available_bytes + SLACK_BYTES);
    rig.push(Op::WritePages { list, first_page: 0, data: noise(2, 4 << 20).into() });
    let rewritten = disk.space();
    assert!(rewritten.live_bytes <= filled.live_bytes + SLACK_BYTES, "{rewritten:?}");
    rig.push(Op::DeleteList { list });
    let deleted = disk.space();
    assert!(deleted.live_bytes <= empty.live_bytes + SLACK_BYTES, "{deleted:?}");
    assert_eq!(deleted.capacity_bytes, empty.capacity_bytes);
}

/// Used or dropped; more than there is cannot be had.
pub fn reservations_are_counted_and_given_back(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let before = disk.space();
    let reservation = disk.reserve(1 << 20).expect("a MiB");
    let reserved_bytes = reservation.len_bytes();
    assert!(((1 << 20)..(1 << 20) + SLACK_BYTES).contains(&reserved_bytes), "{reserved_bytes}");
    let during = disk.space();
    assert_eq!(during.reserved_bytes, reserved_bytes);
    assert!(during.available_bytes + (1 << 20) <= before.available_bytes, "{during:?}");
    assert!(matches!(disk.reserve(before.available_bytes + 1), Err(Error::NoSpace { .. })));
    assert!(matches!(disk.reserve(u64::MAX), Err(Error::NoSpace { .. })));
    rig.commit(|aru| {
        aru.write_pages(list, 0, noise(1, 1 << 20)).use_reservation(reservation);
    });
    assert_eq!(disk.space().reserved_bytes, 0);
    drop(disk.reserve(1 << 20).expect("a MiB"));
    assert_eq!(disk.space().reserved_bytes, 0);
    rig.check();
}

/// What is free is told, may be expected to grow, and is given back to the device without harm.
pub fn what_is_free_is_told_and_given_back_to_the_device(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.push(Op::WritePages { list, first_page: 0, data: noise(1, 4 << 20).into() });
    let free_bytes = disk.space().available_bytes;
    assert_eq!(disk.check_free(free_bytes / 2), Ok(()));
    assert!(matches!(disk.check_free(free_bytes * 2), Err(Error::NoSpace { .. })));
    let expected = disk.expect_release();
    rig.push(Op::PunchPages { list, first_page: 0, count: 512 });
    drop(expected);
    disk.flush(CommitSeq::LATEST).expect("flushed");
    disk.trim(0..u64::MAX).expect("all of it");
    disk.trim(5..5).expect("nothing of it");
    assert!(disk.space().available_bytes > free_bytes, "{:?}", disk.space());
    rig.check();
}

/// Fills a disk of at most 64 MiB by several threads, until it refuses everything, while others
/// commit units for which they have reserved what they take.
///
/// # Panics
/// When the disk does not do what it must.
pub fn what_is_reserved_stays_writable_while_others_fill_the_disk(disk: &dyn LogicalDisk) {
    const UNITS: u64 = 40;
    assert!(disk.space().capacity_bytes <= 64 << 20, "this would take long");
    let mut rig = Rig::new(disk);
    let lists: Vec<Lid> = (0..4).map(|_| rig.list()).collect();
    let unit = |list: Lid, number: u64| {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, number * 7, noise(number, 5 * PAGE_SIZE));
        aru.put_record(list, number, vec![number as u8; 1 + number as usize * 20]);
        aru
    };
    let payload_bytes = |number| unit(lists[0], number).payload_bytes();
    let reserved: Vec<Vec<_>> = lists[..2]
        .iter()
        .map(|_| {
            (0..UNITS).map(|number| disk.reserve(payload_bytes(number)).expect("room")).collect()
        })
        .collect();
    std::thread::scope(|scope| {
        for &list in &lists[2..] {
            scope.spawn(move || {
                fill_list(disk, list, 0, 8);
                fill_list(disk, list, 1 << 30, 1);
            });
        }
    });
    assert!(disk.reserve(4 << 20).is_err(), "the disk is full");
    std::thread::scope(|scope| {
        for (&list, reserved) in lists.iter().zip(reserved) {
            scope.spawn(move || {
                for (number, reservation) in (0..).zip(reserved) {
                    let mut aru = unit(list, number);
                    aru.use_reservation(reservation);
                    disk.commit(aru).expect("space was reserved for it");
                }
            });
        }
        // These find nothing, and must not take what is reserved.
        for &list in &lists[2..] {
            scope.spawn(move || {
                for number in 0..5 * UNITS {
                    fill_list(disk, list, (1 << 40) + number, 1);
                }
            });
        }
    });
    assert_eq!(disk.space().reserved_bytes, 0);
    for &list in &lists[..2] {
        for number in 0..UNITS {
            let mut page = vec![0; PAGE_SIZE];
            disk.read_pages(View::HEAD, list, number * 7, &mut page).expect("readable");
            assert_eq!(page, noise(number, 5 * PAGE_SIZE)[..PAGE_SIZE]);
        }
    }
}

/// Fills a disk of at most 64 MiB while units that move and exchange pages of a snapshot have
/// reserved what the copies of these pages take.
///
/// # Panics
/// When the disk does not do what it must.
pub fn pages_of_a_snapshot_are_moved_with_what_was_reserved_for_them(disk: &dyn Versions) {
    const PAGES: u64 = 1000;
    assert!(disk.space().capacity_bytes <= 64 << 20, "this would take long");
    let mut rig = Rig::new(disk);
    let lists: Vec<Lid> = (0..4).map(|_| rig.list()).collect();
    let data = noise(1, PAGES as usize * PAGE_SIZE);
    rig.commit(|aru| {
        aru.write_pages(lists[0], 0, data.clone());
    });
    let snapshot = disk.snapshot(View::HEAD.branch, None).expect("a snapshot").view();
    let mut moved = Aru::new(View::HEAD);
    moved.push(Op::MovePages {
        from: lists[0],
        from_page: 70,
        to: lists[1],
        to_page: 5,
        count: 600,
    });
    let mut swapped = Aru::new(View::HEAD);
    swapped.push(Op::SwapPages { a: lists[0], b: lists[2] });
    let left_bytes = (PAGES - 600) * PAGE_SIZE as u64;
    let reserved = [moved.payload_bytes(), swapped.payload_bytes() + left_bytes]
        .map(|len_bytes| disk.reserve(len_bytes).expect("room"));
    fill_list(disk, lists[3], 0, 8);
    fill_list(disk, lists[3], 1 << 30, 1);
    for (mut aru, reservation) in [moved, swapped].into_iter().zip(reserved) {
        aru.use_reservation(reservation);
        disk.commit(aru).expect("space was reserved for it");
    }
    assert_eq!(disk.space().reserved_bytes, 0);
    let mut seen = vec![0; data.len()];
    disk.read_pages(snapshot, lists[0], 0, &mut seen).expect("readable");
    assert_eq!(seen, data);
    let (before, rest) = data.split_at(70 * PAGE_SIZE);
    let (middle, behind) = rest.split_at(600 * PAGE_SIZE);
    for (list, first_page, expected) in
        [(lists[1], 5, middle), (lists[2], 0, before), (lists[2], 670, behind)]
    {
        let mut seen = vec![0; expected.len()];
        disk.read_pages(View::HEAD, list, first_page, &mut seen).expect("readable");
        assert!(seen == expected, "list {list:?} from page {first_page}");
    }
}

/// Writes units of so many pages to the list, from a page on, until there is no space.
fn fill_list<D: LogicalDisk + ?Sized>(disk: &D, list: Lid, first_page: u64, unit_pages: usize) {
    for page in (first_page..).step_by(unit_pages) {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, page, noise(page, unit_pages * PAGE_SIZE));
        match disk.commit(aru) {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => return,
            Err(error) => panic!("instead of NoSpace: {error}"),
        }
    }
}

/// Fills a disk of at most 64 MiB until it refuses, sees that nothing was lost, deletes, and writes
/// again. `background` is called after each commit for the work that a disk does on the side.
///
/// # Panics
/// When the disk does not do what it must.
pub fn a_full_disk_refuses_and_gives_space_back(
    disk: &dyn LogicalDisk,
    background: &mut dyn FnMut(),
) {
    let mut rig = Rig::new(disk);
    let capacity = disk.space().capacity_bytes;
    assert!(capacity <= 64 << 20, "this would take long with {capacity} bytes");
    for round in 0..3 {
        let lists = fill(&mut rig, capacity, background);
        rig.check();
        assert!(disk.read_only_reason().is_none(), "a full disk still takes deletions");
        let stored = ModelState::read_from(disk).expect("readable").live_bytes();
        assert!(stored >= capacity / 4, "round {round}: full with {stored} of {capacity} bytes");
        for list in lists {
            let mut aru = Aru::new(View::HEAD);
            aru.delete_list(list).set_reclaims();
            crate::model::apply(&mut rig.model, aru.ops()).expect("it is there");
            disk.commit(aru).expect("a deletion on a full disk");
            background();
        }
        rig.check();
    }
}

/// Writes lists of 256 KiB until there is no space, and returns them.
fn fill(rig: &mut Rig<'_>, capacity: u64, background: &mut dyn FnMut()) -> Vec<Lid> {
    const PIECE: usize = 64 * PAGE_SIZE;
    let mut lists = Vec::new();
    for seed in 0..=capacity / PIECE as u64 {
        let list = rig.disk.allocate_list().expect("a number");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        aru.put_record(list, 0, vec![1; 100]).write_pages(list, 0, noise(seed, PIECE));
        let mut changed = rig.model.clone();
        crate::model::apply(&mut changed, aru.ops()).expect("the unit is right");
        match rig.disk.commit(aru) {
            Ok(_) => {
                rig.model = changed;
                lists.push(list);
            }
            Err(Error::NoSpace { .. }) => return lists,
            Err(error) => panic!("instead of NoSpace: {error}"),
        }
        background();
    }
    panic!("{capacity} bytes took more than that");
}
