//! Atomic recovery units: all or nothing, order, threads, durability.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use dendro_base::sync::Mutex;

use super::rig::{Rig, add_letters, noise};
use crate::{
    Aru, CommitSeq, Error, GROUP_PAGES, Lid, ListHints, LogicalDisk, MAX_PAGE_COUNT,
    MAX_UNIT_GROUPS, Op, PAGE_SIZE, View,
};

/// At its start, in its middle and at its end.
pub fn a_wrong_change_anywhere_undoes_the_whole_unit(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (list, doomed) = (rig.list(), rig.list());
    rig.write(list, 0, "abcdef");
    rig.write(doomed, 0, "xyz");
    let new = disk.allocate_list().expect("a number");
    for place in 0..=8 {
        rig.refuse(&Error::RecordTooLong(0), |aru| {
            for step in 0..=8 {
                if step == place {
                    aru.put_record(list, 5, vec![]);
                }
                match step {
                    0 => aru.put_record(list, 1, &b"x"[..]),
                    1 => aru.write_pages(list, 1, vec![7; 100 * PAGE_SIZE]),
                    2 => aru.punch_pages(list, 2, 1),
                    3 => aru.delete_list(doomed),
                    4 => aru.create_list(new, ListHints::default()),
                    5 => aru.put_record(new, 0, &b"x"[..]),
                    6 => aru.push(Op::SwapPages { a: list, b: new }),
                    _ => aru.delete_record(list, 0),
                };
            }
        });
    }
    rig.commit(|aru| {
        aru.create_list(new, ListHints::default());
    });
    rig.check();
}

/// Each starts from what the ones before it left.
pub fn changes_of_a_unit_see_the_earlier_ones(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.commit(|aru| {
        aru.put_record(list, 0, &b"one"[..]).delete_record(list, 0).put_record(list, 0, &b"2"[..]);
        aru.put_record(list, 1, &b"one"[..]).delete_record(list, 1);
        add_letters(aru, list, 0, "abcd");
        aru.punch_pages(list, 1, 2);
        add_letters(aru, list, 2, "x");
        aru.push(Op::ZeroPages { list, first_page: 3, count: 2 });
        add_letters(aru, list, 4, "y");
    });
    assert_eq!(disk.record(View::HEAD, list, 0), Ok(Some(b"2"[..].into())));
    assert_eq!(disk.record(View::HEAD, list, 1), Ok(None));
    assert_eq!(rig.letters(list, 0, 6), "a.x0y.");
    rig.check();
}

/// Whole, in parts, and with tails.
pub fn a_page_written_many_times_in_a_unit_is_as_written_last(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    for _ in 0..3 {
        rig.commit(|aru| {
            for seed in 0..50 {
                let first_page = 30 + seed % 5;
                let len = 1 + (seed as usize * 777) % (3 * PAGE_SIZE);
                aru.write_pages(list, first_page, noise(seed, len));
            }
        });
        rig.check();
    }
}

/// And changes nothing.
pub fn an_empty_unit_is_allowed(disk: &dyn LogicalDisk) {
    let rig = Rig::new(disk);
    disk.commit(Aru::new(View::HEAD)).expect("an empty unit");
    let seq = disk.commit(Aru::new(View::HEAD)).expect("an empty unit");
    disk.flush(seq).expect("a flush");
    rig.check();
}

/// Each higher than the one before; a refused one takes no number that matters.
pub fn commits_are_numbered_upwards(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let mut last = CommitSeq(0);
    for index in 0..100 {
        let seq = rig.push(Op::PutRecord { list, index, value: b"x"[..].into() });
        assert!(seq > last && seq < CommitSeq::LATEST, "{seq:?} after {last:?}");
        last = seq;
        rig.refuse(&Error::RecordTooLong(0), |aru| {
            aru.put_record(list, index, vec![]);
        });
    }
}

