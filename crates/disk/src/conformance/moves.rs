//! Moving and swapping pages.

use dendro_base::Rng;

use super::rig::{Rig, add_letters, out_of_range};
use crate::{Lid, LogicalDisk, MAX_PAGE_COUNT, Op, View};

const fn within(list: Lid, from_page: u64, to_page: u64, count: u64) -> Op<'static> {
    Op::MovePages { from: list, from_page, to: list, to_page, count }
}

/// The destination becomes what the source was, the source becomes holes.
pub fn pages_move_within_a_list(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "ab.0c");
    rig.write(list, 10, "vwxyz");
    rig.push(within(list, 0, 10, 4));
    assert_eq!(rig.letters(list, 0, 16), "....c.....ab.0z.");
    rig.push(within(list, 10, 300, 5));
    assert_eq!(rig.letters(list, 0, 16), "....c...........");
    assert_eq!(rig.letters(list, 299, 7), ".ab.0z.");
    rig.check();
}

/// Into data, into holes, and a part into the middle.
pub fn pages_move_to_another_list(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (from, to) = (rig.list(), rig.list());
    rig.write(from, 30, "abcdef");
    rig.write(to, 0, "uvwxyz");
    rig.push(Op::MovePages { from, from_page: 31, to, to_page: 1, count: 3 });
    assert_eq!(
        (rig.letters(from, 30, 6), rig.letters(to, 0, 7)),
        ("a...ef".into(), "ubcdyz.".into())
    );
    rig.push(Op::MovePages { from, from_page: 29, to, to_page: 2, count: 3 });
    assert_eq!(
        (rig.letters(from, 30, 6), rig.letters(to, 0, 7)),
        ("....ef".into(), "ub.a.z.".into())
    );
    rig.push(Op::MovePages { from: to, from_page: 0, to: from, to_page: 1000, count: 100 });
    assert_eq!((rig.places(to), rig.letters(from, 1000, 7)), (vec![], "ub.a.z.".into()));
    rig.check();
}

/// By distances shorter than, equal to and beside a group of pages.
pub fn overlapping_moves_go_both_ways(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let text: String = (0..100).map(|at| char::from(b'a' + at % 26)).collect();
    let text = text.replace('k', ".").replace('q', "0");
    for distance in [1, 2, 31, 32, 33, 64, 99, 100] {
        let list = rig.list();
        rig.write(list, 5, &text);
        rig.push(within(list, 5, 5 + distance, 100));
        let holes = ".".repeat(distance as usize);
        assert_eq!(rig.letters(list, 5, 100 + distance), format!("{holes}{text}"));
        rig.push(within(list, 5 + distance, 5, 100));
        assert_eq!(rig.letters(list, 5, 100 + distance), format!("{text}{holes}"));
    }
    rig.check();
}

/// Nothing changes.
pub fn a_range_moved_onto_itself_stays(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 28, "abc.0fgh");
    for (first, count) in [(28, 8), (30, 3), (0, MAX_PAGE_COUNT)] {
        rig.push(within(list, first, first, count));
        assert_eq!(rig.letters(list, 27, 10), ".abc.0fgh.");
    }
    rig.check();
}

/// `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`: everything behind a place moves.
pub fn a_part_is_cut_out_and_put_in_as_files_ask_for(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "abcdefgh");
    rig.write(list, 1 << 30, "far");
    rig.push(within(list, 5, 2, MAX_PAGE_COUNT - 5));
    assert_eq!(rig.letters(list, 0, 8), "abfgh...");
    assert_eq!(rig.letters(list, (1 << 30) - 3, 3), "far");
    rig.push(within(list, 1, 3, MAX_PAGE_COUNT - 3));
    assert_eq!(rig.letters(list, 0, 8), "a..bfgh.");
    assert_eq!(rig.letters(list, (1 << 30) - 1, 3), "far");
    rig.check();
}

/// A count of nearly 2⁵¹ over a few pages returns at once.
pub fn moving_costs_by_data_not_by_count(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (from, to) = (rig.list(), rig.list());
    for place in [0, 100, 1 << 20, 1 << 35, 1 << 50] {
        rig.write(from, place, "a0b");
    }
    for round in 1..40 {
        rig.push(within(from, round, round + 1, MAX_PAGE_COUNT - round - 1));
        rig.push(within(from, round + 1, round, MAX_PAGE_COUNT - round - 1));
    }
    rig.check();
    for (from, to) in [(from, to), (to, from)] {
        rig.push(Op::MovePages { from, from_page: 0, to, to_page: 0, count: MAX_PAGE_COUNT });
        assert_eq!(rig.places(from), [0; 0]);
        rig.check();
    }
}

