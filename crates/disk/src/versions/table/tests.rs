use dendro_base::{Rng, Timestamp};

use super::VersionTable;
use crate::{Error, MAX_NAME_LEN_BYTES, View, check_name};

const NOW: Timestamp = Timestamp(7);

const fn head(branch: u32) -> View {
    View { branch, epoch: None }
}

const fn moment(branch: u32, epoch: u64) -> View {
    View { branch, epoch: Some(epoch) }
}

fn new() -> VersionTable {
    VersionTable::new(Timestamp(0))
}

fn ancestors(table: &VersionTable) -> Vec<u32> {
    table.ancestors().map(|(branch, _)| branch).collect()
}

#[test]
fn a_new_disk_has_one_head_that_writes_in_epoch_1() {
    let table = new();
    assert_eq!(table.views().collect::<Vec<_>>(), [head(0)]);
    assert_eq!((table.main, table.epoch, table.next_branch), (0, 1, 1));
    assert_eq!(table.branch_named("main").map(|main| main.branch), Some(0));
}

#[test]
fn a_snapshot_and_a_branch_from_a_head_end_an_epoch_and_a_branch_from_a_snapshot_does_not() {
    let mut table = new();
    let first = table.snapshot(0, Some("first"), NOW).expect("a snapshot");
    assert_eq!((first.epoch, first.time, table.epoch), (1, NOW, 2));
    let from_head = table.branch_off(head(0), "b", NOW).expect("a branch");
    assert_eq!((from_head.branch, from_head.parent, table.epoch), (1, Some((0, 2)), 3));
    let from_snapshot = table.branch_off(first.view(), "c", NOW).expect("a branch");
    assert_eq!((from_snapshot.branch, from_snapshot.parent, table.epoch), (2, Some((0, 1)), 3));
    let later = table.snapshot(2, None, NOW).expect("a snapshot");
    assert_eq!((later.view(), table.epoch), (moment(2, 3), 4));
}

#[test]
fn names_that_mean_something_else_are_refused() {
    let long = "x".repeat(MAX_NAME_LEN_BYTES + 1);
    let bad = [
        "", ".", "..", "a..b", "head", "123", "0", "a/b", "a@b", "a:b", "a\0b", "a\nb", "-15m",
        &long,
    ];
    for name in bad {
        assert!(matches!(check_name(name), Err(Error::BadName(..))), "{name:?}");
    }
    let longest = "x".repeat(MAX_NAME_LEN_BYTES);
    for name in ["a", "1a", "2026-11-21", "heads", ".hidden", "ein Äpfelchen", "main", &longest] {
        assert_eq!(check_name(name), Ok(()), "{name:?}");
    }
}

#[test]
fn snapshots_and_branches_have_names_apart_from_each_other() {
    let mut table = new();
    let one = table.snapshot(0, Some("one"), NOW).expect("a snapshot").view();
    let two = table.snapshot(0, Some("two"), NOW).expect("a snapshot").view();
    table.branch_off(one, "one", NOW).expect("branches may be called like snapshots");
    let before = table.clone();
    let taken = |name: &str| Err(Error::NameTaken(name.to_owned()));
    assert_eq!(table.snapshot(1, Some("one"), NOW).map(drop), taken("one"));
    assert_eq!(table.branch_off(two, "main", NOW).map(drop), taken("main"));
    assert_eq!(table.rename(two, "one"), taken("one"));
    assert_eq!(table.rename(head(0), "one"), taken("one"));
    assert!(matches!(table.rename(two, "head"), Err(Error::BadName(..))));
    assert!(matches!(table.branch_off(head(0), "3", NOW), Err(Error::BadName(..))));
    assert_eq!(table, before, "what is refused changes nothing");
    assert_eq!(table.rename(two, "two"), Ok(()), "its own name is free for it");
    assert_eq!(table.rename(head(0), "trunk"), Ok(()));
    assert_eq!(table.main_head(), head(0));
    table.branch_off(one, "main", NOW).expect("the name is free again");
}

#[test]
fn a_snapshot_without_a_name_becomes_one_that_stays_when_renamed() {
    let mut table = new();
    let view = table.snapshot(0, None, NOW).expect("a snapshot").view();
    table.snapshot(0, None, NOW).expect("any number have no name");
    table.rename(view, "kept").expect("a rename");
    assert_eq!(table.snapshot_named("kept").map(|kept| kept.view()), Some(view));
}

