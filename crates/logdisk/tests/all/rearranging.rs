//! Units that punch, move or exchange more than is done at once: nobody sees a part of them, and
//! others do not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dendro_base::Rng;
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, LogicalDisk, MAX_PAGE_COUNT, Op, PAGE_SIZE, Versions, View,
};
use dendro_format::superblock::INCOMPATIBLE_REARRANGEMENTS;
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::common::{clock, formatted, new_list};

/// Groups of the lists: more than a unit changes at once.
const GROUPS: u64 = 2_500;
const HEAD: View = View::HEAD;

/// A list with `pages_per_group` pages in each group, of which each says its number and `mark`.
fn filled(disk: &LogDisk, mark: u8, pages_per_group: u64) -> Lid {
    let list = new_list(disk);
    for first in (0..GROUPS).step_by(500) {
        let mut aru = Aru::new(HEAD);
        for group in first..first + 500 {
            let pages = (group * 32..).take(pages_per_group as usize);
            let data = pages.flat_map(|page| content(mark, page)).collect::<Vec<u8>>();
            aru.write_pages(list, group * 32, data);
        }
        disk.commit(aru).expect("there is room");
    }
    list
}

fn content(mark: u8, page: u64) -> Vec<u8> {
    let mut bytes = vec![mark];
    bytes.extend_from_slice(&page.to_le_bytes());
    bytes.resize(PAGE_SIZE, 0);
    bytes
}

/// The page that is at `page`, by its mark and number; `None` for a hole.
fn page_at(disk: &LogDisk, view: View, list: Lid, page: u64) -> Option<(u8, u64)> {
    let mut bytes = [0; PAGE_SIZE];
    disk.read_pages(view, list, page, &mut bytes).expect("it can be read");
    let number = u64::from_le_bytes(bytes[1..9].try_into().expect("these are eight"));
    (bytes[0] != 0).then_some((bytes[0], number))
}

fn commit(disk: &LogDisk, op: Op<'static>) {
    let mut aru = Aru::new(HEAD);
    aru.push(op);
    disk.commit(aru).expect("there is room");
}

const fn move_all(from: Lid, to: Lid, by: u64) -> Op<'static> {
    Op::MovePages { from, from_page: 0, to, to_page: by, count: MAX_PAGE_COUNT - by }
}

fn count(disk: &LogDisk, view: View, list: Lid) -> u64 {
    disk.count_pages(view, list, 0..MAX_PAGE_COUNT).expect("it can be read")
}

#[test]
fn the_unit_commits_with_little_written_and_states_its_feature_first() {
    let (_device, disk) = formatted(64 << 20);
    let (list, other) = (filled(&disk, b'a', 1), filled(&disk, b'b', 1));
    disk.checkpoint().unwrap();
    assert_eq!(disk.superblock().incompatible & INCOMPATIBLE_REARRANGEMENTS, 0);
    for op in [
        move_all(list, other, 7),
        Op::SwapPages { a: list, b: other },
        move_all(list, list, 100),
        Op::PunchPages { list, first_page: 5, count: MAX_PAGE_COUNT - 5 },
    ] {
        disk.flush(CommitSeq::LATEST).unwrap();
        let (before, dirty) = (disk.stats().written_bytes, disk.stats().dirty_node_bytes);
        commit(&disk, op);
        assert!(disk.stats().dirty_node_bytes < dirty + (64 << 10), "a few nodes are dirtied");
        disk.flush(CommitSeq::LATEST).unwrap();
        let written = disk.stats().written_bytes - before;
        assert!(written <= 16 << 10, "{written} bytes are written");
        assert!(disk.rearrangement_step().unwrap(), "there is much to do");
        while disk.rearrangement_step().unwrap() {}
    }
    assert_ne!(disk.superblock().incompatible & INCOMPATIBLE_REARRANGEMENTS, 0);
}

