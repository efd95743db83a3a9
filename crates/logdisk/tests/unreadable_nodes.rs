//! Where the map cannot be read, a unit fails before it has changed anything.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Versions, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const MIB: u64 = 1 << 20;
/// Records of 200 bytes in the list of which a deleted version has left something: several leaves.
const RECORDS: u64 = 500;

fn open(device: &Arc<SimDevice>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device = Arc::clone(device) as Arc<dyn Device>;
    LogDisk::open(device, OpenOptions::default(), clock).expect("the device works")
}

/// A volume on which a list was deleted, and the snapshot that had it, and nobody has swept since.
fn with_remains() -> (Arc<SimDevice>, Lid, Lid) {
    let device = Arc::new(SimDevice::new(32 * MIB, 1));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 1 << 19, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("the device works");
    let disk = open(&device);
    let [kept, gone] = [(); 2].map(|()| disk.allocate_list().expect("there is room"));
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(kept, ListHints::default()).create_list(gone, ListHints::default());
    for index in 0..RECORDS {
        aru.put_record(gone, index, vec![1; 200]);
    }
    disk.commit(aru).expect("there is room");
    let snapshot = disk.snapshot(0, None).expect("there is room").view();
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(gone);
    disk.commit(aru).expect("there is room");
    disk.delete(snapshot).expect("it is not held");
    disk.checkpoint().expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    (device, kept, gone)
}

#[test]
fn a_list_is_made_anew_only_if_all_that_is_left_of_it_can_be_read() {
    let (device, kept, gone) = with_remains();
    let mut failed_count = 0;
    for nth in 1.. {
        let disk = open(&device);
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(kept, 7, vec![7; 10]).create_list(gone, ListHints::default());
        device.inject(Fault::fail(Call::Read).nth(nth));
        let answer = disk.commit(aru);
        device.clear_faults();
        match answer {
            Ok(_) => {
                assert_eq!(disk.record(View::HEAD, gone, 0), Ok(None));
                break;
            }
            Err(Error::Io(_)) => {
                failed_count += 1;
                assert_eq!(disk.read_only_reason(), None, "read {nth}");
                assert_eq!(disk.record(View::HEAD, kept, 7), Ok(None), "read {nth}");
            }
            Err(error) => panic!("read {nth}: {error}"),
        }
    }
    assert!(failed_count > 5, "{failed_count} reads");
}
