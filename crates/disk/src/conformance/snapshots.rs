//! Moments that stay readable.

use std::sync::atomic::{AtomicBool, Ordering};

use super::rig::noise;
use super::versions::Rig;
use crate::{
    Aru, CommitSeq, Error, Lid, ListHints, Locality, MAX_PAGE_COUNT, Op, PAGE_SIZE, Versions, View,
};

const HEAD: View = View::HEAD;

/// What the figures may be off by, for what a disk stores besides the data.
const SLACK_BYTES: u64 = 256 << 10;

/// Number 0, called main, in epoch 1.
pub fn a_new_disk_has_one_branch_and_no_snapshots(disk: &dyn Versions) {
    let rig = Rig::new(disk);
    let table = disk.versions();
    assert_eq!(&table, rig.model.table());
    assert_eq!((table.main_head(), table.epoch, table.next_branch), (HEAD, 1, 1));
}

/// Each of three snapshots has the records of its time.
pub fn records_that_are_replaced_and_deleted_are_kept(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.commit(HEAD, |aru| {
        for index in 0..100 {
            aru.put_record(list, index, vec![1; 1 + index as usize]);
        }
    });
    let first = rig.snapshot(0);
    rig.commit(HEAD, |aru| {
        for index in (0..100).step_by(2) {
            aru.put_record(list, index, vec![2; 100]);
        }
        for index in (0..100).step_by(3) {
            aru.delete_record(list, index);
        }
    });
    let second = rig.snapshot(0);
    rig.commit(HEAD, |aru| {
        for index in (0..120).step_by(3) {
            aru.put_record(list, index, &b"three"[..]);
        }
        aru.delete_record(list, 1).put_record(list, u64::MAX, &b"last"[..]);
    });
    let third = rig.snapshot(0);
    rig.commit(HEAD, |aru| {
        for index in 0..200 {
            aru.delete_record(list, index);
        }
    });
    rig.check();
    assert_eq!(disk.record(first, list, 0), Ok(Some([1][..].into())));
    assert_eq!(disk.record(second, list, 0), Ok(None));
    assert_eq!(disk.record(third, list, 0), Ok(Some(b"three"[..].into())));
    assert_eq!(disk.records(HEAD, list, 0, 10).map(|records| records.len()), Ok(1));
}

/// Writes that cross, begin and end in groups of 32 pages, over one another.
pub fn pages_that_are_overwritten_in_part_are_kept(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.push(HEAD, Op::WritePages { list, first_page: 3, data: noise(1, 200 * PAGE_SIZE).into() });
    let ranges = [(0, 5), (31, 2), (32, 32), (60, 10), (64, 1), (95, 1), (3, 200), (150, 100)];
    for (seed, (first_page, count)) in (2..).zip(ranges) {
        rig.snapshot(0);
        let data = noise(seed, count * PAGE_SIZE).into();
        rig.push(HEAD, Op::WritePages { list, first_page, data });
        rig.check();
    }
    rig.snapshot(0);
    for page in (0..256).step_by(7) {
        rig.write(HEAD, list, page, "x");
    }
    rig.check();
}

/// And found: data, holes and counts are those of the time.
pub fn holes_and_pages_of_zeros_are_kept(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 20, "abcdefghijklmnopqrstuvwxyz");
    let full = rig.snapshot(0);
    rig.push(HEAD, Op::PunchPages { list, first_page: 24, count: 10 });
    let punched = rig.snapshot(0);
    rig.push(HEAD, Op::ZeroPages { list, first_page: 22, count: 6 });
    let zeroed = rig.snapshot(0);
    rig.write(HEAD, list, 26, "XY");
    rig.push(HEAD, Op::PunchPages { list, first_page: 0, count: MAX_PAGE_COUNT });
    let empty = rig.snapshot(0);
    rig.write(HEAD, list, MAX_PAGE_COUNT - 1, "z");
    rig.check();
    let seen = |view| {
        let data = disk.next_data(view, list, 24).expect("readable");
        let hole = disk.next_hole(view, list, 20).expect("readable");
        (data, hole, disk.count_pages(view, list, 0..MAX_PAGE_COUNT).expect("readable"))
    };
    assert_eq!(seen(full), (Some(24), 46, 26));
    assert_eq!(seen(punched), (Some(34), 24, 16));
    assert_eq!(seen(zeroed), (Some(24), 28, 20));
    assert_eq!(seen(empty), (None, 20, 0));
    assert_eq!(seen(HEAD), (Some(MAX_PAGE_COUNT - 1), 20, 1));
}

