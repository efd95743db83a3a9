use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_disk::model::ModelDisk;
use dendro_disk::{LogicalDisk, View};
use dendro_nbd::{Export, Extent};

use crate::{make_device, open_device, volume};

const SIZE: u64 = 3 << 20;

/// A range in the device, short or long, aligned or not.
fn draw_range(rng: &mut Rng) -> (u64, u64) {
    let unit = [1, 512, 4096, 131_072][rng.below(4) as usize];
    let offset = rng.below(SIZE / unit) * unit;
    let longest = [5000, 20_000, 200_000, SIZE][rng.below(4) as usize];
    let len = 1 + rng.below(longest.min(SIZE - offset));
    (offset, if rng.chance(50) { len.next_multiple_of(unit).min(SIZE - offset) } else { len })
}

/// What is a page of zeros may be a hole; what is none is none.
fn check_extents(device: &dyn Export, model: &[u8], rng: &mut Rng) {
    let (offset, len) = draw_range(rng);
    let max_count = 1 + rng.below(100) as usize;
    let extents = device.extents(offset, len, max_count).unwrap();
    assert!((1..=max_count).contains(&extents.len()));
    let mut at = offset;
    let mut before = None;
    for Extent { len_bytes, is_hole } in extents.iter().copied() {
        assert!(len_bytes > 0 && before != Some(is_hole));
        let there = &model[at as usize..(at + len_bytes) as usize];
        assert!(!is_hole || there.iter().all(|&byte| byte == 0), "{at}");
        at += len_bytes;
        before = Some(is_hole);
    }
    assert!(at == offset + len || at < offset + len && extents.len() == max_count);
}

fn work(disk: Arc<dyn LogicalDisk>, seed: u64) {
    make_device(&*disk, SIZE);
    let device = open_device(disk, View::HEAD);
    let mut rng = Rng::new(seed);
    let mut model = vec![0; SIZE as usize];
    for step in 0..300 {
        let (offset, len) = draw_range(&mut rng);
        let range = offset as usize..(offset + len) as usize;
        match rng.below(10) {
            0..4 => {
                rng.fill(&mut model[range.clone()]);
                device.write(offset, &model[range], rng.chance(10)).unwrap();
            }
            4 | 5 => {
                model[range].fill(0);
                device.zero(offset, len, rng.chance(50), rng.chance(10)).unwrap();
            }
            6 => {
                device.trim(offset, len, rng.chance(10)).unwrap();
                // Whole pages are freed, and read as zeros.
                let pages = offset.next_multiple_of(4096)..(offset + len) / 4096 * 4096;
                if pages.start < pages.end {
                    model[pages.start as usize..pages.end as usize].fill(0);
                }
            }
            7 => device.flush().unwrap(),
            8 => check_extents(&device, &model, &mut rng),
            _ => {
                let mut read = vec![1; len as usize];
                device.read(offset, &mut read).unwrap();
                assert!(read == model[range], "seed {seed}, step {step}: {offset}, {len}");
            }
        }
    }
    let mut all = vec![1; SIZE as usize];
    device.read(0, &mut all).unwrap();
    assert!(all == model, "seed {seed}");
}

#[test]
fn a_device_has_what_was_written() {
    for seed in 0..5 {
        work(volume(64 << 20), seed);
        work(Arc::new(ModelDisk::new(None)), seed);
    }
}

#[test]
fn what_is_zeroed_is_a_hole_unless_it_must_not_be() {
    let disk = volume(32 << 20);
    make_device(&*disk, SIZE);
    let device = open_device(disk, View::HEAD);
    let extent = |len_bytes, is_hole| Extent { len_bytes, is_hole };
    assert_eq!(device.extents(0, SIZE, 10).unwrap(), [extent(SIZE, true)]);
    device.write(8192, &[1; 16384], false).unwrap();
    device.zero(12288, 4096, true, false).unwrap();
    device.zero(40960, 4096, false, false).unwrap();
    let expected = [
        extent(8192, true),
        extent(4096, false),
        extent(4096, true),
        extent(8192, false),
        extent(16384, true),
        extent(4096, false),
        extent(SIZE - 45056, true),
    ];
    assert_eq!(device.extents(0, SIZE, 10).unwrap(), expected);
    assert_eq!(device.extents(0, SIZE, 3).unwrap(), expected[..3]);
    assert_eq!(device.extents(9000, 100, 10).unwrap(), [extent(100, false)]);
}

