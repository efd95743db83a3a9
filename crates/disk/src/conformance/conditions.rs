//! Units with conditions, units that are kept, and those who wait for durability.

use std::sync::mpsc;
use std::time::Duration;

use super::rig::{Rig, noise};
use crate::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, Outlasts, PAGE_SIZE, Record, View,
};

/// How long a call may take that is made "soon".
const SOON: Duration = Duration::from_secs(30);

fn record(text: &str) -> Record {
    text.as_bytes().into()
}

/// A record is as it is required to be, or the unit changes nothing.
pub fn a_unit_requires_what_records_are(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (list, missing) = (rig.list(), Lid(1 << 40));
    rig.push(Op::PutRecord { list, index: 3, value: record("three") });
    let failed = Error::ConditionFailed(list);
    for (index, value) in
        [(3, None), (3, Some(record("thre"))), (3, Some(record("thref"))), (4, Some(record("x")))]
    {
        rig.refuse(&failed, |aru| {
            aru.put_record(list, 9, *b"never").require_record(list, index, value);
        });
    }
    rig.refuse(&Error::ConditionFailed(missing), |aru| {
        aru.put_record(list, 9, *b"never").require_record(missing, 0, Some(record("x")));
    });
    // All conditions must hold.
    rig.refuse(&failed, |aru| {
        aru.require_record(list, 4, None).require_record(list, 3, None);
        aru.put_record(list, 9, *b"never");
    });
    rig.commit(|aru| {
        aru.require_record(list, 3, Some(record("three"))).require_record(list, 4, None);
        aru.require_record(missing, 0, None).put_record(list, 3, *b"four");
    });
    rig.check();
    let mut only = Aru::new(View::HEAD);
    only.require_record(list, 3, Some(record("three")));
    assert_eq!(disk.commit(only), Err(failed), "a unit without changes has conditions too");
}

/// A list has not changed since a commit, whatever others did to other lists.
pub fn a_unit_requires_that_lists_are_unchanged(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (a, b) = (rig.list(), rig.list());
    rig.write(a, 0, "aaaa");
    let before = disk.last_commit();
    let on_both = |aru: &mut Aru<'_>, since| {
        aru.require_unchanged(a, since).require_unchanged(b, since);
        aru.put_record(a, 1, *b"based on both");
    };
    let other = rig.list();
    rig.write(other, 0, "xx");
    rig.commit(|aru| on_both(aru, before));
    // That was a change of one of them.
    rig.refuse(&Error::ConditionFailed(a), |aru| on_both(aru, before));
    let now = disk.last_commit();
    assert!(now > before, "{now:?} after {before:?}");
    for change in [
        Op::PutRecord { list: b, index: 0, value: record("b") },
        Op::DeleteRecord { list: b, index: 0 },
        Op::PunchPages { list: b, first_page: 0, count: 1 },
        Op::SetHints { list: b, hints: ListHints::default() },
        Op::MovePages { from: other, from_page: 0, to: b, to_page: 0, count: 1 },
        Op::SwapPages { a: b, b: other },
    ] {
        let since = disk.last_commit();
        rig.push(change);
        rig.refuse(&Error::ConditionFailed(b), |aru| on_both(aru, since));
        let latest = disk.last_commit();
        rig.commit(|aru| on_both(aru, latest));
    }
    rig.check();
}

/// A unit that failed is as it was. One that was committed is empty, and serves again.
pub fn a_unit_comes_back_when_it_fails_and_empty_when_it_does_not(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages_to_change(list, 0, noise(1, PAGE_SIZE)).put_record(list, 5, *b"five");
    aru.use_reservation(disk.reserve(1 << 16).expect("64 KiB")).set_reclaims();
    aru.require_record(list, 5, Some(record("something else")));
    let before = (aru.ops().to_vec(), aru.kept().to_vec());
    assert_eq!(disk.try_commit(&mut aru), Err(Error::ConditionFailed(list)));
    assert_eq!((aru.ops().to_vec(), aru.kept().to_vec()), before);
    assert!(aru.reservation().is_some() && aru.reclaims() && aru.conditions().len() == 1);
    assert!(disk.space().reserved_bytes >= 1 << 16);
    rig.check();

    rig.push(Op::PutRecord { list, index: 5, value: record("something else") });
    crate::model::apply(&mut rig.model, aru.ops()).expect("the case is right");
    disk.try_commit(&mut aru).expect("the condition holds now");
    assert!(aru.ops().is_empty() && aru.kept().is_empty() && aru.conditions().is_empty());
    assert!(aru.reservation().is_none() && !aru.reclaims());
    assert_eq!(disk.space().reserved_bytes, 0);
    rig.check();

    aru.put_record(list, 6, *b"the same unit again");
    crate::model::apply(&mut rig.model, aru.ops()).expect("the case is right");
    disk.try_commit(&mut aru).expect("a commit that is right");
    rig.check();
}