/// A page that was not whole, filled up, cut and filled up again.
pub fn tails_of_pages_are_kept(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    for (seed, len_bytes) in [(1, 100), (2, 4000), (3, 1), (4, 9000), (5, 4097)] {
        rig.push(
            HEAD,
            Op::WritePages { list, first_page: 31, data: noise(seed, len_bytes).into() },
        );
        rig.snapshot(0);
    }
    rig.check();
}

/// And lists() of each view has those of its time.
pub fn lists_that_are_deleted_are_kept_and_later_ones_are_not_seen(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let (kept, doomed) = (rig.list(HEAD), rig.list(HEAD));
    rig.write(HEAD, doomed, 0, "abc");
    rig.commit(HEAD, |aru| {
        aru.put_record(doomed, 7, &b"record"[..]);
    });
    let before = rig.snapshot(0);
    rig.push(HEAD, Op::DeleteList { list: doomed });
    let between = rig.snapshot(0);
    let later = rig.list(HEAD);
    rig.write(HEAD, later, 40, "xyz");
    rig.check();
    assert_eq!(disk.lists(before, Lid(0), 9), Ok(vec![kept, doomed]));
    assert_eq!(disk.lists(between, Lid(0), 9), Ok(vec![kept]));
    assert_eq!(disk.lists(HEAD, Lid(0), 9), Ok(vec![kept, later]));
    assert_eq!(disk.hints(between, doomed), Ok(None));
    assert_eq!(disk.record(before, doomed, 7), Ok(Some(b"record"[..].into())));
    rig.push(HEAD, Op::DeleteList { list: later });
    rig.push(HEAD, Op::DeleteList { list: kept });
    rig.check();
    rig.delete(between);
    rig.check();
    rig.delete(before);
    rig.check();
}

/// Those of the time.
pub fn hints_are_kept(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    let before = rig.snapshot(0);
    let hints = ListHints { locality: Locality::Clustered, ..ListHints::default() };
    rig.push(HEAD, Op::SetHints { list, hints });
    rig.check();
    assert_eq!(disk.hints(before, list), Ok(Some(ListHints::default())));
    assert_eq!(disk.hints(HEAD, list), Ok(Some(hints)));
}

/// Within a list, to another, overlapping, onto itself, and back.
pub fn pages_that_are_moved_or_swapped_are_kept(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let (one, other) = (rig.list(HEAD), rig.list(HEAD));
    rig.push(
        HEAD,
        Op::WritePages { list: one, first_page: 0, data: noise(1, 90 * PAGE_SIZE).into() },
    );
    rig.write(HEAD, other, 10, "abc.0.def");
    rig.snapshot(0);
    let moves = [
        (one, 5, one, 7, 40),
        (one, 7, one, 5, 40),
        (one, 30, other, 12, 50),
        (other, 12, one, 30, 50),
        (other, 0, other, 0, 100),
        (one, 0, other, MAX_PAGE_COUNT - 64, 64),
    ];
    for (from, from_page, to, to_page, count) in moves {
        rig.push(HEAD, Op::MovePages { from, from_page, to, to_page, count });
        rig.check();
        rig.snapshot(0);
    }
    rig.push(HEAD, Op::SwapPages { a: one, b: other });
    rig.check();
    rig.snapshot(0);
    rig.commit(HEAD, |aru| {
        aru.push(Op::SwapPages { a: one, b: other });
        aru.push(Op::WritePages { list: one, first_page: 2, data: noise(2, 9000).into() });
        aru.push(Op::MovePages { from: one, from_page: 0, to: other, to_page: 1, count: 40 });
        aru.delete_list(one);
    });
    rig.check();
    let snapshots: Vec<_> = rig.model.table().snapshots().map(|of| of.view()).collect();
    for view in snapshots {
        rig.delete(view);
        rig.check();
    }
}

