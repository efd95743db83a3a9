//! Pages: contents, holes, groups, the ends of the index space.

use dendro_base::Rng;

use super::rig::{Rig, add_letters, noise, out_of_range};
use crate::{CommitSeq, Error, Lid, LogicalDisk, MAX_PAGE_COUNT, Op, PAGE_SIZE, PageRange, View};

fn read(disk: &dyn LogicalDisk, list: Lid, first_page: u64, count: usize) -> Vec<u8> {
    let mut buf = vec![0xee; count * PAGE_SIZE];
    disk.read_pages(View::HEAD, list, first_page, &mut buf).expect("readable");
    buf
}

/// From one byte to hundreds of pages.
pub fn writes_of_every_length_read_back(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let lengths =
        [1, 63, 64, 65, 4095, 4096, 4097, 8192, 100_000, 131_072, 131_073, 1 << 20, 1_500_001];
    for len in lengths {
        let list = rig.list();
        let data = noise(len as u64, len);
        rig.push(Op::WritePages { list, first_page: 3, data: data.as_slice().into() });
        let found = read(disk, list, 3, len.div_ceil(PAGE_SIZE) + 1);
        assert!(found[..len] == data, "{len} bytes are not what was written");
        assert!(found[len..].iter().all(|&byte| byte == 0), "bytes after {len}");
    }
    rig.check();
}

/// Whatever the page held before.
pub fn a_tail_is_filled_up_with_zeros(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "abc");
    rig.push(Op::WritePages { list, first_page: 1, data: b"short"[..].into() });
    let found = read(disk, list, 0, 3);
    assert!(found[..PAGE_SIZE].iter().all(|&byte| byte == b'a'));
    assert_eq!(found[PAGE_SIZE..PAGE_SIZE + 5], *b"short");
    assert!(found[PAGE_SIZE + 5..2 * PAGE_SIZE].iter().all(|&byte| byte == 0));
    assert!(found[2 * PAGE_SIZE..].iter().all(|&byte| byte == b'c'));
    rig.check();
}

/// Pages of which any part is stored.
pub fn trailing_zeros_read_back(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let kept = [0, 1, 2, 63, 64, 65, 127, 128, 2048, 4031, 4032, 4033, 4095, 4096];
    for (place, &kept) in kept.iter().enumerate() {
        let mut data = noise(kept as u64, PAGE_SIZE);
        data[kept..].fill(0);
        rig.push(Op::WritePages { list, first_page: place as u64, data: data.into() });
    }
    rig.check();
    // The same in one write, and each page over another one.
    let all: Vec<u8> = kept
        .iter()
        .rev()
        .flat_map(|&kept| {
            let mut data = noise(kept as u64, PAGE_SIZE);
            data[kept..].fill(0);
            data
        })
        .collect();
    rig.push(Op::WritePages { list, first_page: 0, data: all.into() });
    rig.check();
}

/// It reads as one, though.
pub fn a_page_of_zeros_is_not_a_hole(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 2, "0");
    assert_eq!(disk.next_data(View::HEAD, list, 0), Ok(Some(2)));
    assert_eq!(disk.next_hole(View::HEAD, list, 2), Ok(3));
    assert_eq!(disk.count_pages(View::HEAD, list, 0..10), Ok(1));
    rig.push(Op::WritePages { list, first_page: 40, data: vec![0].into() });
    assert_eq!(rig.places(list), [2, 40]);
    rig.check();
}

/// [`Op::ZeroPages`] over data, holes and groups.
pub fn zeroing_overwrites_and_allocates(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 29, "abc.ef");
    rig.push(Op::ZeroPages { list, first_page: 30, count: 3 });
    assert_eq!(rig.letters(list, 28, 9), ".a000ef..");
    rig.push(Op::ZeroPages { list, first_page: 31, count: 100 });
    assert_eq!(disk.count_pages(View::HEAD, list, 0..1000), Ok(102));
    assert_eq!(disk.next_hole(View::HEAD, list, 29), Ok(131));
    rig.write(list, 64, "x");
    rig.push(Op::PunchPages { list, first_page: 63, count: 1 });
    assert_eq!(rig.letters(list, 62, 4), "0.x0");
    rig.check();
}

/// In the middle of runs, over groups, at their ends, and where there is nothing.
pub fn punching_makes_holes(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 30, "abcdefgh");
    rig.push(Op::PunchPages { list, first_page: 31, count: 3 });
    assert_eq!(rig.letters(list, 29, 10), ".a...efgh.");
    rig.push(Op::PunchPages { list, first_page: 0, count: 31 });
    assert_eq!(rig.letters(list, 29, 10), ".....efgh.");
    rig.push(Op::PunchPages { list, first_page: 37, count: 1000 });
    assert_eq!(rig.letters(list, 29, 10), ".....efg..");
    rig.push(Op::PunchPages { list, first_page: 500, count: 1 });
    rig.write(list, 35, "x");
    assert_eq!(rig.letters(list, 29, 10), ".....exg..");
    rig.check();
    rig.push(Op::PunchPages { list, first_page: 0, count: MAX_PAGE_COUNT });
    assert_eq!(rig.places(list), [0; 0]);
    rig.check();
}