/// They take effect in the order of their commits; a dropped one not at all.
pub fn units_under_construction_do_not_see_each_other(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let mut first = Aru::new(View::HEAD);
    let mut second = Aru::new(View::HEAD);
    let mut dropped = Aru::new(View::HEAD);
    first.put_record(list, 0, &b"first"[..]);
    second.put_record(list, 0, &b"second"[..]);
    dropped.delete_list(list);
    add_letters(&mut second, list, 0, "bbb");
    add_letters(&mut first, list, 1, "aaa");
    assert_eq!(rig.places(list), [0; 0]);
    drop(dropped);
    let second_seq = disk.commit(second).expect("a commit");
    assert_eq!(rig.letters(list, 0, 5), "bbb..");
    let first_seq = disk.commit(first).expect("a commit");
    assert!(first_seq > second_seq);
    assert_eq!(rig.letters(list, 0, 5), "baaa.");
    assert_eq!(disk.record(View::HEAD, list, 0), Ok(Some(b"first"[..].into())));
}

/// 20 MiB of pages and thousands of records, accepted and refused.
pub fn a_unit_larger_than_any_buffer_is_atomic(disk: &dyn LogicalDisk) {
    const PAGES: usize = 5 << 10;
    let mut rig = Rig::new(disk);
    let (list, other) = (rig.list(), rig.list());
    rig.write(list, 100, "old");
    let data = noise(5, PAGES * PAGE_SIZE);
    let fill = |aru: &mut Aru<'_>| {
        let mut first_page = 0;
        for (place, piece) in data.chunks(700_000).enumerate() {
            // Tails leave gaps that the next piece overwrites.
            aru.write_pages(list, first_page, piece.to_vec());
            first_page += (piece.len() / PAGE_SIZE) as u64;
            for index in 0..200 {
                let index = index * 31 + place as u64;
                aru.put_record(other, index, noise(index, 1 + index as usize % 400));
            }
        }
    };
    rig.refuse(&Error::NoSuchList(Lid(0)), |aru| {
        fill(aru);
        aru.delete_list(Lid(0));
    });
    rig.commit(fill);
    rig.check();
    rig.push(Op::MovePages { from: list, from_page: 1, to: other, to_page: 50, count: 5000 });
    rig.check();
    rig.push(Op::PunchPages { list: other, first_page: 60, count: MAX_PAGE_COUNT - 60 });
    rig.check();
}

/// Written or zeroed, in one change or in several together, or behind what is put off.
pub fn a_unit_that_changes_too_many_groups_is_refused(disk: &dyn LogicalDisk) {
    const GROUPS: u64 = MAX_UNIT_GROUPS;
    let mut rig = Rig::new(disk);
    let (list, other) = (rig.list(), rig.list());
    let zero = |list, groups: Range<u64>| {
        let (first_page, count) =
            (groups.start * GROUP_PAGES, (groups.end - groups.start) * GROUP_PAGES);
        Op::ZeroPages { list, first_page, count }
    };
    // Every second group of twice as many, with a page in each.
    for group in (0..2 * GROUPS).step_by(2) {
        rig.write(list, group * GROUP_PAGES + 7, "x");
    }
    rig.write(list, 3 * GROUPS * GROUP_PAGES, "y");
    let all = MAX_PAGE_COUNT;
    for ops in [
        vec![zero(other, 0..GROUPS + 1)],
        vec![zero(other, 0..GROUPS / 2), zero(list, 0..GROUPS / 2), zero(other, 0..1)],
        vec![Op::SwapPages { a: other, b: list }, zero(list, 0..1)],
        vec![Op::PunchPages { list, first_page: 0, count: all }, Op::DeleteList { list }],
        vec![Op::PunchPages { list, first_page: 0, count: all }; 7],
        vec![Op::MovePages { from: list, from_page: 0, to: other, to_page: 0, count: all }; 4],
    ] {
        rig.refuse(&Error::UnitTooLong, |aru| {
            for op in ops {
                aru.push(op);
            }
        });
    }
    rig.push(zero(other, 0..GROUPS));
    // What is moved within its list is counted once, and a list swapped with itself not at all.
    let count = GROUPS * GROUP_PAGES;
    rig.push(Op::MovePages { from: other, from_page: 0, to: other, to_page: GROUP_PAGES, count });
    rig.push(Op::MovePages { from: other, from_page: GROUP_PAGES, to: other, to_page: 0, count });
    rig.write(other, 2 * count, "y");
    rig.push(Op::SwapPages { a: other, b: other });
    rig.push(Op::PunchPages { list: other, first_page: 2 * count, count: 1 });
    // As many as may be, and at the bound's far side what holds nothing costs nothing.
    rig.push(Op::PunchPages { list, first_page: 0, count: 3 * GROUPS * GROUP_PAGES });
    rig.push(Op::PunchPages { list: other, first_page: 0, count: all });
    rig.push(Op::SwapPages { a: other, b: list });
    rig.check();
    // To delete a list is one unit, whatever it holds.
    for group in 0..2 * GROUPS {
        rig.write(list, group * GROUP_PAGES, "z");
    }
    rig.push(Op::DeleteList { list });
    rig.check();
}