/// Only when all are gone.
pub fn a_number_that_a_version_has_cannot_be_created(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, "abc");
    let view = rig.snapshot(0);
    let create = |aru: &mut Aru<'_>| {
        aru.create_list(list, ListHints::default());
    };
    let exists = Err(Error::ListExists(list));
    let recreated = rig.try_commit(HEAD, |aru| {
        aru.delete_list(list);
        create(aru);
    });
    assert_eq!(recreated, exists);
    let branch = rig.branch_off(HEAD, "b");
    rig.push(HEAD, Op::DeleteList { list });
    assert_eq!(rig.try_commit(HEAD, create), exists);
    rig.delete(view);
    assert_eq!(rig.try_commit(HEAD, create), exists, "the branch has it");
    rig.push(branch, Op::DeleteList { list });
    rig.delete(branch);
    rig.commit(HEAD, create);
    rig.check();
}

/// In the epoch in which it was made, and in later ones.
pub fn a_list_that_others_have_is_restored_and_goes_its_own_way(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let branches = [rig.branch_off(HEAD, "a"), rig.branch_off(HEAD, "b")];
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, &"m".repeat(70));
    rig.push(HEAD, Op::PutRecord { list, index: 1, value: b"main"[..].into() });
    let restore = |aru: &mut Aru<'_>| {
        aru.restore_list(list, ListHints::default());
    };
    assert_eq!(rig.try_commit(HEAD, restore), Err(Error::ListExists(list)));
    let mut views = vec![HEAD];
    for branch in branches {
        rig.commit(branch, restore);
        rig.check();
        assert_eq!(rig.try_commit(branch, restore), Err(Error::ListExists(list)));
        rig.write(branch, list, 3, "own");
        rig.push(branch, Op::PutRecord { list, index: 1, value: b"own"[..].into() });
        views.extend([branch, rig.snapshot(0)]);
        rig.check();
    }
    views.extend(branches.map(|branch| rig.snapshot(branch.branch)));
    for branch in branches {
        rig.push(branch, Op::DeleteList { list });
        rig.check();
    }
    rig.push(HEAD, Op::DeleteList { list });
    rig.check();
    for view in views.into_iter().filter(|view| view.epoch.is_some()) {
        rig.delete(view);
        rig.check();
    }
    // Nobody has it any more.
    rig.commit(HEAD, restore);
    rig.check();
}

/// Two of the same contents have different epochs.
pub fn a_snapshot_of_nothing_new_is_one_of_its_own(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    rig.snapshot(0);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, "a");
    let views = [rig.snapshot(0), rig.snapshot(0), rig.snapshot(0)];
    rig.write(HEAD, list, 0, "b");
    rig.delete(views[1]);
    rig.check();
    rig.delete(views[2]);
    rig.check();
    assert!(disk.versions().snapshots().map(|of| of.epoch).eq([1, 2]));
}

/// An epoch makes a view read-only, be it the latest.
pub fn commits_to_the_past_are_refused(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    let view = rig.snapshot(0);
    let answer = rig.try_commit(view, |aru| {
        aru.put_record(list, 0, &b"x"[..]);
    });
    assert_eq!(answer, Err(Error::NoSuchView(view)));
    rig.check();
}

