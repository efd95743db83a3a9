//! Lines of history that go their own ways.

use super::rig::noise;
use super::snapshots::permutations_of_4;
use super::versions::Rig;
use crate::{Aru, Error, Lid, MAX_PAGE_COUNT, Op, Versions, View};

const HEAD: View = View::HEAD;

/// A list with a row of pages and some records.
fn list_with_contents(rig: &mut Rig<'_>, view: View) -> Lid {
    let list = rig.list(view);
    rig.write(view, list, 0, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    rig.commit(view, |aru| {
        for index in 0..20 {
            aru.put_record(list, index, vec![b'r'; 1 + index as usize]);
        }
    });
    list
}

/// Changes a bit of everything in `list`, unlike other numbers do.
fn change(rig: &mut Rig<'_>, view: View, list: Lid, number: u64) {
    rig.commit(view, |aru| {
        aru.put_record(list, number % 20, number.to_le_bytes().to_vec());
        aru.delete_record(list, (number + 7) % 20);
        aru.write_pages(list, number % 50, noise(number, 5000));
        aru.push(Op::PunchPages { list, first_page: (number * 3) % 50, count: 2 });
    });
}

/// What is written to one is not seen in the other.
pub fn a_branch_from_a_head_goes_its_own_way(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let branch = rig.branch_off(HEAD, "b");
    rig.check();
    for number in 0..6 {
        change(&mut rig, HEAD, list, 2 * number);
        change(&mut rig, branch, list, 2 * number + 1);
        rig.check();
    }
    rig.push(HEAD, Op::DeleteList { list });
    rig.check();
    assert!(disk.hints(branch, list).expect("readable").is_some());
}

/// Whatever its parent did since; the snapshot can go.
pub fn a_branch_from_a_snapshot_starts_there(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let view = rig.snapshot(0);
    change(&mut rig, HEAD, list, 1);
    rig.snapshot(0);
    let branch = rig.branch_off(view, "b");
    change(&mut rig, branch, list, 2);
    rig.check();
    rig.delete(view);
    rig.check();
    change(&mut rig, HEAD, list, 3);
    let later = rig.snapshot(branch.branch);
    change(&mut rig, branch, list, 4);
    rig.check();
    assert_eq!(disk.versions().ancestry(later).len(), 2);
}

/// Brothers, sons and uncles.
pub fn branches_of_branches_do_not_see_each_other(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let mut views = vec![HEAD];
    for number in 0..12 {
        let parent = views[number / 2];
        change(&mut rig, parent, list, number as u64);
        let child = match number % 3 {
            0 => {
                let view = rig.snapshot(parent.branch);
                change(&mut rig, parent, list, 100 + number as u64);
                rig.branch_off(view, &format!("b{number}"))
            }
            _ => rig.branch_off(parent, &format!("b{number}")),
        };
        change(&mut rig, child, list, 200 + number as u64);
        views.push(child);
    }
    let own: Vec<_> = views.iter().map(|view| list_with_contents(&mut rig, *view)).collect();
    rig.check();
    for (view, own) in views.iter().zip(own) {
        rig.push(*view, Op::DeleteList { list: own });
        change(&mut rig, *view, list, 300);
    }
    rig.check();
}

/// A record, a page, all pages and a list that only the parent had.
pub fn deletions_in_a_branch_do_not_uncover_what_is_below(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let (list, whole) = (list_with_contents(&mut rig, HEAD), list_with_contents(&mut rig, HEAD));
    let branch = rig.branch_off(HEAD, "b");
    let leaf = rig.branch_off(branch, "c");
    rig.commit(leaf, |aru| {
        aru.delete_record(list, 3).delete_list(whole);
        aru.push(Op::PunchPages { list, first_page: 10, count: 1 });
        aru.push(Op::ZeroPages { list, first_page: 40, count: 1 });
    });
    rig.check();
    rig.commit(leaf, |aru| {
        aru.push(Op::PunchPages { list, first_page: 0, count: MAX_PAGE_COUNT });
        aru.put_record(list, 3, &b"again"[..]);
    });
    let view = rig.snapshot(leaf.branch);
    rig.commit(leaf, |aru| {
        aru.delete_record(list, 3).delete_list(list);
    });
    rig.check();
    rig.push(HEAD, Op::DeleteList { list });
    rig.check();
    rig.delete(view);
    rig.delete(branch);
    rig.check();
    assert_eq!(disk.lists(leaf, Lid(0), 9), Ok(vec![]));
}

/// Each adds something, and the last sees all of it; those between can go.
pub fn a_chain_of_200_branches_shows_through(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let mut views = vec![HEAD];
    for depth in 0..200_u64 {
        let parent = views[views.len() - 1];
        let child = rig.branch_off(parent, &format!("depth{depth}"));
        rig.commit(child, |aru| {
            aru.put_record(list, 1000 + depth, depth.to_le_bytes().to_vec());
            aru.put_record(list, 999, depth.to_le_bytes().to_vec());
            aru.write_pages(list, 100 + depth, noise(depth, 300));
        });
        views.push(child);
    }
    let last = views[200];
    assert_eq!(disk.versions().ancestry(last).len(), 201);
    for place in [0, 1, 100, 199, 200] {
        rig.check_view(views[place]);
    }
    for view in &views[1..200] {
        rig.delete(*view);
    }
    rig.check();
    change(&mut rig, last, list, 5);
    change(&mut rig, HEAD, list, 6);
    rig.check();
    assert_eq!(disk.versions().ancestors().len(), 199);
    rig.delete(last);
    rig.check();
    assert_eq!(disk.versions().ancestors().len(), 0);
}

/// All orders of four, of which each was made from one before.
pub fn branches_are_deleted_in_every_order(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    for (round, mut order) in permutations_of_4().into_iter().enumerate() {
        let list = list_with_contents(&mut rig, HEAD);
        let mut views = Vec::new();
        for (place, parent) in [None, Some(0), Some(0), Some(2)].into_iter().enumerate() {
            let parent = parent.map_or(HEAD, |parent: usize| views[parent]);
            change(&mut rig, parent, list, 10 + place as u64);
            let child = rig.branch_off(parent, &format!("{round}-{place}"));
            change(&mut rig, child, list, 20 + place as u64);
            change(&mut rig, parent, list, 30 + place as u64);
            views.push(child);
        }
        rig.check();
        while let Some(next) = order.pop() {
            rig.delete(views[next]);
            rig.check();
        }
        rig.push(HEAD, Op::DeleteList { list });
    }
    assert_eq!(disk.versions().ancestors().len(), 0);
}

/// So that a list is the same one wherever it is.
pub fn numbers_of_lists_are_given_out_once_for_all_branches(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let first = rig.list(HEAD);
    let branch = rig.branch_off(HEAD, "b");
    let numbers = [rig.list(branch), rig.list(HEAD), rig.list(branch)];
    assert!(numbers.is_sorted() && first < numbers[0], "{first} and {numbers:?}");
    let high = Lid(numbers[2].0 + 1000);
    rig.push(branch, Op::CreateList { list: high, hints: crate::ListHints::default() });
    assert!(disk.allocate_list().expect("a number") > high);
    rig.check();
}

/// And the one that was main can go.
pub fn promotion_exchanges_names_and_leaves_contents(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let branch = rig.branch_off(HEAD, "clone");
    change(&mut rig, branch, list, 1);
    rig.promote(branch.branch).expect("promoted");
    rig.check();
    let table = disk.versions();
    assert_eq!(table.main_head(), branch);
    assert_eq!(table.branch_named("clone").map(|of| of.head()), Some(HEAD));
    assert!(matches!(rig.try_delete(branch), Err(Error::InUse(..))));
    change(&mut rig, branch, list, 2);
    rig.delete(HEAD);
    rig.check();
    change(&mut rig, branch, list, 3);
    rig.check();
}

/// To the same point, to earlier ones, and with work between.
pub fn a_head_is_rolled_back_again_and_again(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let first = rig.snapshot(0);
    change(&mut rig, HEAD, list, 1);
    let second = rig.snapshot(0);
    change(&mut rig, HEAD, list, 2);
    let mut head = HEAD;
    for (number, to) in (10..).zip([second, second, first, first]) {
        head = rig.roll_back(head.branch, to);
        assert_eq!(disk.versions().main_head(), head);
        rig.check();
        change(&mut rig, head, list, number);
        rig.check();
    }
    let own = rig.snapshot(head.branch);
    rig.push(head, Op::DeleteList { list });
    head = rig.roll_back(head.branch, own);
    rig.check();
    for view in [second, first, own] {
        rig.delete(view);
        rig.check();
    }
    change(&mut rig, head, list, 20);
    rig.check();
}

/// To what was later, and to what another branch had; not to a head.
pub fn a_branch_is_put_back_to_any_snapshot(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let early = rig.snapshot(0);
    let branch = rig.branch_off(HEAD, "b");
    change(&mut rig, branch, list, 1);
    let late = rig.snapshot(0);
    let others = rig.snapshot(branch.branch);
    for (of, to) in [(HEAD, HEAD), (HEAD, branch)] {
        let answer = rig.try_roll_back(of.branch, to).map(drop);
        assert_eq!(answer, Err(Error::NoSuchView(to)));
    }
    let mut back = branch;
    for (round, to) in (10..).zip([early, late, others, early]) {
        back = rig.roll_back(back.branch, to);
        rig.check();
        change(&mut rig, back, list, round);
        rig.check();
        assert_eq!(disk.versions().branch_named("b").map(|of| of.head()), Some(back));
        assert_eq!(disk.versions().main_head(), HEAD);
    }
    let main = rig.roll_back(HEAD.branch, others);
    rig.check();
    change(&mut rig, main, list, 20);
    rig.delete(back);
    rig.check();
    rig.delete(others);
    rig.check();
}

/// One thread for each branch, and one that makes snapshots and branches and deletes them.
pub fn threads_write_to_branches_at_the_same_time(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = list_with_contents(&mut rig, HEAD);
    let mut views = vec![HEAD];
    for number in 0..3 {
        views.push(rig.branch_off(HEAD, &format!("b{number}")));
    }
    let states: Vec<_> = std::thread::scope(|scope| {
        let spawn = |view: View| {
            let mut model = rig.model.state(view).expect("a head").clone();
            scope.spawn(move || {
                for number in 0..100 {
                    let mut aru = Aru::new(view);
                    aru.put_record(list, number % 20, vec![view.branch as u8; 1 + number as usize]);
                    aru.write_pages(list, number % 60, noise(number, 3000));
                    crate::model::apply(&mut model, aru.ops()).expect("the case is right");
                    disk.commit(aru).expect("a commit");
                }
                (view, model)
            })
        };
        let threads: Vec<_> = views.iter().map(|view| spawn(*view)).collect();
        for number in 0..40_u32 {
            let view = disk.snapshot(number % 4, None).expect("a snapshot").view();
            let name = format!("short-lived{number}");
            let branch = disk.branch_off(view, &name).expect("a branch");
            disk.delete(view).expect("deleted");
            disk.delete(branch.head()).expect("deleted");
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (view, model) in states {
        let found = crate::model::ModelState::read_view(disk, view).expect("readable");
        assert_eq!(found.diff(&model), None, "{view}");
    }
    assert_eq!(disk.versions().views().count(), 4);
}
