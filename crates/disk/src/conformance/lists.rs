//! Lists as such: numbers, creation, deletion, hints, views.

use super::rig::Rig;
use crate::{
    Aru, Error, Lid, ListCompression, ListHints, Locality, LogicalDisk, MAX_PAGE_COUNT, Op,
    PAGE_SIZE, View,
};

const CLUSTERED: ListHints =
    ListHints { locality: Locality::Clustered, compression: ListCompression::Zstd, near: None };

fn assert_absent(disk: &dyn LogicalDisk, list: Lid) {
    assert_eq!(disk.hints(View::HEAD, list), Ok(None));
    assert_eq!(disk.record(View::HEAD, list, 0), Ok(None));
    assert_eq!(disk.records(View::HEAD, list, 0, 10), Ok(vec![]));
    assert_eq!(disk.next_data(View::HEAD, list, 0), Ok(None));
    assert_eq!(disk.next_hole(View::HEAD, list, 5), Ok(5));
    assert_eq!(disk.count_pages(View::HEAD, list, 0..MAX_PAGE_COUNT), Ok(0));
    let mut buf = vec![1; 3 * PAGE_SIZE];
    disk.read_pages(View::HEAD, list, 1, &mut buf).expect("zeros");
    assert!(buf.iter().all(|&byte| byte == 0), "a missing list's pages are not zeros");
}

/// Nothing is there, and reading it is no error.
pub fn an_empty_disk_has_nothing(disk: &dyn LogicalDisk) {
    assert_eq!(disk.lists(View::HEAD, Lid(0), 100), Ok(vec![]));
    assert_eq!(disk.read_only_reason(), None);
    for list in [Lid(0), Lid::FIRST, Lid(77), Lid(Lid::CLIENT_END.0 - 1)] {
        assert_absent(disk, list);
    }
}

/// Numbers start at [`Lid::FIRST`] and go up, whatever was deleted.
pub fn numbers_count_up_and_are_never_given_out_twice(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    assert_eq!(disk.allocate_list(), Ok(Lid::FIRST));
    let mut last = Lid::FIRST;
    for _ in 0..100 {
        let list = rig.list();
        assert!(list > last, "{list} after {last}");
        last = list;
        rig.push(Op::DeleteList { list });
    }
    rig.check();
}

/// Tools that rebuild a disk create lists under the numbers they had.
pub fn a_number_that_was_not_allocated_can_be_created_and_is_passed_over(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    rig.push(Op::CreateList { list: Lid(500), hints: CLUSTERED });
    let next = disk.allocate_list().expect("a number");
    assert!(next > Lid(500), "{next} was given out");
    rig.check();
}

/// Listing starts anywhere and stops after as many as asked for.
pub fn lists_are_found_in_order_and_in_parts(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let all: Vec<Lid> = (0..300).map(|_| rig.list()).collect();
    for &list in all.iter().step_by(3) {
        rig.push(Op::DeleteList { list });
    }
    let left: Vec<Lid> =
        all.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, &list)| list).collect();
    assert_eq!(disk.lists(View::HEAD, Lid(0), usize::MAX), Ok(left.clone()));
    assert_eq!(disk.lists(View::HEAD, Lid(0), 0), Ok(vec![]));
    assert_eq!(disk.lists(View::HEAD, left[10], 7), Ok(left[10..17].to_vec()));
    assert_eq!(disk.lists(View::HEAD, Lid(left[10].0 + 1), 7), Ok(left[11..18].to_vec()));
    let last = *left.last().expect("some are left");
    assert_eq!(disk.lists(View::HEAD, last, 7), Ok(vec![last]));
    assert_eq!(disk.lists(View::HEAD, Lid(last.0 + 1), 7), Ok(vec![]));
    rig.check();
}

/// [`Error::ListExists`] in every way.
pub fn creating_a_list_that_exists_is_refused(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let new = disk.allocate_list().expect("a number");
    let hints = ListHints::default();
    for taken in [list, Lid(0), Lid::CLIENT_END, Lid(u64::MAX)] {
        rig.refuse(&Error::ListExists(taken), |aru| {
            aru.put_record(list, 1, &b"x"[..]).create_list(taken, hints);
        });
    }
    rig.refuse(&Error::ListExists(new), |aru| {
        aru.create_list(new, hints).create_list(new, hints);
    });
}