/// No call takes a view that is not there; what changes versions does not either.
pub fn what_does_not_exist_cannot_be_read_or_changed(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, "a");
    let gone = rig.snapshot(0);
    let kept = rig.snapshot(0);
    rig.delete(gone);
    let no_head = rig.branch_off(HEAD, "b");
    rig.delete(no_head);
    let never = View { branch: 0, epoch: Some(kept.epoch.expect("a snapshot") + 1) };
    let views = [
        gone,
        no_head,
        never,
        View { branch: 0, epoch: Some(0) },
        View { branch: 0, epoch: Some(u64::MAX) },
        View { branch: 9, epoch: None },
        View { branch: 9, epoch: kept.epoch },
        View { branch: u32::MAX, epoch: Some(u64::MAX) },
    ];
    for view in views {
        let error = Error::NoSuchView(view);
        assert_eq!(disk.hints(view, list), Err(error.clone()));
        assert_eq!(disk.lists(view, Lid(0), 1), Err(error.clone()));
        assert_eq!(disk.record(view, list, 0), Err(error.clone()));
        assert_eq!(disk.records(view, list, 0, 1), Err(error.clone()));
        assert_eq!(disk.read_pages(view, list, 0, &mut [0; PAGE_SIZE]), Err(error.clone()));
        assert_eq!(disk.next_data(view, list, 0), Err(error.clone()));
        assert_eq!(disk.next_hole(view, list, 0), Err(error.clone()));
        assert_eq!(disk.count_pages(view, list, 0..1), Err(error.clone()));
        assert_eq!(disk.changed_lists(HEAD, view, Lid(0), 1), Err(error.clone()));
        assert_eq!(disk.changed_lists(view, HEAD, Lid(0), 1), Err(error.clone()));
        assert_eq!(disk.changed_records(view, HEAD, list, 0, 1), Err(error.clone()));
        assert_eq!(disk.changed_pages(HEAD, view, list, 0), Err(error.clone()));
        assert_eq!(rig.try_commit(view, |_| ()), Err(error.clone()));
        // What the unit does is not looked at.
        let beyond = rig.try_commit(view, |aru| {
            aru.write_bytes(list, u64::MAX - 1, &b"x"[..]);
        });
        assert_eq!(beyond, Err(error.clone()));
        assert_eq!(rig.try_branch_off(view, "new").map(drop), Err(error.clone()));
        assert_eq!(rig.rename(view, "new"), Err(error.clone()));
        assert_eq!(rig.hold(view, true), Err(error.clone()));
        assert_eq!(rig.try_delete(view), Err(error.clone()));
        assert_eq!(rig.try_roll_back(0, view).map(drop), Err(error));
    }
    let missing = Error::NoSuchView(View { branch: 9, epoch: None });
    assert_eq!(rig.try_snapshot(9, None).map(drop), Err(missing.clone()));
    assert_eq!(rig.promote(9), Err(missing.clone()));
    assert_eq!(rig.try_roll_back(9, kept).map(drop), Err(missing));
    rig.check();
}

/// Taken, wrong, and free again.
pub fn names_are_checked_and_changed(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let one = rig.try_snapshot(0, Some("one")).expect("a snapshot").view();
    let two = rig.try_snapshot(0, Some("two")).expect("a snapshot").view();
    let taken = Err(Error::NameTaken("one".into()));
    assert_eq!(rig.try_snapshot(0, Some("one")).map(drop), taken);
    assert_eq!(rig.rename(two, "one"), taken);
    assert!(rig.try_branch_off(HEAD, "main").is_err());
    for name in ["", ".", "..", "head", "7", "a/b", "a@b", "a:b", "a\0b", &"x".repeat(256)] {
        assert!(matches!(rig.try_snapshot(0, Some(name)), Err(Error::BadName(..))), "{name:?}");
        assert!(matches!(rig.try_branch_off(one, name), Err(Error::BadName(..))), "{name:?}");
        assert!(matches!(rig.rename(one, name), Err(Error::BadName(..))), "{name:?}");
    }
    rig.check();
    rig.rename(one, "first").expect("the name is free");
    rig.rename(two, "one").expect("the name is free again");
    rig.try_snapshot(0, Some(&"y".repeat(255))).expect("a long name");
    rig.try_snapshot(0, Some("main")).expect("branches have names of their own");
    let unnamed = rig.snapshot(0);
    rig.rename(unnamed, "named").expect("it gets one");
    rig.rename(HEAD, "trunk").expect("the main branch can be called otherwise");
    rig.check();
}