#[test]
fn a_crash_between_two_steps_leaves_the_unit_whole_to_all_who_open_the_volume() {
    // Where page 32 × 2,000 of the first list is afterwards, and how many pages both have.
    type Case = (fn(Lid, Lid) -> Op<'static>, Option<(bool, u64)>, (u64, u64));
    let cases: [Case; 5] = [
        (|a, b| move_all(a, b, 3), Some((true, 64_003)), (0, GROUPS + 1)),
        (|a, _| move_all(a, a, 45), Some((false, 64_045)), (GROUPS, GROUPS)),
        (
            |a, _| Op::MovePages { from: a, from_page: 33, to: a, to_page: 0, count: 1 << 30 },
            Some((false, 63_967)),
            (GROUPS - 2, GROUPS),
        ),
        (|a, b| Op::SwapPages { a, b }, Some((true, 64_000)), (GROUPS, GROUPS)),
        (|a, _| Op::PunchPages { list: a, first_page: 40, count: 1 << 40 }, None, (2, GROUPS)),
    ];
    for (at, (op, place, counts)) in cases.into_iter().enumerate() {
        for (step_count, has_snapshot) in [(0, false), (3, false), (17, true), (60, false)] {
            let (device, disk) = formatted(64 << 20);
            let lists = [filled(&disk, b'a', 1), filled(&disk, b'b', 1)];
            let snapshot = has_snapshot.then(|| disk.snapshot(0, Some("before")).unwrap());
            commit(&disk, op(lists[0], lists[1]));
            disk.flush(CommitSeq::LATEST).unwrap();
            for _ in 0..step_count {
                disk.rearrangement_step().unwrap();
            }
            if at % 2 == 0 {
                disk.checkpoint().unwrap();
            } else {
                disk.flush(CommitSeq::LATEST).unwrap();
            }
            // It is not shut down.
            drop(disk);
            for read_only in [true, false, true] {
                let options = OpenOptions { read_only, ..OpenOptions::default() };
                let disk = LogDisk::open(Arc::clone(&device), options, clock()).unwrap();
                let found = lists.map(|list| count(&disk, HEAD, list));
                assert_eq!(found, [counts.0, counts.1], "case {at}, {step_count} steps");
                if let Some((is_other, page)) = place {
                    let list = lists[usize::from(is_other)];
                    assert_eq!(page_at(&disk, HEAD, list, page), Some((b'a', 64_000)));
                }
                if let Some(snapshot) = &snapshot {
                    let view = snapshot.view();
                    assert_eq!(page_at(&disk, view, lists[0], 64_000), Some((b'a', 64_000)));
                    assert_eq!(lists.map(|list| count(&disk, view, list)), [GROUPS; 2]);
                }
            }
        }
    }
}

#[test]
fn who_asks_for_the_pages_or_makes_a_version_sees_all_of_it_and_others_do_not_wait() {
    let (_device, disk) = formatted(64 << 20);
    let (list, other) = (filled(&disk, b'a', 1), filled(&disk, b'b', 1));
    let beside = filled(&disk, b'c', 1);
    let is_unfinished = || disk.rearrangement_step().unwrap();
    commit(&disk, move_all(list, other, 0));
    assert_eq!(page_at(&disk, HEAD, beside, 32), Some((b'c', 32)));
    commit(&disk, Op::PunchPages { list: beside, first_page: 0, count: 64 });
    assert_eq!(disk.record(HEAD, list, 0).unwrap(), None);
    assert!(is_unfinished(), "nothing of that waits");
    assert_eq!(page_at(&disk, HEAD, other, 64), Some((b'a', 64)));
    assert!(!is_unfinished());

    commit(&disk, Op::SwapPages { a: list, b: other });
    assert!(is_unfinished());
    let snapshot = disk.snapshot(0, None).unwrap();
    assert!(!is_unfinished());
    assert_eq!(count(&disk, snapshot.view(), list), GROUPS);

    commit(&disk, move_all(list, other, 0));
    assert!(is_unfinished());
    // The snapshot has what is moved, so copies are made.
    let mut aru = Aru::new(HEAD);
    aru.delete_list(list);
    disk.commit(aru).unwrap();
    assert!(!is_unfinished());
    assert_eq!((count(&disk, HEAD, other), count(&disk, snapshot.view(), list)), (GROUPS, GROUPS));
}

#[test]
fn readers_on_other_threads_never_see_a_part() {
    let (_device, disk) = formatted(64 << 20);
    let (list, other) = (filled(&disk, b'a', 1), filled(&disk, b'b', 1));
    let is_over = AtomicBool::new(false);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..60 {
                commit(&disk, Op::SwapPages { a: list, b: other });
                while disk.rearrangement_step().unwrap() {}
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while goes_on() {
                disk.background_step().unwrap();
            }
        });
        let mut rng = Rng::new(1);
        while goes_on() {
            let page = rng.below(GROUPS) * 32;
            let found = page_at(&disk, HEAD, list, page);
            assert!(found == Some((b'a', page)) || found == Some((b'b', page)), "{found:?}");
            assert_eq!(count(&disk, HEAD, list), GROUPS);
        }
    });
}

