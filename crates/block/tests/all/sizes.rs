use std::sync::Arc;

use dendro_base::Rng;
use dendro_block::{BlockDevice, CONTENT, Error, create, list, resize, size_bytes};
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_disk::ListCompression::AsOthers;
use dendro_disk::model::ModelDisk;
use dendro_disk::{Aru, LogicalDisk, MAX_PAGE_COUNT, Versions, View};
use dendro_nbd::Export;

use crate::{formatted, make_device, open, open_device, volume};

const MIB: u64 = 1 << 20;

/// Does the first of two steps by which a device gets a size of 1 MiB.
fn begin_shrinking(disk: &dyn LogicalDisk) {
    let mut unit = Aru::new(View::HEAD);
    let description = b"dendroBD\x01\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0";
    unit.put_record(CONTENT, 0, description.to_vec());
    disk.commit(unit).unwrap();
}

#[test]
fn only_sizes_that_can_be_are_taken() {
    let disk = ModelDisk::new(None);
    make_device(&disk, 4096);
    for size in [0, 1, 4097, MAX_PAGE_COUNT * 4096 + 4096, u64::MAX] {
        assert_eq!(resize(&disk, View::HEAD, size), Err(Error::BadSize(size)));
        assert_eq!(create(&disk, View::HEAD, size, AsOthers), Err(Error::BadSize(size)));
    }
    resize(&disk, View::HEAD, MAX_PAGE_COUNT * 4096).unwrap();
    let device = open_device(Arc::new(disk), View::HEAD);
    let end = device.size_bytes() - 3;
    device.write(end, b"end", true).unwrap();
    let mut read = [0; 3];
    device.read(end, &mut read).unwrap();
    assert_eq!(&read, b"end");
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let disk = volume(32 << 20);
    make_device(&*disk, 2 * MIB);
    let device = open_device(Arc::clone(&disk) as _, View::HEAD);
    device.write(0, &[5; 2 << 20], false).unwrap();
    drop(device);
    resize(&*disk, View::HEAD, MIB).unwrap();
    assert_eq!(disk.count_pages(View::HEAD, CONTENT, 0..MAX_PAGE_COUNT).unwrap(), 256);
    resize(&*disk, View::HEAD, 2 * MIB).unwrap();
    let device = open_device(disk, View::HEAD);
    let mut all = vec![1; 2 << 20];
    device.read(0, &mut all).unwrap();
    assert!(all[..1 << 20].iter().all(|&byte| byte == 5));
    assert!(all[1 << 20..].iter().all(|&byte| byte == 0));
}

/// After a crash at any moment of a shrinking, it has one of both sizes; and what is extended again
/// is zeros.
#[test]
fn a_crash_while_it_gets_smaller_brings_nothing_back() {
    let mut sizes = [0, 0];
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let sim = Arc::new(SimDevice::new(16 << 20, seed));
        let disk = formatted(&(Arc::clone(&sim) as Arc<dyn Device>));
        make_device(&*disk, 2 * MIB);
        let device = open_device(Arc::clone(&disk) as _, View::HEAD);
        device.write(0, &[5; 2 << 20], true).unwrap();
        drop(device);
        sim.cut_after_calls(rng.below(4));
        let _ = resize(&*disk, View::HEAD, MIB);
        let _ = disk.flush(dendro_disk::CommitSeq::LATEST);
        let style = CrashStyle::draw(&mut rng);
        let image = Arc::new(sim.crash_image(&mut rng, style));
        let disk = open(&(image as Arc<dyn Device>));
        let size = size_bytes(&*disk, View::HEAD).unwrap();
        assert!(size == MIB || size == 2 * MIB, "{size}");
        sizes[usize::from(size == MIB)] += 1;
        if size == MIB {
            resize(&*disk, View::HEAD, 2 * MIB).unwrap();
        }
        let device = open_device(disk, View::HEAD);
        let mut tail = vec![1; 1 << 20];
        device.read(MIB, &mut tail).unwrap();
        let expected = if size == MIB { 0 } else { 5 };
        assert!(tail.iter().all(|&byte| byte == expected), "seed {seed}");
    }
    assert!(sizes.iter().all(|&count| count > 0), "{sizes:?}");
}

#[test]
fn opening_finishes_what_a_crash_has_left_of_a_shrinking() {
    let disk = volume(32 << 20);
    make_device(&*disk, 2 * MIB);
    open_device(Arc::clone(&disk) as _, View::HEAD).write(0, &[5; 2 << 20], false).unwrap();
    begin_shrinking(&*disk);
    drop(BlockDevice::open(Arc::clone(&disk) as _, View::HEAD, true, String::new()).unwrap());
    assert_eq!(disk.count_pages(View::HEAD, CONTENT, 0..MAX_PAGE_COUNT).unwrap(), 512);
    drop(open_device(Arc::clone(&disk) as _, View::HEAD));
    assert_eq!(disk.count_pages(View::HEAD, CONTENT, 0..MAX_PAGE_COUNT).unwrap(), 256);
}

#[test]
fn what_a_crash_has_left_does_not_come_back_with_another_size() {
    let disk = volume(32 << 20);
    make_device(&*disk, 2 * MIB);
    open_device(Arc::clone(&disk) as _, View::HEAD).write(0, &[5; 2 << 20], false).unwrap();
    begin_shrinking(&*disk);
    resize(&*disk, View::HEAD, 2 * MIB).unwrap();
    assert_eq!(disk.count_pages(View::HEAD, CONTENT, 0..MAX_PAGE_COUNT).unwrap(), 256);
}

#[test]
fn snapshots_keep_their_size_and_others_are_no_devices() {
    let disk = volume(32 << 20);
    make_device(&*disk, MIB);
    let before = disk.snapshot(0, Some("before")).unwrap().view();
    resize(&*disk, View::HEAD, 2 * MIB).unwrap();
    let clone = disk.branch_off(before, "clone").unwrap().head();
    let all = list(&(Arc::clone(&disk) as Arc<dyn Versions>)).unwrap();
    let all: Vec<_> = all.iter().map(|of| (of.view, &*of.name, of.size_bytes)).collect();
    let expected = [
        (View::HEAD, "main", 2 * MIB),
        (before, "main@before", MIB),
        (clone, "clone", MIB),
        (before, "clone@before", MIB),
    ];
    assert_eq!(all, expected);
    let device = BlockDevice::open(Arc::clone(&disk) as _, before, false, String::new()).unwrap();
    assert!(device.is_read_only());

    let mut unit = Aru::new(clone);
    unit.put_record(CONTENT, 0, b"something else".to_vec());
    disk.commit(unit).unwrap();
    assert_eq!(size_bytes(&*disk, clone), Err(Error::NoDevice(clone)));
    assert!(BlockDevice::open(disk, clone, false, String::new()).is_err());
}
