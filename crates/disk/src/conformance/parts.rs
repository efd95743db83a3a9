//! Writes of parts of pages ([`Op::WriteBytes`]).

use std::thread;

use dendro_base::Rng;

use super::rig::{Rig, noise};
use crate::{Aru, CommitSeq, Error, Lid, LogicalDisk, MAX_PAGE_COUNT, Op, PAGE_SIZE, View};

const PAGE_BYTES: u64 = PAGE_SIZE as u64;

fn bytes(list: Lid, offset_bytes: u64, data: Vec<u8>) -> Op<'static> {
    Op::WriteBytes { list, offset_bytes, data: data.into() }
}

/// Inside a page, over pages and groups, in holes, and at the end of the index space.
pub fn parts_of_pages_are_written_and_the_rest_stays(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 30, "abc0e");
    let places = [
        (30 * PAGE_BYTES + 10, 100),
        (31 * PAGE_BYTES + 4000, 200),
        (33 * PAGE_BYTES, 1),
        (35 * PAGE_BYTES - 1, 1),
        (34 * PAGE_BYTES + 1, 3 * PAGE_SIZE),
        (500 * PAGE_BYTES + 7, 2 * PAGE_SIZE),
        (64 * PAGE_BYTES - 5, 40 * PAGE_SIZE + 10),
        (64 * PAGE_BYTES, 2 * PAGE_SIZE),
        (MAX_PAGE_COUNT * PAGE_BYTES - 5000, 5000),
    ];
    for (seed, (offset_bytes, len)) in places.into_iter().enumerate() {
        rig.push(bytes(list, offset_bytes, noise(seed as u64, len)));
        if seed == 4 {
            disk.flush(CommitSeq::LATEST).expect("a flush");
        }
    }
    rig.check();
    // Bytes of zeros are written too, and writing nothing makes no page.
    rig.push(bytes(list, 30 * PAGE_BYTES + 20, vec![0; 50]));
    rig.push(bytes(list, 700 * PAGE_BYTES + 20, vec![0; 50]));
    rig.push(bytes(list, 800 * PAGE_BYTES + 20, Vec::new()));
    rig.check();
    assert_eq!(disk.next_data(View::HEAD, list, 700), Ok(Some(700)));
}

/// One byte too many, and a list that is not there.
pub fn parts_that_cannot_be_written_are_refused(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "a");
    let refused = [
        (MAX_PAGE_COUNT * PAGE_BYTES - 10, MAX_PAGE_COUNT - 1, 2),
        (MAX_PAGE_COUNT * PAGE_BYTES, MAX_PAGE_COUNT, 1),
        (u64::MAX - 3, u64::MAX / PAGE_BYTES, 2),
    ];
    for (offset_bytes, first_page, count) in refused {
        let error = Error::OutOfRange { first_page, count };
        rig.refuse(&error, |aru| {
            aru.write_bytes(list, 5, &b"before"[..]).push(bytes(list, offset_bytes, noise(1, 11)));
        });
    }
    let missing = Lid(1 << 40);
    for len in [0, 1, PAGE_SIZE, 3 * PAGE_SIZE] {
        rig.refuse(&Error::NoSuchList(missing), |aru| {
            aru.write_bytes(list, 5, &b"before"[..]).push(bytes(missing, 7, noise(1, len)));
        });
    }
}

/// What earlier changes of the unit have made of the pages.
pub fn a_part_is_written_into_what_the_unit_has_made(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (a, b) = (rig.list(), rig.list());
    rig.write(a, 0, "abcdefgh");
    rig.write(b, 0, "ijklmnop");
    let part = |list, page: u64| bytes(list, page * PAGE_BYTES + 100, noise(page, 300));
    rig.commit(|aru| {
        // Written, written in part, zeroed, punched, moved away, moved there, exchanged.
        aru.write_pages(a, 0, noise(50, 2 * PAGE_SIZE - 9)).push(part(a, 1)).push(part(a, 1));
        aru.push(bytes(a, PAGE_BYTES + 250, noise(51, 300)));
        aru.push(Op::ZeroPages { list: a, first_page: 2, count: 1 }).push(part(a, 2));
        aru.punch_pages(a, 3, 1).push(part(a, 3));
        let (from_page, to_page, count) = (4, 1, 2);
        aru.push(Op::MovePages { from: a, from_page, to: b, to_page, count });
        aru.push(part(a, 4)).push(part(b, 2)).push(part(b, 3));
        aru.push(Op::SwapPages { a, b }).push(part(a, 0)).push(part(b, 1)).push(part(b, 6));
    });
    rig.check();
    let data = noise(52, 9000);
    rig.commit(|aru| {
        aru.delete_list(a).write_bytes(b, 1, &data[..]);
    });
    rig.check();
}

/// Threads that write into the same two pages do not undo what others have written.
pub fn threads_write_parts_of_the_same_pages(disk: &dyn LogicalDisk) {
    const THREADS: u64 = 4;
    const WRITES: u16 = 500;
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let piece = |thread: u64, turn: u16| [turn.to_le_bytes(), [thread as u8; 2]].concat();
    // The third piece lies in both pages.
    let offset = |thread: u64| PAGE_BYTES - 10 + 4 * thread;
    let read_piece = |thread: u64| {
        let mut pages = [0; 2 * PAGE_SIZE];
        disk.read_pages(View::HEAD, list, 0, &mut pages).expect("readable");
        pages[offset(thread) as usize..][..4].to_vec()
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for turn in 0..WRITES {
                    let mut aru = Aru::new(View::HEAD);
                    aru.write_bytes(list, offset(thread), piece(thread, turn));
                    disk.commit(aru).expect("a commit");
                    assert_eq!(read_piece(thread), piece(thread, turn), "turn {turn} is lost");
                }
            });
        }
    });
    for thread in 0..THREADS {
        assert_eq!(read_piece(thread), piece(thread, WRITES - 1), "thread {thread}");
    }
}

/// The unit is tried again with its conditions and its reservation, or comes back with them.
pub fn a_unit_of_parts_has_conditions_and_a_reservation(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let mut rng = Rng::new(5);
    let list = rig.list();
    rig.push(Op::PutRecord { list, index: 0, value: (*b"here").into() });
    let mut aru = Aru::new(View::HEAD);
    aru.write_bytes(list, rng.below(9000), noise(1, 10_000)).require_record(list, 0, None);
    let reservation = disk.reserve(aru.payload_bytes()).expect("room");
    let reserved_bytes = reservation.len_bytes();
    aru.use_reservation(reservation);
    assert_eq!(disk.try_commit(&mut aru), Err(Error::ConditionFailed(list)));
    assert_eq!((aru.ops().len(), aru.conditions().len()), (1, 1), "the unit is as it was");
    assert_eq!(aru.reservation().map(|own| own.len_bytes()), Some(reserved_bytes));
    rig.check();
    rig.push(Op::DeleteRecord { list, index: 0 });
    disk.try_commit(&mut aru).expect("its condition holds now");
    assert!(aru.ops().is_empty() && aru.reservation().is_none(), "it was cleared");
}