/// Threads that read, and write on the condition that what they read still holds, lose no update.
pub fn threads_that_set_conditions_lose_no_update(disk: &dyn LogicalDisk) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 60;
    let mut rig = Rig::new(disk);
    let (counter, pages) = (rig.list(), rig.list());
    rig.push(Op::PutRecord {
        list: counter,
        index: 0,
        value: Record::from(&0_u64.to_le_bytes()[..]),
    });
    let add_to_record = || {
        let found = disk.record(View::HEAD, counter, 0).expect("readable").expect("it is there");
        let next = u64::from_le_bytes(found[..].try_into().expect("8 bytes")) + 1;
        let mut aru = Aru::new(View::HEAD);
        aru.require_record(counter, 0, Some(found)).put_record(counter, 0, next.to_le_bytes());
        disk.commit(aru)
    };
    let add_to_page = || {
        let since = disk.last_commit();
        let mut page = vec![0; PAGE_SIZE];
        disk.read_pages(View::HEAD, pages, 0, &mut page).expect("readable");
        let next = u64::from_le_bytes(page[..8].try_into().expect("8 bytes")) + 1;
        let mut aru = Aru::new(View::HEAD);
        aru.require_unchanged(pages, since).write_pages(pages, 0, next.to_le_bytes().to_vec());
        disk.commit(aru)
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let add: &(dyn Fn() -> crate::Result<CommitSeq> + Sync) =
                if thread % 2 == 0 { &add_to_record } else { &add_to_page };
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    while let Err(error) = add() {
                        assert!(matches!(error, Error::ConditionFailed(_)), "{error}");
                    }
                }
            });
        }
    });
    let found = disk.record(View::HEAD, counter, 0).expect("readable").expect("it is there");
    assert_eq!(found[..], (THREADS / 2 * ROUNDS).to_le_bytes());
    let mut page = vec![0; PAGE_SIZE];
    disk.read_pages(View::HEAD, pages, 0, &mut page).expect("readable");
    assert_eq!(page[..8], (THREADS / 2 * ROUNDS).to_le_bytes());
}

/// Who waits for a commit is called once it is durable, and not before he can be.
pub fn who_waits_for_durability_is_called_once(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let (told, calls) = mpsc::channel();
    let wait_for = |seq: CommitSeq, name: u32| {
        let told = told.clone();
        disk.when_durable(seq, Box::new(move |outcome| drop(told.send((name, outcome)))));
    };
    for name in 0..20 {
        let seq = rig.push(Op::PutRecord { list, index: u64::from(name), value: record("x") });
        wait_for(seq, name);
    }
    disk.flush(CommitSeq::LATEST).expect("flushed");
    let mut names: Vec<u32> = (0..20)
        .map(|_| calls.recv_timeout(SOON).expect("everything is durable"))
        .map(|(name, outcome)| outcome.map(|()| name).expect("flushed"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, (0..20).collect::<Vec<_>>());
    // What is durable already is told at once.
    wait_for(CommitSeq(1), 99);
    assert_eq!(calls.recv_timeout(SOON), Ok((99, Ok(()))));
    assert!(calls.try_recv().is_err(), "each is called once");
}

/// A list can be flushed, changed or not, there or not.
pub fn a_list_is_flushed(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (a, b) = (rig.list(), rig.list());
    for round in 0..3 {
        rig.write(a, round, "a");
        disk.flush_list(View::HEAD, a).expect("flushed");
        rig.write(b, round, "b");
        disk.flush_list(View::HEAD, a).expect("nothing of it has changed");
        disk.flush_list(View::HEAD, b).expect("flushed");
        disk.flush_list(View::HEAD, Lid(1 << 40)).expect("there is nothing of it");
    }
    rig.check();
}

/// A flush for each kind of failure is answered. Only a disk on one device may say so.
pub fn a_flush_is_for_a_kind_of_failure(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let kinds = [Outlasts::Process, Outlasts::Machine, Outlasts::Medium];
    for (page, outlasts) in (0..).zip(kinds) {
        for up_to in [CommitSeq(0), CommitSeq::LATEST] {
            rig.write(list, page, "a");
            match disk.flush_for(outlasts, up_to) {
                Ok(()) => {}
                Err(Error::OneCopy) if outlasts == Outlasts::Medium => {}
                Err(error) => panic!("{outlasts:?}: {error}"),
            }
        }
    }
    rig.check();
}