/// Until they are released.
pub fn held_snapshots_are_not_deleted(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, "abc");
    let view = rig.snapshot(0);
    rig.write(HEAD, list, 1, "x");
    rig.hold(view, true).expect("held");
    assert!(matches!(rig.try_delete(view), Err(Error::InUse(of, _)) if of == view));
    rig.hold(view, true).expect("held already");
    rig.check();
    rig.hold(view, false).expect("released");
    rig.delete(view);
    rig.check();
}

/// All orders of four, with contents that begin and end with each of them.
pub fn snapshots_are_deleted_in_every_order(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    for mut order in permutations_of_4() {
        let (list, short_lived) = (rig.list(HEAD), rig.list(HEAD));
        rig.write(HEAD, list, 0, "abcdefgh");
        rig.commit(HEAD, |aru| {
            aru.put_record(short_lived, 0, &b"x"[..]).put_record(list, 0, &b"0"[..]);
        });
        let views: Vec<_> = (0..4)
            .map(|round: u64| {
                let view = rig.snapshot(0);
                rig.commit(HEAD, |aru| {
                    aru.put_record(list, 0, [b'1' + round as u8].to_vec());
                    aru.put_record(list, 10 + round, &b"new"[..]).delete_record(list, 9 + round);
                });
                rig.write(HEAD, list, 2 * round, "XY");
                rig.push(HEAD, Op::PunchPages { list, first_page: round, count: 1 });
                if round == 1 {
                    rig.push(HEAD, Op::DeleteList { list: short_lived });
                }
                view
            })
            .collect();
        rig.check();
        while let Some(next) = order.pop() {
            rig.delete(views[next]);
            rig.check();
        }
        rig.push(HEAD, Op::DeleteList { list });
    }
    rig.check();
}

/// The numbers 0 to 3 in every order.
pub(super) fn permutations_of_4() -> Vec<Vec<usize>> {
    let all = (0..256_usize).map(|code| (0..4).map(|place| code >> (2 * place) & 3).collect());
    all.filter(|order: &Vec<_>| (0..4).all(|number| order.contains(&number))).collect()
}

/// While most of them are deleted again.
pub fn hundreds_of_snapshots_each_keep_their_moment(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let lists = [rig.list(HEAD), rig.list(HEAD)];
    let mut views = Vec::new();
    for round in 0..400_u64 {
        let list = lists[(round % 2) as usize];
        rig.commit(HEAD, |aru| {
            aru.put_record(list, 0, round.to_le_bytes().to_vec());
            aru.put_record(list, 1 + round % 50, vec![round as u8; 1 + (round % 200) as usize]);
            aru.delete_record(list, 1 + (round + 25) % 50);
            aru.write_pages(list, round % 70, noise(round, 2000));
        });
        views.push(rig.snapshot(0));
    }
    for place in (0..400).step_by(40) {
        rig.check_view(views[place]);
    }
    let (kept, doomed): (Vec<_>, Vec<_>) = (0..400).partition(|place| place % 10 == 3);
    // From both ends towards the middle.
    let half = doomed.len() / 2;
    for (front, back) in doomed[..half].iter().zip(doomed[half..].iter().rev()) {
        rig.delete(views[*front]);
        rig.delete(views[*back]);
    }
    assert_eq!(rig.model.table().snapshots().len(), kept.len());
    rig.check();
}