/// The rest of the run stays what it was.
pub fn parts_of_a_run_are_overwritten(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 25, "aaaaaaaaaaaaaaaa");
    rig.write(list, 30, "bbbb");
    rig.write(list, 32, "c");
    rig.write(list, 24, "dd");
    rig.write(list, 40, "eee");
    assert_eq!(rig.letters(list, 24, 20), "ddaaaabbcbaaaaaaeee.");
    rig.check();
}

/// Every start beside every length, in one list and each in its own.
pub fn runs_cross_groups_of_32_pages_at_any_place(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let all = rig.list();
    for start in (0..3).chain(29..36).chain(62..66) {
        for len in [1, 2, 3, 31, 32, 33, 64, 65] {
            let list = rig.list();
            let data = noise(start * 100 + len, len as usize * PAGE_SIZE);
            rig.commit(|aru| {
                aru.write_pages(list, start, data.clone()).write_pages(all, start, data.clone());
            });
            let places: Vec<u64> = (start..start + len).collect();
            assert_eq!(rig.places(list), places);
            assert!(read(disk, list, start, len as usize) == data, "{len} pages at {start}");
            rig.push(Op::DeleteList { list });
        }
    }
    rig.check();
}

/// [`MAX_PAGE_COUNT`] is the end for every call.
pub fn the_last_pages_can_be_used_and_none_behind_them(disk: &dyn LogicalDisk) {
    const END: u64 = MAX_PAGE_COUNT;
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, END - 40, &"a".repeat(40));
    rig.write(list, END - 2, "xy");
    assert_eq!(rig.letters(list, END - 4, 4), "aaxy");
    assert_eq!(disk.next_hole(View::HEAD, list, END - 40), Ok(END));
    assert_eq!(disk.next_hole(View::HEAD, list, END), Ok(END));
    assert_eq!(disk.next_data(View::HEAD, list, END), Ok(None));
    assert_eq!(disk.count_pages(View::HEAD, list, 0..END), Ok(40));
    rig.push(Op::PunchPages { list, first_page: END - 1, count: 1 });
    assert_eq!(disk.next_hole(View::HEAD, list, END - 3), Ok(END - 1));
    let data = || vec![1; 2 * PAGE_SIZE].into();
    rig.refuse(&out_of_range(END - 1, 2), |aru| {
        aru.push(Op::WritePages { list, first_page: END - 1, data: data() });
    });
    rig.refuse(&out_of_range(u64::MAX, 2), |aru| {
        aru.push(Op::WritePages { list, first_page: u64::MAX, data: data() });
    });
    for (first_page, count) in [(END, 1), (END - 1, 2), (u64::MAX, 1), (END - 1, u64::MAX)] {
        rig.refuse(&out_of_range(first_page, count), |aru| {
            aru.push(Op::ZeroPages { list, first_page, count });
        });
        rig.refuse(&out_of_range(first_page, count), |aru| {
            aru.push(Op::PunchPages { list, first_page, count });
        });
    }
    for first_page in [END - 1, END, u64::MAX] {
        let answer = disk.read_pages(View::HEAD, list, first_page, &mut [0; 2 * PAGE_SIZE]);
        assert_eq!(answer, Err(Error::OutOfRange { first_page, count: 2 }));
    }
    rig.check();
}

/// Wherever they are.
pub fn empty_ranges_change_nothing(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    rig.write(list, 0, "abc");
    for first_page in [0, 1, 500, MAX_PAGE_COUNT] {
        rig.push(Op::WritePages { list, first_page, data: vec![].into() });
        rig.push(Op::ZeroPages { list, first_page, count: 0 });
        rig.push(Op::PunchPages { list, first_page, count: 0 });
        rig.push(Op::MovePages {
            from: list,
            from_page: first_page,
            to: list,
            to_page: 1,
            count: 0,
        });
        disk.read_pages(View::HEAD, list, first_page, &mut []).expect("nothing to read");
        assert_eq!(disk.count_pages(View::HEAD, list, first_page..first_page), Ok(0));
    }
    assert_eq!(rig.letters(list, 0, 5), "abc..");
    rig.check();
}

