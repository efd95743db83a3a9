//! Group commit and the writer's queue under a model checker: `make model`.
//!
//! Each test runs many times, each time with another order of the threads' steps. A wait that never
//! ends is reported as a deadlock.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::Device;
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use shuttle::thread;

const DEVICE_BYTES: u64 = 4 << 20;
const SEGMENT_BYTES: u64 = 128 << 10;
/// The number of orders that are tried.
const ORDERS: usize = 300;
const CLIENTS: u64 = 3;

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

fn open(device: Arc<dyn Device>) -> LogDisk {
    LogDisk::open(device, OpenOptions::default(), clock()).expect("it was formatted")
}

/// A new disk with a list for each client.
fn new_disk() -> (Arc<SimDevice>, Arc<LogDisk>, Vec<Lid>) {
    let device = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    let dynamic = Arc::clone(&device) as Arc<dyn Device>;
    format(&dynamic, &options, &clock()).expect("the device is large enough");
    let disk = open(dynamic);
    let mut aru = Aru::new(View::HEAD);
    let lists: Vec<Lid> =
        (0..CLIENTS).map(|_| disk.allocate_list().expect("it is writable")).collect();
    for list in &lists {
        aru.create_list(*list, ListHints::default());
    }
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    (device, Arc::new(disk), lists)
}

fn put(disk: &LogDisk, list: Lid, number: u64) -> Result<CommitSeq, Error> {
    let page = [number as u8; PAGE_SIZE];
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 0, number.to_le_bytes().to_vec());
    aru.write_pages(list, 0, &page[..]);
    disk.commit(aru)
}

fn number_in(disk: &LogDisk, list: Lid) -> Option<u64> {
    let record = disk.record(View::HEAD, list, 0).expect("it can be read")?;
    let mut page = [0; PAGE_SIZE];
    disk.read_pages(View::HEAD, list, 0, &mut page).expect("it can be read");
    let number = u64::from_le_bytes(record[..].try_into().expect("it was put by this test"));
    assert_eq!(page, [number as u8; PAGE_SIZE], "a unit is seen as a whole");
    Some(number)
}

/// Asserts that a power cut now would leave at least `number` in the list.
fn survives(device: &SimDevice, list: Lid, number: u64) {
    let image = device.crash_image(&mut Rng::new(7), CrashStyle::Nothing);
    let disk = open(Arc::new(image));
    let found = number_in(&disk, list);
    assert!(found >= Some(number), "{found:?} is there, and {number} was flushed");
}

/// Runs clients that commit and flush beside the writer thread.
fn commit_and_flush(rounds: u64) {
    let (device, disk, lists) = new_disk();
    let clients: Vec<_> = lists
        .into_iter()
        .map(|list| {
            let (device, disk) = (Arc::clone(&device), Arc::clone(&disk));
            thread::spawn(move || {
                for number in 1..=rounds {
                    let seq = put(&disk, list, number).expect("there is room");
                    disk.flush(seq).expect("the device works");
                    survives(&device, list, number);
                }
            })
        })
        .collect();
    let writer = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || {
            for _ in 0..2 * rounds {
                disk.write_step(Duration::from_millis(1)).expect("the device works");
            }
        })
    };
    clients.into_iter().for_each(|client| client.join().expect("it has not panicked"));
    writer.join().expect("it has not panicked");
}

#[test]
fn a_commit_is_durable_after_its_flush_returns_whichever_thread_flushed_it() {
    shuttle::check_random(|| commit_and_flush(2), ORDERS);
}

#[test]
fn no_flush_waits_forever_when_threads_are_delayed_at_rare_moments() {
    shuttle::check_pct(|| commit_and_flush(1), ORDERS, 3);
}

#[test]
fn a_failed_flush_is_reported_to_every_client_that_it_was_to_serve() {
    let test = || {
        let (device, disk, lists) = new_disk();
        device.inject(Fault::fail(Call::Flush).forever());
        let clients: Vec<_> = lists
            .into_iter()
            .map(|list| {
                let disk = Arc::clone(&disk);
                thread::spawn(move || {
                    // Another client's flush may have failed before this commit.
                    if let Ok(seq) = put(&disk, list, 1) {
                        let outcome = disk.flush(seq);
                        assert!(matches!(outcome, Err(Error::Failed(_))), "{outcome:?}");
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("it has not panicked"));
        assert!(disk.read_only_reason().is_some());
    };
    shuttle::check_random(test, ORDERS);
}