/// While others commit units that change two lists alike.
pub fn a_snapshot_falls_between_two_units(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let lists = [rig.list(HEAD), rig.list(HEAD)];
    let done = AtomicBool::new(false);
    let views: Vec<View> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_u64.. {
                let mut aru = Aru::new(HEAD);
                for list in lists {
                    aru.put_record(list, 0, round.to_le_bytes().to_vec());
                    aru.write_pages(list, round % 40, vec![round as u8; 3 * PAGE_SIZE]);
                }
                disk.commit(aru).expect("a commit");
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let view = |_| {
            disk.flush(CommitSeq::LATEST).expect("a flush");
            disk.snapshot(0, None).expect("a snapshot").view()
        };
        let views = (0..50).map(view).collect();
        done.store(true, Ordering::Relaxed);
        views
    });
    for view in views {
        let [one, other] = lists.map(|list| {
            let mut pages = vec![0; 45 * PAGE_SIZE];
            disk.read_pages(view, list, 0, &mut pages).expect("readable");
            (disk.record(view, list, 0).expect("readable"), pages)
        });
        assert!(one == other, "{view} has half a unit");
    }
}

/// Alone and together, before and after deletions.
pub fn shares_follow_what_versions_hold(disk: &dyn Versions) {
    const MIB: u64 = 1 << 20;
    let mut rig = Rig::new(disk);
    let (old, new) = (rig.list(HEAD), rig.list(HEAD));
    let data = |seed, mib: usize| noise(seed, mib << 20).into();
    rig.push(HEAD, Op::WritePages { list: old, first_page: 0, data: data(1, 4) });
    let view = rig.snapshot(0);
    let share = |view: View| {
        let shares = disk.version_usage().expect("readable");
        let share = shares.iter().find(|share| share.view == view).expect("one for each view");
        (share.exclusive_bytes, share.seen_bytes)
    };
    let near = |(exclusive, seen): (u64, u64), exclusive_mib: u64, seen_mib: u64| {
        assert!(exclusive.abs_diff(exclusive_mib * MIB) <= SLACK_BYTES, "{exclusive} alone");
        assert!(seen.abs_diff(seen_mib * MIB) <= SLACK_BYTES, "{seen} seen");
    };
    near(share(HEAD), 0, 4);
    near(share(view), 0, 4);
    rig.push(HEAD, Op::WritePages { list: new, first_page: 0, data: data(2, 2) });
    rig.push(HEAD, Op::WritePages { list: old, first_page: 0, data: data(3, 1) });
    near(share(HEAD), 3, 6);
    near(share(view), 1, 4);
    rig.push(HEAD, Op::DeleteList { list: old });
    near(share(HEAD), 2, 2);
    near(share(view), 4, 4);
    let together = |views: &[View]| disk.freed_by(views).expect("readable");
    assert!(together(&[view, HEAD]).abs_diff(6 * MIB) <= SLACK_BYTES);
    let second = rig.try_snapshot(0, Some("second")).expect("a snapshot").view();
    near(share(HEAD), 0, 2);
    near(share(second), 0, 2);
    assert!(together(&[second]) <= SLACK_BYTES);
    assert!(together(&[second, HEAD]).abs_diff(2 * MIB) <= SLACK_BYTES);
    let branch = rig.branch_off(view, "b");
    near(share(view), 0, 4);
    near(share(branch), 0, 4);
    assert!(together(&[branch, view]).abs_diff(4 * MIB) <= SLACK_BYTES);
    let nobody = View { branch: 99, epoch: None };
    assert!(matches!(disk.freed_by(&[view, nobody]), Err(Error::NoSuchView(of)) if of == nobody));
    rig.delete(view);
    near(share(branch), 4, 4);
    assert_eq!(disk.version_usage().expect("readable").len(), 3);
    rig.check();
}

