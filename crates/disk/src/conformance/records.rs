//! Records.

use dendro_base::Rng;

use super::rig::{Rig, noise};
use crate::{Error, LogicalDisk, MAX_RECORD_LEN_BYTES, Op, View};

/// The life of one record.
pub fn a_record_is_put_replaced_and_deleted(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let read = || disk.record(View::HEAD, list, 42).expect("readable").map(|value| value.to_vec());
    rig.push(Op::PutRecord { list, index: 42, value: b"first"[..].into() });
    assert_eq!(read(), Some(b"first".to_vec()));
    rig.push(Op::PutRecord { list, index: 42, value: b"the second one"[..].into() });
    assert_eq!(read(), Some(b"the second one".to_vec()));
    rig.push(Op::DeleteRecord { list, index: 41 });
    assert_eq!(read(), Some(b"the second one".to_vec()));
    for _ in 0..2 {
        rig.push(Op::DeleteRecord { list, index: 42 });
        assert_eq!(read(), None);
    }
    rig.push(Op::PutRecord { list, index: 42, value: b"again"[..].into() });
    assert_eq!(read(), Some(b"again".to_vec()));
    rig.check();
}

/// From 1 byte to the longest; zeros at the end are part of a record.
pub fn records_of_every_length_read_back(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    for len in 1..=MAX_RECORD_LEN_BYTES {
        let value = if len % 3 == 0 { vec![0; len] } else { noise(len as u64, len) };
        rig.push(Op::PutRecord { list, index: len as u64 * 7, value: value.into() });
    }
    rig.check();
    let zeros = disk.record(View::HEAD, list, 21).expect("readable").expect("it was put");
    assert_eq!(*zeros, [0; 3]);
}

/// [`Error::RecordTooLong`] for none and for one too many bytes.
pub fn record_lengths_outside_the_limits_are_refused(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.push(Op::PutRecord { list, index: 0, value: b"kept"[..].into() });
    for len in [0, MAX_RECORD_LEN_BYTES + 1, 100_000] {
        rig.refuse(&Error::RecordTooLong(len), |aru| {
            aru.put_record(list, 1, &b"x"[..]).put_record(list, 0, vec![1; len]);
        });
    }
}

/// Reading starts anywhere in the 64-bit index space and stops after as many as asked for.
pub fn records_are_read_in_order_and_in_parts(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (before, list, behind) = (rig.list(), rig.list(), rig.list());
    let indices = [0, 1, 2, 31, 32, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
    for list in [before, list, behind] {
        for index in indices.into_iter().rev() {
            let value = index.to_le_bytes().to_vec();
            rig.push(Op::PutRecord { list, index, value: value.into() });
        }
    }
    let read = |from, max| -> Vec<u64> {
        let records = disk.records(View::HEAD, list, from, max).expect("readable");
        assert!(records.iter().all(|(index, value)| **value == index.to_le_bytes()));
        records.into_iter().map(|(index, _)| index).collect()
    };
    assert_eq!(read(0, usize::MAX), indices);
    assert_eq!(read(0, 0), [0; 0]);
    assert_eq!(read(3, 3), indices[3..6]);
    assert_eq!(read(31, 1), [31]);
    assert_eq!(read((1 << 63) + 1, 100), indices[7..]);
    assert_eq!(read(u64::MAX, 100), [u64::MAX]);
    rig.check();
}

/// A record and a page of one index live side by side.
pub fn records_and_pages_do_not_share_indices(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "ab");
    rig.push(Op::PutRecord { list, index: 0, value: b"record"[..].into() });
    rig.push(Op::PunchPages { list, first_page: 0, count: 1 });
    assert_eq!(rig.letters(list, 0, 2), ".b");
    rig.push(Op::DeleteRecord { list, index: 1 });
    assert_eq!(rig.letters(list, 0, 2), ".b");
    assert_eq!(disk.record(View::HEAD, list, 0), Ok(Some(b"record"[..].into())));
    rig.check();
}

/// Enough of them to be spread over whatever a disk keeps them in.
pub fn thousands_of_records_come_and_go(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let lists = [rig.list(), rig.list()];
    let mut rng = Rng::new(1);
    for round in 0..8 {
        for _ in 0..20 {
            rig.commit(|aru| {
                for _ in 0..50 {
                    let list = lists[rng.below(2) as usize];
                    let index = rng.below(4000) * 0x1234_5678_9abc;
                    if rng.below(8) < round {
                        aru.delete_record(list, index);
                    } else {
                        aru.put_record(list, index, noise(index, 1 + index as usize % 300));
                    }
                }
            });
        }
        rig.check();
    }
    rig.push(Op::DeleteList { list: lists[0] });
    rig.check();
}