/// In one call.
pub fn reads_cross_data_and_holes(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    let mut expected = vec![0; 400 * PAGE_SIZE];
    let mut rng = Rng::new(3);
    for _ in 0..60 {
        let first = rng.below(380);
        let len = 1 + rng.below(20 * PAGE_SIZE as u64) as usize;
        let data = noise(first, len);
        let start = first as usize * PAGE_SIZE;
        expected[start..start + len.next_multiple_of(PAGE_SIZE)].fill(0);
        expected[start..start + len].copy_from_slice(&data);
        rig.push(Op::WritePages { list, first_page: first, data: data.into() });
        let hole = rng.below(390);
        rig.push(Op::PunchPages { list, first_page: hole, count: 10 });
        expected[hole as usize * PAGE_SIZE..][..10 * PAGE_SIZE].fill(0);
    }
    for _ in 0..60 {
        let first = rng.below(400);
        let count = 1 + rng.below(400 - first);
        let found = read(disk, list, first, count as usize);
        assert!(found == expected[first as usize * PAGE_SIZE..][..found.len()], "from {first}");
    }
    rig.check();
}

/// Next to each other and very far apart.
pub fn data_and_holes_are_found(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let (before, list, behind) = (rig.list(), rig.list(), rig.list());
    for list in [before, list, behind] {
        rig.write(list, 1, "ab..c");
        rig.write(list, 31, "de");
        rig.write(list, 1 << 40, "f");
    }
    let data = |from| disk.next_data(View::HEAD, list, from).expect("readable");
    let hole = |from| disk.next_hole(View::HEAD, list, from).expect("readable");
    let count = |from, to| disk.count_pages(View::HEAD, list, from..to).expect("readable");
    assert_eq!([0, 1, 2, 3, 5, 6].map(data), [1, 1, 2, 5, 5, 31].map(Some));
    assert_eq!([31, 32, 33, 1 << 40].map(data), [31, 32, 1 << 40, 1 << 40].map(Some));
    assert_eq!(data((1 << 40) + 1), None);
    assert_eq!([0, 1, 2, 3, 5, 31, 32, 33].map(hole), [0, 3, 3, 3, 6, 33, 33, 33]);
    assert_eq!(hole(1 << 40), (1 << 40) + 1);
    assert_eq!(count(0, MAX_PAGE_COUNT), 6);
    assert_eq!((count(2, 6), count(2, 5), count(32, 1 << 40)), (2, 1, 1));
}

/// A count of 2⁵¹ over a few pages returns at once.
pub fn punching_costs_by_data_not_by_count(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    for round in 0..50 {
        rig.commit(|aru| {
            for place in [0, 100, 1 << 20, 1 << 35, 1 << 50, MAX_PAGE_COUNT - 3] {
                add_letters(aru, list, place + round % 3, "a");
            }
        });
        let first_page = round;
        let count = MAX_PAGE_COUNT - first_page - round % 2;
        rig.push(Op::PunchPages { list, first_page, count });
    }
    rig.check();
}

/// One page at a time, in no order.
pub fn pages_written_backwards_and_scattered_read_back(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let list = rig.list();
    for page in (0..100).rev() {
        rig.push(Op::WritePages { list, first_page: page, data: noise(page, PAGE_SIZE).into() });
    }
    let mut rng = Rng::new(9);
    for seed in 0..300 {
        let first_page = rng.below(100_000);
        let len = 1 + rng.below(PAGE_SIZE as u64) as usize;
        rig.push(Op::WritePages { list, first_page, data: noise(seed, len).into() });
    }
    rig.check();
}

/// Of several lists, in any order, twice, overlapping, empty, of holes, and of no list.
pub fn scattered_ranges_read_back_as_one_by_one(disk: &dyn LogicalDisk) {
    let mut rig = Rig::new(disk);
    let mut rng = Rng::new(7);
    let lists: Vec<Lid> = (0..4).map(|_| rig.list()).collect();
    let place = |rng: &mut Rng| (lists[rng.below(4) as usize], rng.below(200));
    for turn in 0..120 {
        let (list, first_page) = place(&mut rng);
        let data = noise(turn, 1 + rng.below(5 * PAGE_SIZE as u64) as usize);
        rig.push(Op::WritePages { list, first_page, data: data.into() });
        if turn == 60 {
            disk.flush(CommitSeq::LATEST).expect("a flush");
        }
    }
    let missing = disk.allocate_list().expect("a number");
    for _ in 0..40 {
        let ranges: Vec<PageRange> = (0..rng.below(30))
            .map(|_| {
                let (list, first_page) = place(&mut rng);
                let list = if rng.below(10) == 0 { missing } else { list };
                PageRange { list, first_page, count: rng.below(12) }
            })
            .collect();
        let expected: Vec<u8> = ranges
            .iter()
            .flat_map(|range| read(disk, range.list, range.first_page, range.count as usize))
            .collect();
        let mut found = vec![0xee; expected.len()];
        disk.read_scattered(View::HEAD, &ranges, &mut found).expect("readable");
        assert!(found == expected, "{ranges:?}");
    }
    let past_end = PageRange { list: lists[0], first_page: MAX_PAGE_COUNT, count: 1 };
    let within = PageRange { first_page: 0, ..past_end };
    let found = disk.read_scattered(View::HEAD, &[within, past_end], &mut [0; 2 * PAGE_SIZE]);
    assert_eq!(found, Err(out_of_range(MAX_PAGE_COUNT, 1)));
}