/// In order, and in parts.
pub fn lists_that_may_differ_are_told_and_others_are_not(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let lists: Vec<_> = (0..200).map(|_| rig.list(HEAD)).collect();
    for list in &lists {
        rig.write(HEAD, *list, 0, "ab");
    }
    let view = rig.snapshot(0);
    let branch = rig.branch_off(view, "b");
    let told = |a, b| disk.changed_lists(a, b, Lid(0), usize::MAX).expect("two views");
    assert_eq!(told(HEAD, view), []);
    assert_eq!(told(view, view), []);
    rig.push(HEAD, Op::DeleteRecord { list: lists[3], index: 0 });
    rig.write(HEAD, lists[5], 1, "x");
    rig.push(HEAD, Op::PunchPages { list: lists[60], first_page: 0, count: 1 });
    rig.push(HEAD, Op::DeleteList { list: lists[150] });
    let new = rig.list(HEAD);
    let differing = [lists[5], lists[60], lists[150], new];
    // That nothing was deleted there may be noticed or not.
    let without_3 = |mut told: Vec<Lid>| {
        told.retain(|list| *list != lists[3]);
        told
    };
    assert_eq!(without_3(told(view, HEAD)), differing);
    assert_eq!(without_3(told(HEAD, view)), differing);
    assert_eq!(without_3(told(branch, HEAD)), differing);
    assert_eq!(told(branch, view), []);
    rig.push(branch, Op::PutRecord { list: lists[199], index: 1, value: b"r"[..].into() });
    assert_eq!(told(branch, view), [lists[199]]);
    assert_eq!(without_3(told(branch, HEAD)), [lists[5], lists[60], lists[150], lists[199], new]);
    let behind = Lid(lists[5].0 + 1);
    assert_eq!(disk.changed_lists(view, HEAD, behind, 2), Ok(vec![lists[60], lists[150]]));
    assert_eq!(disk.changed_lists(view, HEAD, Lid(new.0 + 1), 2), Ok(vec![]));
    assert_eq!(disk.changed_lists(view, HEAD, Lid(0), 0), Ok(vec![]));
}

/// And of a list, only the records and the pages that were written.
pub fn records_and_pages_that_differ_are_told_and_others_are_not(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    let put = |index, value: &'static [u8]| Op::PutRecord { list, index, value: value.into() };
    for index in 0..500 {
        rig.push(HEAD, put(index, b"old"));
    }
    rig.push(HEAD, put(u64::MAX, b"old"));
    rig.write(HEAD, list, 0, &"a".repeat(200));
    let old = rig.snapshot(0);
    let records = |a, b| disk.changed_records(a, b, list, 0, usize::MAX).expect("two views");
    let pages = |a, b| {
        let (mut from, mut found) = (0, Vec::new());
        while let Some(pages) = disk.changed_pages(a, b, list, from).expect("two views") {
            from = pages.end;
            found.push(pages);
        }
        found
    };
    assert_eq!((records(old, HEAD), pages(old, HEAD)), (vec![], vec![]));
    rig.push(HEAD, put(7, b"new"));
    rig.push(HEAD, put(600, b"new"));
    rig.push(HEAD, Op::DeleteRecord { list, index: 9 });
    rig.push(HEAD, put(u64::MAX, b"new"));
    rig.write(HEAD, list, 3, "b");
    rig.write(HEAD, list, 30, "bbbb");
    rig.write(HEAD, list, 5000, "0");
    rig.push(HEAD, Op::PunchPages { list, first_page: 100, count: 2 });
    let new = rig.snapshot(0);
    // What is written later does not count, nor does what was written earlier and lies beside.
    rig.push(HEAD, put(8, b"newer"));
    rig.write(HEAD, list, 4, "c");
    let expected = vec![3..4, 30..32, 32..34, 100..102, 5000..5001];
    for (a, b) in [(old, new), (new, old)] {
        assert_eq!(records(a, b), [7, 9, 600, u64::MAX]);
        assert_eq!(pages(a, b), expected);
    }
    assert_eq!(disk.changed_records(old, new, list, 8, 2), Ok(vec![9, 600]));
    assert_eq!(disk.changed_records(old, new, list, 0, 0), Ok(vec![]));
    assert_eq!(disk.changed_pages(old, new, list, 31), Ok(Some(31..32)));
    assert_eq!(disk.changed_pages(old, new, list, 5001), Ok(None));
}

