//! A unit is applied whole or leaves no trace: in what is read, in the room that the log takes, and
//! after the next mount.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const MIB: u64 = 1 << 20;
const NO_LIST: Lid = Lid(9999);

fn open(device: &Arc<SimDevice>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device = Arc::clone(device) as Arc<dyn Device>;
    LogDisk::open(device, OpenOptions::default(), clock).expect("the device works")
}

/// A volume with small segments, on which a list has pages 0 to 999 and records 0 to 499.
fn with_list() -> (Arc<SimDevice>, LogDisk, Lid) {
    let device = Arc::new(SimDevice::new(64 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = open(&device);
    let list = disk.allocate_list().expect("there is room");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    for index in 0..500 {
        aru.put_record(list, index, vec![1; 200]);
    }
    disk.commit(aru).expect("there is room");
    for first_page in (0..1000).step_by(50) {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, first_page, vec![1; 50 * PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
    }
    (device, disk, list)
}

/// Whether the list holds what [`with_list`] has put in it, and nothing else.
fn is_untouched(disk: &LogDisk, list: Lid) -> bool {
    let mut pages = vec![0; 1000 * PAGE_SIZE];
    disk.read_pages(View::HEAD, list, 0, &mut pages).expect("the device works");
    let records = disk.records(View::HEAD, list, 0, 1000).expect("the device works");
    pages.iter().all(|byte| *byte == 1)
        && disk.next_data(View::HEAD, list, 1000) == Ok(None)
        && records.len() == 500
        && records.iter().all(|(_, value)| **value == [1; 200])
}

/// A unit of `pages` pages and as many records that changes existing ones and adds others, with an
/// error at its end.
fn wrong_unit(list: Lid, pages: u64) -> Aru<'static> {
    let mut aru = Aru::new(View::HEAD);
    for page_index in 0..pages {
        aru.write_pages(
            list,
            page_index * 7 % 1200,
            vec![2; PAGE_SIZE - page_index as usize % 9 * 400],
        );
        aru.put_record(list, page_index * 3, vec![2; 100 + page_index as usize % 100]);
    }
    aru.delete_record(list, 1).punch_pages(list, 400, 100);
    aru.delete_list(NO_LIST);
    aru
}

#[test]
fn a_wrong_unit_leaves_no_trace_however_long_it_is() {
    let (device, disk, list) = with_list();
    for pages in [1, 3, 40, 400, 900] {
        assert_eq!(disk.commit(wrong_unit(list, pages)), Err(Error::NoSuchList(NO_LIST)));
        assert!(is_untouched(&disk, list), "{pages} pages");
    }
    disk.shut_down().expect("the device works");
    drop(disk);
    assert!(is_untouched(&open(&device), list));
}

#[test]
fn wrong_units_take_no_room_in_the_log() {
    let (_, disk, list) = with_list();
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let before = disk.stats().written_bytes;
    for _ in 0..200 {
        assert_eq!(disk.commit(wrong_unit(list, 40)), Err(Error::NoSuchList(NO_LIST)));
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, 7, vec![1; 200]);
        disk.commit(aru).expect("there is room");
    }
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let written_bytes = disk.stats().written_bytes - before;
    assert!(written_bytes <= 256 << 10, "{written_bytes} bytes");
    assert!(is_untouched(&disk, list));
}

#[test]
fn a_long_unit_that_finds_an_unreadable_node_leaves_no_trace() {
    let (device, disk, list) = with_list();
    disk.shut_down().expect("the device works");
    drop(disk);
    let mut failed_count = 0;
    for nth in 1..40 {
        let disk = open(&device);
        let mut aru = Aru::new(View::HEAD);
        for page_index in 0..900 {
            aru.write_pages(list, page_index, vec![2; PAGE_SIZE]);
            aru.put_record(list, page_index, vec![2; 150]);
        }
        device.inject(Fault::fail(Call::Read).nth(nth));
        let answer = disk.commit(aru);
        device.clear_faults();
        if answer.is_ok() {
            break;
        }
        assert!(matches!(answer, Err(Error::Io(_))), "{answer:?}");
        assert_eq!(disk.read_only_reason(), None);
        assert!(is_untouched(&disk, list), "read {nth}");
        failed_count += 1;
        drop(disk);
        assert!(is_untouched(&open(&device), list), "read {nth}, mounted again");
    }
    assert!(failed_count > 3, "{failed_count} units met one");
}