#[test]
fn what_would_not_fit_is_refused_before_anything_has_changed() {
    let (_device, disk) = formatted(40 << 20);
    let list = filled(&disk, b'a', 4);
    let other = new_list(&disk);
    let snapshot = disk.snapshot(0, None).unwrap();
    let doomed = disk.branch_off(snapshot.view(), "doomed").unwrap().head();
    let ballast = new_list(&disk);
    let mut page = 0;
    let full = loop {
        let mut aru = Aru::new(HEAD);
        aru.write_pages(ballast, page, vec![7; 64 << 10]);
        if let Err(error) = disk.commit(aru) {
            break error;
        }
        page += 16;
    };
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    // Each page would be copied, because the snapshot has it.
    let mut aru = Aru::new(HEAD);
    aru.push(move_all(list, other, 0));
    let refused = disk.commit(aru).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert_eq!((count(&disk, HEAD, list), count(&disk, HEAD, other)), (4 * GROUPS, 0));
    // What gives space back is not, even if the map becomes longer by it.
    let mut aru = Aru::new(doomed);
    aru.punch_pages(list, 0, MAX_PAGE_COUNT).set_reclaims();
    disk.commit(aru).unwrap();
    assert_eq!(count(&disk, doomed, list), 0);
    disk.delete(doomed).unwrap();
    let mut aru = Aru::new(HEAD);
    aru.punch_pages(ballast, 0, page).set_reclaims();
    disk.commit(aru).unwrap();
    disk.checkpoint().unwrap();
    disk.delete(snapshot.view()).unwrap();
    commit(&disk, move_all(list, other, 0));
    assert_eq!((count(&disk, HEAD, list), count(&disk, HEAD, other)), (0, 4 * GROUPS));
}

#[test]
fn who_compares_the_head_with_another_version_sees_the_unit_whole() {
    type Told = fn(&LogDisk, View, Lid) -> bool;
    let told: [Told; 3] = [
        |disk, before, list| {
            disk.changed_lists(before, HEAD, Lid(0), 9).expect("two views").contains(&list)
        },
        |disk, before, list| {
            let last = (GROUPS - 1) * 32;
            disk.changed_pages(before, HEAD, list, last) == Ok(Some(last..last + 1))
        },
        |disk, before, list| {
            disk.changes_along(&[before, HEAD], 9).expect("two views").0.contains(&(1, list))
        },
    ];
    for tells in told {
        let (_device, disk) = formatted(64 << 20);
        let (list, other) = (filled(&disk, b'a', 1), filled(&disk, b'b', 1));
        let before = disk.snapshot(0, None).expect("there is room").view();
        commit(&disk, Op::SwapPages { a: list, b: other });
        assert!(tells(&disk, before, list) && tells(&disk, before, other));
        assert!(!disk.rearrangement_step().unwrap(), "it was finished before");
    }
}
