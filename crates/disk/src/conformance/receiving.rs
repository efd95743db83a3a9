//! Versions that are received from another disk.

use dendro_base::{Origin, Timestamp, Uuid};

use super::versions::Rig;
use crate::{Error, Lid, ListHints, Op, Snapshot, Versions, View};

const HEAD: View = View::HEAD;
const ORIGIN: Origin = Origin { volume: Uuid([7; 16]), epoch: 5 };

/// Makes a list with this number in a branch that receives.
fn make(rig: &mut Rig<'_>, head: View, list: Lid) {
    rig.push(head, Op::CreateList { list, hints: ListHints::default() });
}

fn put(rig: &mut Rig<'_>, head: View, list: Lid, value: &'static [u8]) {
    rig.push(head, Op::PutRecord { list, index: 1, value: value.into() });
}

fn end(rig: &mut Rig<'_>, head: View, name: &str) -> Snapshot {
    let received = rig.try_end_receive(head.branch, Some(name), ORIGIN, Timestamp(77));
    received.expect("the name is new")
}

/// Lists of the same numbers, in versions that have nothing to do with each other.
pub fn a_version_is_received_with_numbers_that_are_in_use(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let lists: Vec<_> = (0..5).map(|_| rig.list(HEAD)).collect();
    for list in &lists {
        rig.write(HEAD, *list, 0, &"m".repeat(70));
        put(&mut rig, HEAD, *list, b"main");
    }
    let kept = rig.snapshot(0);
    let head = rig.begin_receive(None);
    rig.check();
    for list in [lists[1], lists[3], Lid(lists[4].0 + 10)] {
        make(&mut rig, head, list);
        rig.write(head, list, 3, "rr0");
        put(&mut rig, head, list, b"received");
    }
    rig.check();
    let snapshot = end(&mut rig, head, "received");
    assert_eq!((snapshot.origin, snapshot.time), (Some(ORIGIN), Timestamp(77)));
    assert!(!disk.versions().has_head(head.branch));
    assert!(disk.allocate_list().expect("a number") > Lid(lists[4].0 + 10));
    rig.check();
    // Neither takes the other with it.
    rig.push(HEAD, Op::DeleteList { list: lists[1] });
    rig.check();
    rig.try_delete(kept).expect("it is a snapshot");
    rig.check();
    rig.try_delete(snapshot.view()).expect("it is a snapshot");
    rig.check();
}

/// With lists of the same numbers in what others made of the base.
pub fn a_version_is_received_on_top_of_its_base(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let head = rig.begin_receive(None);
    let lists: Vec<_> = (1..=80).map(Lid).collect();
    for list in &lists {
        make(&mut rig, head, *list);
        rig.write(head, *list, 0, "abcd");
    }
    let base = end(&mut rig, head, "a").view();
    // A clone of the base, and the main branch, go on with numbers that come next.
    let clone = rig.branch_off(base, "clone");
    let [of_clone, of_main] = [clone, HEAD].map(|view| {
        let list = rig.list(view);
        rig.write(view, list, 0, "xyz");
        list
    });
    let head = rig.begin_receive(Some(base));
    rig.check();
    for list in [of_clone, of_main] {
        make(&mut rig, head, list);
        rig.write(head, list, 1, "new");
    }
    rig.push(head, Op::DeleteList { list: lists[5] });
    rig.write(head, lists[6], 2, "z");
    rig.push(head, Op::PunchPages { list: lists[7], first_page: 0, count: 2 });
    rig.check();
    let next = end(&mut rig, head, "b").view();
    rig.check();
    rig.push(clone, Op::DeleteList { list: of_clone });
    rig.push(clone, Op::DeleteList { list: lists[8] });
    rig.check();
    for view in [base, clone, next] {
        rig.try_delete(view).expect("nothing needs it");
        rig.check();
    }
}