/// Punched, moved within a list and between two, and swapped; with other changes beside.
pub fn a_unit_punches_moves_and_swaps_any_number_of_groups(disk: &dyn LogicalDisk) {
    const GROUPS: u64 = MAX_UNIT_GROUPS;
    let mut rig = Rig::new(disk);
    let (list, other, beside) = (rig.list(), rig.list(), rig.list());
    let fill = |rig: &mut Rig<'_>, list, distance: u64| {
        for first in (0..GROUPS + 200).step_by(200) {
            rig.commit(|aru| {
                for group in first..first + 200 {
                    aru.write_pages(list, group * distance + 5, group.to_le_bytes().to_vec());
                }
            });
        }
    };
    let all = MAX_PAGE_COUNT;
    let moved = |from, from_page, to, to_page: u64| Op::MovePages {
        from,
        from_page,
        to,
        to_page,
        count: all - to_page.max(from_page),
    };
    fill(&mut rig, list, 32);
    fill(&mut rig, other, 77);
    rig.push(Op::SwapPages { a: list, b: other });
    rig.check();
    for op in [
        moved(list, 0, list, 3),
        moved(list, 7, list, 0),
        moved(list, 0, list, 100_000),
        moved(list, 90_000, list, 5),
        moved(list, 4, other, 32),
    ] {
        rig.push(op);
        rig.check();
    }
    fill(&mut rig, list, 33);
    rig.commit(|aru| {
        aru.write_pages(beside, 0, vec![b'a'; PAGE_SIZE]);
        aru.push(moved(list, 0, list, 9)).push(Op::SwapPages { a: list, b: other });
        aru.punch_pages(other, 40, 100).put_record(list, 0, &b"moved"[..]);
        aru.write_pages(beside, 1, vec![b'b'; PAGE_SIZE]);
    });
    // Who asks for something else need not wait, and sees the rest of the unit.
    assert_eq!(rig.letters(beside, 0, 3), "ab.");
    rig.check();
    for list in [other, list] {
        rig.push(Op::PunchPages { list, first_page: 20, count: all - 20 });
        rig.push(Op::DeleteList { list });
    }
    rig.check();
}

