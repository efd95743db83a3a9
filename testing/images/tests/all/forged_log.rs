//! A log that is whole and does not fit the state that its checkpoint describes.

use std::sync::Arc;

use dendro_base::ManualClock;
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, View};
use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_images::forge::Forge;
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use crate::common::new_disk;

fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> Result<LogDisk, Error> {
    LogDisk::open(Arc::clone(device) as _, options, Arc::new(ManualClock::default()))
}

fn put(disk: &LogDisk, index: u64) {
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(Lid::FIRST, index, &b"record"[..]);
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("it works");
}

/// The indices of the list's records.
fn indices(disk: &LogDisk) -> Vec<u64> {
    let records = disk.records(View::HEAD, Lid::FIRST, 0, 10).expect("they can be read");
    records.into_iter().map(|(index, _)| index).collect()
}

/// A volume with three units behind its checkpoint, of which the second makes a list of the disk's
/// own.
fn image() -> Vec<u8> {
    let (disk, device) = new_disk(16 << 20, 256 << 10, OpenOptions::default());
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(Lid::FIRST, ListHints::default());
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("it works");
    put(&disk, 1);
    let made = Lid(0x0123_4567);
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(made, ListHints::default());
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("it works");
    put(&disk, 2);
    let forge = Forge::new(&device.to_bytes()).expect("it is sound");
    let records: Vec<_> = forge.records().collect();
    assert_eq!(records.len(), 3);
    forge.forge(|image| {
        let records = &mut image[records[1].clone()];
        let number = made.0.to_le_bytes();
        let at = records.windows(8).position(|bytes| bytes == number).expect("it is there");
        records[at..at + 8].copy_from_slice(&FIRST_SYSTEM_LIST.to_le_bytes());
    })
}

#[test]
fn what_does_not_fit_is_a_loss_that_whoever_mounts_the_volume_decides_about() {
    let image = image();
    let device = Arc::new(MemoryDevice::from_bytes(&image));
    let refused = open(&device, OpenOptions::default());
    assert!(
        matches!(&refused, Err(Error::Lost(why)) if why.contains("a list of the disk's own")),
        "{refused:?}"
    );
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    assert_eq!(indices(&open(&device, read_only).expect("it can be read")), [1]);
    assert!(device.to_bytes() == image, "nothing was written");
    let accepted = OpenOptions { on_loss: OnLoss::Truncate, ..OpenOptions::default() };
    let disk = open(&device, accepted).expect("the loss is accepted");
    put(&disk, 3);
    drop(disk);
    let disk = open(&device, OpenOptions::default()).expect("it is whole again");
    assert_eq!(indices(&disk), [1, 3]);
}