/// But it can be deleted.
pub fn what_is_not_complete_is_no_version(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let kept = rig.list(HEAD);
    let snapshot = rig.snapshot(0);
    let receive =
        |rig: &mut Rig<'_>, base| rig.try_begin_receive(base, None).map(|branch| branch.head());
    assert_eq!(receive(&mut rig, Some(HEAD)), Err(Error::NoSuchView(HEAD)));
    assert_eq!(rig.note_receive(0, "note"), Err(Error::NoSuchView(HEAD)));
    let head = rig.begin_receive(Some(snapshot));
    let refused = Error::NoSuchView(head);
    let branch = head.branch;
    assert!(disk.versions().is_receiving(branch) && !disk.versions().is_receiving(0));
    assert_eq!(rig.try_snapshot(branch, Some("s")).map(drop), Err(refused.clone()));
    assert_eq!(rig.try_branch_off(head, "b").map(drop), Err(refused.clone()));
    assert_eq!(rig.rename(head, "b"), Err(refused.clone()));
    assert_eq!(rig.promote(branch), Err(refused.clone()));
    assert_eq!(rig.try_roll_back(branch, snapshot).map(drop), Err(refused));
    let no_receiver = rig.try_end_receive(0, Some("s"), ORIGIN, Timestamp(1)).map(drop);
    assert_eq!(no_receiver, Err(Error::NoSuchView(HEAD)));
    let note = |disk: &dyn Versions| {
        let table = disk.versions();
        table.branch(branch).and_then(|branch| branch.receive_note().map(str::to_owned))
    };
    assert_eq!(note(disk), None);
    for text in ["here", "there: 7", &"x".repeat(200)] {
        rig.note_receive(branch, text).expect("it is being received");
        assert_eq!(note(disk).as_deref(), Some(text));
        assert!(disk.versions().is_receiving(branch));
    }
    assert!(matches!(rig.note_receive(branch, &"x".repeat(255)), Err(Error::BadName(..))));
    // What its base has, or had, is not made anew.
    let again = |rig: &mut Rig<'_>| {
        let hints = ListHints::default();
        rig.try_commit(head, |aru| {
            aru.create_list(kept, hints);
        })
    };
    assert_eq!(again(&mut rig), Err(Error::ListExists(kept)));
    let name = rig.try_snapshot(0, Some("taken")).expect("the name is new").name;
    let taken = rig.try_end_receive(branch, name.as_deref(), ORIGIN, Timestamp(1)).map(drop);
    assert_eq!(taken, Err(Error::NameTaken("taken".into())));
    make(&mut rig, head, Lid(kept.0 + 1));
    rig.try_delete(head).expect("it can be given up");
    rig.check();
    // And can be received after that.
    let head = rig.begin_receive(Some(snapshot));
    make(&mut rig, head, Lid(kept.0 + 1));
    end(&mut rig, head, "received");
    rig.check();
}

/// Lists that are large enough to be removed in steps.
pub fn lists_of_one_number_go_their_own_ways(disk: &dyn Versions) {
    let mut rig = Rig::new(disk);
    let list = rig.list(HEAD);
    let fill = |rig: &mut Rig<'_>, view: View, value: &'static [u8]| {
        rig.commit(view, |aru| {
            for index in 0..300 {
                aru.put_record(list, index, value);
            }
        });
        rig.write(view, list, 0, "ab");
    };
    fill(&mut rig, HEAD, b"main");
    let heads = [(); 2].map(|()| {
        let head = rig.begin_receive(None);
        make(&mut rig, head, list);
        fill(&mut rig, head, b"received");
        head
    });
    rig.push(HEAD, Op::DeleteList { list });
    rig.check();
    rig.push(heads[0], Op::DeleteList { list });
    rig.check();
    let received = end(&mut rig, heads[1], "received").view();
    let clone = rig.branch_off(received, "clone");
    rig.push(clone, Op::DeleteList { list });
    rig.check();
    rig.try_delete(heads[0]).expect("it can be given up");
    rig.try_delete(clone).expect("nothing needs it");
    rig.check();
    rig.try_delete(received).expect("nothing needs it");
    rig.check();
}