/// Ranges that end at the end, and ranges that end one behind it.
pub fn moves_reach_the_last_page_and_no_further(disk: &dyn LogicalDisk) {
    const END: u64 = MAX_PAGE_COUNT;
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "abc");
    rig.push(within(list, 0, END - 3, 3));
    assert_eq!(rig.letters(list, END - 4, 4), ".abc");
    rig.push(within(list, END - 2, END - 3, 2));
    assert_eq!(rig.letters(list, END - 4, 4), ".bc.");
    rig.refuse(&out_of_range(END - 1, 2), |aru| {
        aru.push(within(list, 0, END - 1, 2));
    });
    rig.refuse(&out_of_range(END - 1, 2), |aru| {
        aru.push(within(list, END - 1, 0, 2));
    });
    rig.refuse(&out_of_range(u64::MAX, 1), |aru| {
        aru.push(within(list, u64::MAX, 0, 1));
    });
    rig.refuse(&out_of_range(END, u64::MAX), |aru| {
        aru.push(within(list, END, 0, u64::MAX));
    });
}

/// In the same unit, several times over.
pub fn a_unit_moves_what_it_wrote(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (list, other) = (rig.list(), rig.list());
    rig.write(list, 0, "uvwxyz");
    rig.commit(|aru| {
        add_letters(aru, list, 1, "ab");
        aru.push(within(list, 0, 2, 4));
        add_letters(aru, list, 3, "c");
        aru.push(Op::MovePages { from: list, from_page: 2, to: other, to_page: 31, count: 3 });
        add_letters(aru, other, 32, "d");
        aru.push(Op::PunchPages { list: other, first_page: 33, count: 1 });
        aru.push(Op::SwapPages { a: list, b: other });
    });
    assert_eq!(rig.letters(list, 30, 5), ".ud..");
    assert_eq!(rig.letters(other, 0, 7), ".....x.");
    rig.check();
}

/// A moved page is a page as any other.
pub fn moved_pages_are_changed_without_changing_others(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (from, to) = (rig.list(), rig.list());
    rig.write(from, 28, "abcdefgh");
    rig.push(Op::MovePages { from, from_page: 30, to, to_page: 10, count: 4 });
    rig.write(from, 31, "x");
    rig.write(to, 11, "y");
    rig.push(Op::PunchPages { list: to, first_page: 12, count: 1 });
    assert_eq!(
        (rig.letters(from, 28, 8), rig.letters(to, 10, 4)),
        ("ab.x..gh".into(), "cy.f".into())
    );
    rig.push(Op::DeleteList { list: from });
    assert_eq!(rig.letters(to, 9, 6), ".cy.f.");
    rig.check();
}

/// Hints and records are not pages.
pub fn pages_are_swapped_and_records_stay(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (a, b, empty) = (rig.list(), rig.list(), rig.list());
    rig.write(a, 0, "abc");
    rig.write(a, 1 << 40, "far");
    rig.write(b, 31, "xy");
    rig.push(Op::PutRecord { list: a, index: 0, value: b"of a"[..].into() });
    rig.push(Op::SwapPages { a, b });
    assert_eq!((rig.places(a), rig.places(b).len()), (vec![31, 32], 6));
    assert_eq!(disk.record(View::HEAD, a, 0), Ok(Some(b"of a"[..].into())));
    assert_eq!(disk.record(View::HEAD, b, 0), Ok(None));
    rig.push(Op::SwapPages { a: empty, b });
    assert_eq!((rig.places(b), rig.letters(empty, 0, 4)), (vec![], "abc.".into()));
    rig.write(b, 0, "new");
    assert_eq!(rig.letters(empty, 0, 4), "abc.");
    rig.push(Op::DeleteList { list: b });
    rig.check();
}

/// Nor does doing it twice with another.
pub fn swapping_with_itself_changes_nothing(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (list, other) = (rig.list(), rig.list());
    rig.write(list, 30, "abcd");
    rig.push(Op::SwapPages { a: list, b: list });
    assert_eq!(rig.letters(list, 29, 6), ".abcd.");
    rig.commit(|aru| {
        aru.push(Op::SwapPages { a: list, b: other }).push(Op::SwapPages { a: other, b: list });
    });
    assert_eq!(rig.letters(list, 29, 6), ".abcd.");
    rig.check();
}

/// Hundreds of them, over two lists of a hundred pages.
pub fn random_moves_leave_what_the_model_has(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let lists = [rig.list(), rig.list()];
    let mut rng = Rng::new(11);
    for round in 0..500 {
        let (from, to) = (lists[rng.below(2) as usize], lists[rng.below(2) as usize]);
        let (from_page, to_page, count) = (rng.below(100), rng.below(100), rng.below(80));
        let letter = char::from(b'a' + (round % 26) as u8);
        rig.commit(|aru| {
            add_letters(aru, from, from_page, &letter.to_string().repeat(1 + count as usize / 4));
            aru.push(Op::MovePages { from, from_page, to, to_page, count });
        });
        if round % 10 == 0 {
            rig.check();
        }
    }
    rig.check();
}