#[test]
fn zeroing_parts_of_pages_of_a_hole_leaves_a_hole() {
    let disk = volume(32 << 20);
    make_device(&*disk, SIZE);
    let device = open_device(Arc::clone(&disk) as _, View::HEAD);
    device.write(40960, &[1; 4096], true).unwrap();
    let extent = |len_bytes, is_hole| Extent { len_bytes, is_hole };
    let expected = [extent(40960, true), extent(4096, false), extent(SIZE - 45056, true)];
    let ranges = [
        // In one page, across the boundary of two, around whole pages, and up to data on both
        // sides.
        (512, 512),
        (4000, 200),
        (100, 3 * 4096),
        (36000, 5000),
        (45000, 5000),
        (36000, 15000),
    ];
    let mut model = vec![0; SIZE as usize];
    model[40960..45056].fill(1);
    for (offset, len) in ranges {
        device.zero(offset, len, true, false).unwrap();
        // Of a page that is none, the part is zeroed.
        model[offset as usize..(offset + len) as usize].fill(0);
        let is_left = model[40960..45056].contains(&1);
        let expected = if is_left { &expected[..] } else { &[extent(SIZE, true)] };
        assert_eq!(device.extents(0, SIZE, 10).unwrap(), expected, "{offset}, {len}");
        let mut all = vec![1; SIZE as usize];
        device.read(0, &mut all).unwrap();
        assert!(all == model, "{offset}, {len}");
    }
    // Where there must be no hole, there is none.
    device.zero(512, 512, false, false).unwrap();
    let expected = [extent(4096, false), extent(SIZE - 4096, true)];
    assert_eq!(device.extents(0, SIZE, 10).unwrap(), expected);
}

/// Of a write and a zeroing at the same time, the later one wins everywhere.
#[test]
fn a_write_is_not_undone_in_part_by_zeroes_around_a_hole() {
    let disk = volume(64 << 20);
    make_device(&*disk, SIZE);
    let device = open_device(disk, View::HEAD);
    let (device, begun) = (&device, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for round in 1..1000 {
            device.trim(0, 3 * 4096, false).unwrap();
            let writer = scope.spawn(move || {
                begun.store(round, Ordering::SeqCst);
                device.write(0, &[1; 3 * 4096], false).unwrap();
            });
            while begun.load(Ordering::SeqCst) != round {
                std::hint::spin_loop();
            }
            // So that each of the two is the first at times.
            for _ in 0..round % 100 * 20 {
                std::hint::spin_loop();
            }
            device.zero(100, 3 * 4096 - 200, true, false).unwrap();
            writer.join().unwrap();
            let mut read = [2; 3 * 4096];
            device.read(0, &mut read).unwrap();
            let zeroed = &read[100..3 * 4096 - 100];
            assert!(zeroed.iter().all(|byte| *byte == zeroed[0]), "round {round}");
            assert_eq!((read[99], read[3 * 4096 - 100]), (1, 1), "round {round}");
        }
    });
}

/// Ranges of many groups take several units.
#[test]
fn the_largest_ranges_are_zeroed_and_trimmed() {
    let disk = volume(256 << 20);
    make_device(&*disk, 8 << 30);
    let device = open_device(disk, View::HEAD);
    let gib = 1_u64 << 30;
    for at in [1, gib, 2 * gib + 7, 4 * gib - 3] {
        device.write(at, &[7; 10_000], false).unwrap();
    }
    device.zero(2, 4 * gib - 4, true, false).unwrap();
    let mut edges = [0; 4];
    device.read(0, &mut edges).unwrap();
    assert_eq!(edges, [0, 7, 0, 0]);
    device.read(4 * gib - 4, &mut edges).unwrap();
    assert_eq!(edges, [0, 0, 7, 7]);
    device.zero(2 * gib + 1, gib / 10, false, false).unwrap();
    device.trim(0, 4 * gib, true).unwrap();
    let left = Extent { len_bytes: 4 * gib, is_hole: true };
    assert_eq!(device.extents(0, 4 * gib, 10).unwrap(), [left]);
}

/// Writes of parts of the same pages at the same time lose nothing.
#[test]
fn writers_of_one_page_do_not_undo_each_other() {
    let disk = volume(64 << 20);
    make_device(&*disk, SIZE);
    let device = open_device(disk, View::HEAD);
    std::thread::scope(|scope| {
        for writer in 0..8_u64 {
            let device = &device;
            scope.spawn(move || {
                let mut read = [0; 512];
                for round in 0..200_u64 {
                    let at = (round % 3) * 4096 + writer * 512;
                    device.write(at, &[round as u8; 512], false).unwrap();
                    // Nobody else writes here.
                    device.read(at, &mut read).unwrap();
                    assert_eq!(read, [round as u8; 512], "writer {writer}");
                }
            });
        }
    });
}