/// [`Error::NoSuchList`] from every operation.
pub fn a_change_to_a_missing_list_is_refused(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let there = rig.list();
    rig.write(there, 0, "ab");
    let deleted = rig.list();
    rig.push(Op::DeleteList { list: deleted });
    let allocated = disk.allocate_list().expect("a number");
    for list in [deleted, allocated, Lid(0), Lid::CLIENT_END, Lid(u64::MAX)] {
        let ops = [
            Op::DeleteList { list },
            Op::SetHints { list, hints: CLUSTERED },
            Op::PutRecord { list, index: 0, value: b"x"[..].into() },
            Op::DeleteRecord { list, index: 0 },
            Op::WritePages { list, first_page: 0, data: b"x"[..].into() },
            Op::ZeroPages { list, first_page: 0, count: 1 },
            Op::PunchPages { list, first_page: 0, count: 1 },
            Op::MovePages { from: list, from_page: 0, to: there, to_page: 0, count: 1 },
            Op::MovePages { from: there, from_page: 0, to: list, to_page: 0, count: 1 },
            Op::SwapPages { a: list, b: there },
            Op::SwapPages { a: there, b: list },
        ];
        for op in ops {
            rig.refuse(&Error::NoSuchList(list), |aru| {
                aru.push(op);
            });
        }
    }
    rig.refuse(&Error::NoSuchList(there), |aru| {
        aru.delete_list(there).put_record(there, 0, &b"x"[..]);
    });
    rig.refuse(&Error::NoSuchList(allocated), |aru| {
        aru.put_record(allocated, 0, &b"x"[..]).create_list(allocated, CLUSTERED);
    });
}

/// Records and pages, near and far, are gone; other lists stay.
pub fn a_deleted_list_takes_everything_with_it(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (kept, list) = (rig.list(), rig.list());
    for list in [kept, list] {
        rig.write(list, 0, "abc.def");
        for place in 0..40 {
            rig.write(list, 31 + place * 1000, "xy");
        }
        rig.write(list, MAX_PAGE_COUNT - 1, "z");
        rig.commit(|aru| {
            for index in [0, 1, 1000, u64::MAX] {
                aru.put_record(list, index, &b"record"[..]);
            }
        });
    }
    rig.push(Op::DeleteList { list });
    assert_absent(disk, list);
    assert_eq!(rig.letters(kept, 0, 8), "abc.def.");
    rig.check();
}

/// What the number held before does not show through.
pub fn a_list_deleted_and_created_in_one_unit_starts_empty(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 20, "abcdefghijklmnopqrst");
    rig.commit(|aru| {
        aru.put_record(list, 1, &b"old"[..]).put_record(list, 2, &b"old"[..]);
    });
    rig.commit(|aru| {
        aru.write_pages(list, 0, &b"not for long"[..]);
        aru.delete_list(list).create_list(list, CLUSTERED);
        aru.write_pages(list, 22, &b"tail"[..]).put_record(list, 2, &b"new"[..]);
    });
    assert_eq!(disk.hints(View::HEAD, list), Ok(Some(CLUSTERED)));
    assert_eq!(disk.record(View::HEAD, list, 1), Ok(None));
    assert_eq!(disk.record(View::HEAD, list, 2), Ok(Some(b"new"[..].into())));
    assert_eq!(rig.places(list), [22]);
    rig.commit(|aru| {
        for _ in 0..3 {
            aru.delete_list(list).create_list(list, ListHints::default());
        }
    });
    assert_eq!(rig.places(list), [0; 0]);
    rig.check();
}

/// Not even when it was given records and pages in between.
pub fn a_list_created_and_deleted_in_one_unit_leaves_nothing(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = disk.allocate_list().expect("a number");
    rig.commit(|aru| {
        aru.create_list(list, CLUSTERED).put_record(list, 0, &b"x"[..]);
        aru.write_pages(list, 0, vec![1; 50 * PAGE_SIZE]).delete_list(list);
    });
    assert_absent(disk, list);
    rig.check();
}