#[test]
fn what_does_not_exist_is_refused_by_every_change() {
    let mut table = new();
    table.snapshot(0, None, NOW).expect("a snapshot");
    let before = table.clone();
    for view in [head(1), moment(0, 2), moment(0, u64::MAX), moment(1, 1)] {
        let missing = Err(Error::NoSuchView(view));
        assert_eq!(table.check(view), missing);
        assert_eq!(table.branch_off(view, "b", NOW).map(drop), missing);
        assert_eq!(table.rename(view, "b"), missing);
        assert_eq!(table.hold(view, true), missing);
        assert_eq!(table.delete(view), missing);
        assert_eq!(table.roll_back(0, view, NOW).map(drop), missing);
    }
    let missing = Err(Error::NoSuchView(head(5)));
    assert_eq!(table.snapshot(5, None, NOW).map(drop), missing);
    assert_eq!(table.promote(5), missing);
    assert_eq!(table.roll_back(5, moment(0, 1), NOW).map(drop), missing);
    assert_eq!(table.hold(head(0), true), Err(Error::NoSuchView(head(0))), "heads are not held");
    assert_eq!(table, before);
}

#[test]
fn the_main_branch_and_what_is_held_cannot_be_deleted() {
    let mut table = new();
    let view = table.snapshot(0, Some("s"), NOW).expect("a snapshot").view();
    table.hold(view, true).expect("held");
    let before = table.clone();
    assert!(matches!(table.delete(view), Err(Error::InUse(of, _)) if of == view));
    assert!(matches!(table.delete(head(0)), Err(Error::InUse(of, _)) if of == head(0)));
    assert_eq!(table, before);
    table.hold(view, false).expect("released");
    table.delete(view).expect("deleted");
    assert_eq!(table.check(view), Err(Error::NoSuchView(view)));
}

#[test]
fn a_branch_without_a_head_stays_as_long_as_something_descends_from_it() {
    let mut table = new();
    for (from, name) in [(0, "b"), (1, "c"), (2, "d")] {
        table.branch_off(head(from), name, NOW).expect("a branch");
    }
    let kept = table.snapshot(1, None, NOW).expect("a snapshot").view();
    table.delete(head(2)).expect("deleted");
    table.delete(head(1)).expect("deleted");
    assert_eq!(ancestors(&table), [1, 2]);
    assert_eq!(table.check(head(2)), Err(Error::NoSuchView(head(2))));
    assert_eq!(table.ancestry(head(3)), [(3, u64::MAX), (2, 3), (1, 2), (0, 1)]);
    assert_eq!(table.pins(1).collect::<Vec<_>>(), [4, 2]);
    table.delete(head(3)).expect("deleted");
    assert_eq!(ancestors(&table), [1], "it still has a snapshot");
    table.delete(kept).expect("deleted");
    assert_eq!(ancestors(&table), [0_u32; 0]);
    assert_eq!(table.pins(0).count(), 0);
    table.branch_off(head(0), "b", NOW).expect("a branch");
    assert_eq!(table.branches().nth(1).unwrap().branch, 4, "numbers are not given out again");
}

#[test]
fn promotion_exchanges_the_names() {
    let mut table = new();
    table.branch_off(head(0), "clone", NOW).expect("a branch");
    table.promote(1).expect("promoted");
    let names: Vec<_> = table.branches().map(|branch| &*branch.name).collect();
    assert_eq!((names, table.main), (vec!["clone", "main"], 1));
    let before = table.clone();
    table.promote(1).expect("promoting the main branch changes nothing");
    assert_eq!(table, before);
    table.delete(head(0)).expect("it is not the main one any more");
}

#[test]
fn rolling_back_moves_name_and_being_main_to_a_new_branch() {
    let mut table = new();
    let early = table.snapshot(0, Some("early"), NOW).expect("a snapshot").view();
    let late = table.snapshot(0, Some("late"), NOW).expect("a snapshot").view();
    let new = table.roll_back(0, early, Timestamp(9)).expect("rolled back");
    assert_eq!(
        (new.branch, &*new.name, new.parent, new.time),
        (1, "main", Some((0, 1)), Timestamp(9))
    );
    assert_eq!((table.main, table.epoch), (1, 3));
    assert_eq!(table.check(head(0)), Err(Error::NoSuchView(head(0))));
    assert_eq!(table.check(late), Ok(()), "later snapshots stay");
    table.roll_back(1, early, NOW).expect("the past reaches through the branch point");
    assert_eq!((table.main, ancestors(&table)), (2, vec![0]));
    let again = table.roll_back(2, late, NOW).expect("forward again");
    assert_eq!((table.main, again.parent), (3, Some((0, 2))));
}

