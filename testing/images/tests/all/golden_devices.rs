//! Block devices of every version so far are read by this one.

use std::sync::Arc;

use dendro_base::{ManualClock, Rng};
use dendro_block::{CONTENT, list, resize};
use dendro_check::{Options, verify};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, Error, LogicalDisk, MAX_PAGE_COUNT, PAGE_SIZE, Versions, View};
use dendro_images::golden::{Golden, all};
use dendro_logdisk::{LogDisk, OpenOptions};

fn every_image_with_devices(test: impl Fn(&Golden)) {
    let images = all().expect("the images can be read");
    let images: Vec<_> = images.iter().filter(|golden| golden.name.contains("-block")).collect();
    assert!(!images.is_empty());
    images.into_iter().for_each(test);
}

fn open(image: &[u8], read_only: bool) -> (Arc<MemoryDevice>, Arc<LogDisk>) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    let disk = LogDisk::open(Arc::clone(&device) as _, options, Arc::new(ManualClock::default()));
    (device, Arc::new(disk.expect("a golden image opens")))
}

/// The devices of a disk: their names, their pages, and their versions.
fn devices(disk: &Arc<LogDisk>) -> Vec<(String, u64, View)> {
    let listed = list(&(Arc::clone(disk) as Arc<dyn Versions>)).expect("they can be read");
    let pages = |size_bytes: u64| size_bytes / PAGE_SIZE as u64;
    listed.into_iter().map(|of| (of.name, pages(of.size_bytes), of.view)).collect()
}

fn device(disk: &Arc<LogDisk>, name: &str) -> View {
    devices(disk).into_iter().find(|of| of.0 == name).expect("it is there").2
}

fn page_count(disk: &LogDisk, view: View, first_page: u64) -> u64 {
    disk.count_pages(view, CONTENT, first_page..MAX_PAGE_COUNT).expect("the disk works")
}

#[test]
fn every_image_has_its_devices_in_their_sizes() {
    every_image_with_devices(|golden| {
        for read_only in [true, false] {
            let (_, disk) = open(&golden.image, read_only);
            let found = devices(&disk);
            let found: Vec<_> = found.iter().map(|of| (&*of.0, of.1)).collect();
            let expected = [("disk", 128), ("disk@short", 64), ("clone", 96), ("clone@short", 64)];
            assert_eq!(found, expected, "{}", golden.name);
        }
    });
}

#[test]
fn what_was_cut_off_of_a_device_in_an_image_does_not_come_back() {
    every_image_with_devices(|golden| {
        let (device_of, disk) = open(&golden.image, false);
        let clone = device(&disk, "clone");
        assert_eq!(page_count(&disk, clone, 96), 3, "{}", golden.name);
        resize(&*disk, clone, 128 * PAGE_SIZE as u64).unwrap();
        assert_eq!(page_count(&disk, clone, 96), 0, "{}", golden.name);
        // The device that it was made from keeps its last page.
        assert_eq!(page_count(&disk, device(&disk, "disk"), 96), 1, "{}", golden.name);
        disk.shut_down().unwrap();
        drop(disk);
        assert!(verify(&*device_of, &Options { data: true }).findings.is_empty());
        let (_, disk) = open(&device_of.to_bytes(), true);
        assert_eq!(devices(&disk)[2], ("clone".to_owned(), 128, clone), "{}", golden.name);
    });
}

#[test]
fn the_devices_of_an_image_stay_within_their_quota() {
    every_image_with_devices(|golden| {
        let (_, disk) = open(&golden.image, false);
        let head = device(&disk, "disk");
        let quota = disk.quota(head).expect("it has one");
        assert_eq!(quota.limit_bytes, 256 << 10, "{}", golden.name);
        let write = |page| {
            let mut data = vec![0; PAGE_SIZE];
            Rng::new(page).fill(&mut data);
            let mut unit = Aru::new(head);
            unit.write_pages(CONTENT, page, data);
            disk.commit(unit)
        };
        let written = (64..127).take_while(|page| match write(*page) {
            Ok(_) => true,
            Err(Error::OverQuota { .. }) => false,
            Err(error) => panic!("{}: {error}", golden.name),
        });
        let written = written.count();
        assert!((1..63).contains(&written), "{}: {written} pages", golden.name);
        assert!(disk.quota(head).unwrap().used_bytes <= quota.limit_bytes, "{}", golden.name);
    });
}