/// Neither data nor swapping pages touches them.
pub fn hints_are_kept_until_changed(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let other = rig.list();
    for locality in [Locality::AsWritten, Locality::Clustered] {
        let hints = ListHints { locality, ..ListHints::default() };
        let list = disk.allocate_list().expect("a number");
        rig.push(Op::CreateList { list, hints });
        rig.write(list, 0, "abc");
        rig.push(Op::PutRecord { list, index: 0, value: b"x"[..].into() });
        rig.push(Op::SwapPages { a: list, b: other });
        assert_eq!(disk.hints(View::HEAD, list), Ok(Some(hints)));
        rig.push(Op::SetHints { list, hints: CLUSTERED });
        assert_eq!(disk.hints(View::HEAD, list), Ok(Some(CLUSTERED)));
        rig.check();
    }
    assert_eq!(disk.hints(View::HEAD, other), Ok(Some(ListHints::default())));
}

/// A neighbour is a hint like others, whether it exists or not. Lists are still found by number.
pub fn a_list_keeps_the_neighbour_that_it_was_given_last(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let [first, second] = [rig.list(), rig.list()];
    let near = |list| ListHints { near: Some(list), ..CLUSTERED };
    let list = disk.allocate_list().expect("a number");
    rig.push(Op::CreateList { list, hints: near(second) });
    assert_eq!(disk.hints(View::HEAD, list), Ok(Some(near(second))));
    assert!(near(second).place(list) > near(first).place(list), "it stands with its neighbour");
    rig.push(Op::DeleteList { list: second });
    rig.push(Op::PutRecord { list, index: 0, value: b"x"[..].into() });
    assert_eq!(disk.hints(View::HEAD, list), Ok(Some(near(second))));
    for hints in [near(list), near(Lid(Lid::CLIENT_END.0 - 1)), CLUSTERED, near(first)] {
        rig.push(Op::SetHints { list, hints });
        assert_eq!(disk.hints(View::HEAD, list), Ok(Some(hints)));
    }
    assert_eq!(disk.lists(View::HEAD, Lid(0), 100), Ok(vec![first, list]));
    for near in [Lid(0), Lid::CLIENT_END, Lid(u64::MAX)] {
        let hints = ListHints { near: Some(near), ..CLUSTERED };
        rig.refuse(&Error::NoSuchList(near), |aru| {
            aru.push(Op::SetHints { list, hints });
        });
        let new = disk.allocate_list().expect("a number");
        rig.refuse(&Error::NoSuchList(near), |aru| {
            aru.create_list(new, hints);
        });
    }
    rig.check();
}

/// What a disk keeps in lists for itself is no client's business.
pub fn the_disks_own_lists_are_not_seen(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "abc");
    disk.flush(crate::CommitSeq::LATEST).expect("a flush");
    assert_eq!(disk.lists(View::HEAD, Lid(list.0 + 1), 100), Ok(vec![]));
    assert_eq!(disk.lists(View::HEAD, Lid::CLIENT_END, 100), Ok(vec![]));
    for offset in 0..8 {
        assert_absent(disk, Lid(Lid::CLIENT_END.0 + offset));
        assert_absent(disk, Lid(u64::MAX - offset));
    }
}

/// [`Error::NoSuchView`] from every call that names one.
pub fn views_that_do_not_exist_are_refused(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let view = View { branch: 7_000_000, epoch: None };
    let missing = Error::NoSuchView(view);
    let mut aru = Aru::new(view);
    aru.put_record(list, 0, &b"x"[..]);
    assert_eq!(disk.commit(aru).as_ref(), Err(&missing));
    assert_eq!(disk.hints(view, list).as_ref(), Err(&missing));
    assert_eq!(disk.lists(view, list, 1).as_ref(), Err(&missing));
    assert_eq!(disk.record(view, list, 0).as_ref(), Err(&missing));
    assert_eq!(disk.records(view, list, 0, 1).as_ref(), Err(&missing));
    assert_eq!(disk.read_pages(view, list, 0, &mut [0; PAGE_SIZE]).as_ref(), Err(&missing));
    assert_eq!(disk.next_data(view, list, 0).as_ref(), Err(&missing));
    assert_eq!(disk.next_hole(view, list, 0).as_ref(), Err(&missing));
    assert_eq!(disk.count_pages(view, list, 0..1).as_ref(), Err(&missing));
    let past = View { branch: 0, epoch: Some(0) };
    let mut aru = Aru::new(past);
    aru.put_record(list, 0, &b"x"[..]);
    assert_eq!(disk.commit(aru), Err(Error::NoSuchView(past)));
    rig.check();
}