/// But has them still.
pub fn a_disk_that_was_shut_down_changes_no_versions(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    rig.write(HEAD, list, 0, "abc");
    let view = rig.snapshot(0);
    let branch = rig.branch_off(view, "b");
    rig.write(branch, list, 1, "x");
    disk.shut_down().expect("shut down");
    let refusals = [
        disk.snapshot(0, None).map(drop),
        disk.branch_off(HEAD, "c").map(drop),
        disk.rename(view, "name"),
        disk.hold(view, true),
        disk.delete(view),
        disk.promote(branch.branch),
        disk.roll_back(0, view).map(drop),
    ];
    for (place, refusal) in refusals.into_iter().enumerate() {
        assert!(matches!(refusal, Err(Error::ReadOnly(_))), "{place}: {refusal:?}");
    }
    rig.check();
}

/// Fills a disk with versions and sees that what only they had is free when they are gone.
/// `background` does the work that a disk does on the side, all that is due at the time.
///
/// # Panics
/// When the disk does not do what it must.
pub fn space_comes_back_when_versions_go(disk: &dyn Versions, background: &mut dyn FnMut()) {
    const MIB: u64 = 1 << 20;
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    let empty = disk.space();
    let mut views = Vec::new();
    let write = |rig: &mut Rig<'_>, view, seed, first_page, mib: usize| {
        rig.push(view, Op::WritePages { list, first_page, data: noise(seed, mib << 20).into() });
    };
    for round in 0..6 {
        write(&mut rig, HEAD, round, 0, 2);
        views.push(rig.snapshot(0));
    }
    for (number, from) in [views[1], views[4], HEAD].into_iter().enumerate() {
        let branch = rig.branch_off(from, &format!("b{number}"));
        write(&mut rig, branch, 100 + number as u64, 128, 1);
        views.push(branch);
    }
    background();
    let used = disk.space().live_bytes - empty.live_bytes;
    assert!(used.abs_diff(15 * MIB) <= SLACK_BYTES, "{used} bytes of six and three versions");
    for place in [3, 7, 0, 5, 8, 1, 6, 4, 2] {
        rig.delete(views[place]);
        background();
        rig.check();
    }
    rig.push(HEAD, Op::DeleteList { list });
    background();
    let left = disk.space();
    assert!(left.live_bytes <= empty.live_bytes + SLACK_BYTES, "{left:?} after {empty:?}");
    assert!(left.available_bytes + SLACK_BYTES >= empty.available_bytes, "{left:?}");
}

/// Fills a disk of at most 64 MiB with data that a snapshot keeps from being freed, and sees that
/// deleting the snapshot works and makes room. `background` is as for
/// [`space_comes_back_when_versions_go`].
///
/// # Panics
/// When the disk does not do what it must.
pub fn a_full_disk_lets_versions_go(disk: &dyn Versions, background: &mut dyn FnMut()) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    let pages_len = (disk.space().capacity_bytes / 2) as usize / PAGE_SIZE;
    let mut write = |rig: &mut Rig<'_>, seed: u64| -> Result<(), Error> {
        for page in (0..pages_len as u64).step_by(16) {
            let mut aru = Aru::new(HEAD);
            aru.write_pages(list, page, noise(seed + page, 16 * PAGE_SIZE));
            let unit = aru.ops().to_vec();
            match disk.commit(aru) {
                Ok(_) => rig.model.apply(HEAD, &unit).expect("the case is right"),
                Err(error) => return Err(error),
            }
            background();
        }
        Ok(())
    };
    write(&mut rig, 1).expect("half of it fits");
    let view = rig.snapshot(0);
    let full = (2..10).find_map(|round| write(&mut rig, round << 32).err());
    assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
    rig.check();
    rig.delete(view);
    for round in 20..23 {
        write(&mut rig, round << 32).expect("what the snapshot held is free");
    }
    rig.check();
}