/// No commit is lost, none gets the number of another, and the order of numbers is the order of
/// effects.
pub fn threads_commit_at_the_same_time(disk: &dyn LogicalDisk) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 200;
    let mut rig = Rig::new(disk);
    let shared = rig.list();
    let own: Vec<Lid> = (0..THREADS).map(|_| rig.list()).collect();
    let seqs = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (thread, &list) in own.iter().enumerate() {
            let seqs = &seqs;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut aru = Aru::new(View::HEAD);
                    let tag = vec![thread as u8, round as u8];
                    aru.put_record(shared, 0, tag.clone()).put_record(list, round, tag.clone());
                    aru.write_pages(shared, thread as u64 * 3 + round % 40, tag.clone());
                    aru.write_pages(list, round, noise(round, 1 + round as usize * 50));
                    let seq = disk.commit(aru).expect("a commit");
                    if round % 50 == 49 {
                        disk.flush(seq).expect("a flush");
                    }
                    seqs.lock().push((seq, tag));
                }
            });
        }
    });
    let mut seqs = seqs.into_inner();
    seqs.sort();
    seqs.dedup_by_key(|(seq, _)| *seq);
    assert_eq!(seqs.len() as u64, THREADS * ROUNDS, "commits with the same number");
    for (_, tag) in seqs {
        let (thread, round) = (u64::from(tag[0]), u64::from(tag[1]));
        let list = own[thread as usize];
        let mut ops = Aru::new(View::HEAD);
        ops.put_record(shared, 0, tag.clone()).put_record(list, round, tag.clone());
        ops.write_pages(shared, thread * 3 + round % 40, tag);
        ops.write_pages(list, round, noise(round, 1 + round as usize * 50));
        crate::model::apply(&mut rig.model, ops.ops()).expect("it was committed");
    }
    rig.check();
}

/// One call sees one state, while others commit.
pub fn readers_see_units_whole(disk: &dyn LogicalDisk) {
    const PAGES: usize = 70;
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let commit = |round: u8| {
        let mut aru = Aru::new(View::HEAD);
        let data = vec![round; PAGES * PAGE_SIZE];
        aru.write_pages(list, u64::from(round % 3), data[PAGE_SIZE..].to_vec());
        // The pages end up at the same place, and as many as before.
        let from_page = u64::from(round % 3);
        let count = PAGES as u64 - 1;
        aru.push(Op::MovePages { from: list, from_page, to: list, to_page: 20, count });
        aru.punch_pages(list, 0, 20).punch_pages(list, 20 + count, 100);
        for index in 0..50 {
            aru.put_record(list, index, vec![round]);
        }
        disk.commit(aru).expect("a commit");
    };
    commit(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300_u32 {
                commit(1 + (round % 250) as u8);
            }
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buf = vec![0; (PAGES - 1) * PAGE_SIZE];
                while !done.load(Ordering::Acquire) {
                    disk.read_pages(View::HEAD, list, 20, &mut buf).expect("readable");
                    assert!(buf.iter().all(|&byte| byte == buf[0]), "pages of two units");
                    let records = disk.records(View::HEAD, list, 0, 100).expect("readable");
                    assert_eq!(records.len(), 50);
                    assert!(records.iter().all(|(_, value)| *value == records[0].1));
                    let count = disk.count_pages(View::HEAD, list, 0..1000).expect("readable");
                    assert_eq!(count, PAGES as u64 - 1);
                    let data = disk.next_data(View::HEAD, list, 0).expect("readable");
                    assert_eq!(data, Some(20));
                }
            });
        }
    });
}

/// Everything, up to a commit, or nothing new.
pub fn a_flush_covers_what_was_committed(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    disk.flush(CommitSeq::LATEST).expect("nothing to flush");
    let list = rig.list();
    let seq = rig.push(Op::PutRecord { list, index: 0, value: b"x"[..].into() });
    rig.write(list, 0, "abc");
    disk.flush(seq).expect("a flush");
    disk.flush(seq).expect("the same again");
    rig.write(list, 1, "x");
    disk.flush(CommitSeq::LATEST).expect("a flush");
    rig.write(list, 2, "y");
    rig.check();
}

/// [`Error::ReadOnly`] for every change; reads go on.
pub fn a_disk_that_was_shut_down_is_read_only(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 30, "abc.0");
    assert_eq!(disk.read_only_reason(), None);
    disk.shut_down().expect("a shutdown");
    assert!(disk.read_only_reason().is_some());
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 0, &b"x"[..]);
    assert!(matches!(disk.commit(aru), Err(Error::ReadOnly(_))));
    assert!(matches!(disk.allocate_list(), Err(Error::ReadOnly(_))));
    assert!(matches!(disk.reserve(1), Err(Error::ReadOnly(_))));
    assert_eq!(rig.letters(list, 29, 6), ".abc.0");
    rig.check();
}