#[test]
fn rolling_back_another_branch_leaves_the_main_one() {
    let mut table = new();
    table.branch_off(head(0), "b", NOW).expect("a branch");
    let of_main = table.snapshot(0, None, NOW).expect("a snapshot").view();
    let to = table.snapshot(1, None, NOW).expect("a snapshot").view();
    let new = table.roll_back(1, to, NOW).expect("rolled back");
    assert_eq!((table.main, new.branch, &*new.name), (0, 2, "b"));
    let new = table.roll_back(2, of_main, NOW).expect("to another's moment");
    assert_eq!((table.main, new.branch, new.parent), (0, 3, Some((0, of_main.epoch.unwrap()))));
}

#[test]
fn the_past_is_found_by_time_along_the_line() {
    let mut table = new();
    for time in [10, 20] {
        table.snapshot(0, None, Timestamp(time)).expect("a snapshot");
    }
    table.branch_off(head(0), "b", Timestamp(25)).expect("a branch");
    table.snapshot(0, None, Timestamp(30)).expect("a snapshot");
    table.snapshot(1, None, Timestamp(40)).expect("a snapshot");
    let at = |view, time| table.at(view, Timestamp(time)).map(|snapshot| snapshot.view());
    assert_eq!(at(head(1), 9), None);
    assert_eq!(at(head(1), 10), Some(moment(0, 1)));
    assert_eq!(at(head(1), 35), Some(moment(0, 2)));
    assert_eq!(at(head(1), 40), Some(moment(1, 5)));
    assert_eq!(at(head(0), 40), Some(moment(0, 4)));
    assert_eq!(at(moment(0, 2), 40), Some(moment(0, 2)));
    assert_eq!(table.past(head(1)).len(), 3);
}

#[test]
fn numbers_that_are_used_up_are_an_error() {
    let mut table = new();
    table.epoch = u64::MAX;
    assert!(matches!(table.snapshot(0, None, NOW), Err(Error::Corrupted(_))));
    assert!(matches!(table.branch_off(head(0), "b", NOW), Err(Error::Corrupted(_))));
    assert_eq!((table.epoch, table.next_branch, table.branches().len()), (u64::MAX, 1, 1));
    let mut table = new();
    let view = table.snapshot(0, None, NOW).expect("a snapshot").view();
    table.next_branch = u32::MAX;
    let before = table.clone();
    assert!(matches!(table.branch_off(head(0), "b", NOW), Err(Error::Corrupted(_))));
    assert!(matches!(table.roll_back(0, view, NOW), Err(Error::Corrupted(_))));
    assert_eq!(table, before);
}

#[test]
fn ancestors_are_those_that_are_needed_whatever_the_order_of_deleting() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut table = new();
        for step in 0..60 {
            let views: Vec<_> = table.views().collect();
            let view = views[rng.below(views.len() as u64) as usize];
            // Refusals are among what is tried.
            match rng.below(8) {
                0..2 => drop(table.branch_off(view, &format!("b{step}"), NOW)),
                2..4 => drop(table.snapshot(view.branch, None, NOW)),
                4 => drop(table.promote(view.branch)),
                5 => drop(table.roll_back(table.main, view, NOW)),
                _ => drop(table.delete(view)),
            }
            let numbers: Vec<_> = table.parents().map(|(branch, _)| branch).collect();
            for (_, parent) in table.parents() {
                assert!(parent.is_none_or(|(parent, _)| numbers.contains(&parent)), "seed {seed}");
            }
            for snapshot in table.snapshots() {
                assert!(numbers.contains(&snapshot.branch), "seed {seed}");
            }
            for (ancestor, _) in table.ancestors() {
                assert!(table.pins(ancestor).next().is_some(), "seed {seed}: {ancestor}");
            }
            assert!(table.has_head(table.main), "seed {seed}");
            assert!(table.branches().is_sorted_by_key(|branch| branch.branch), "seed {seed}");
            assert!(table.snapshots().is_sorted_by_key(|of| (of.branch, of.epoch)), "seed {seed}");
            assert!(table.ancestors().is_sorted(), "seed {seed}");
        }
    }
}
