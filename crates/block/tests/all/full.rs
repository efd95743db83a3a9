use std::sync::Arc;

use dendro_base::Rng;
use dendro_block::Devices;
use dendro_disk::{ListCompression, LogicalDisk, Versions, View};
use dendro_nbd::{Errno, Export, Exports};

use crate::{make_device, open_device, volume};

/// A device may be larger than the volume has room for. What does not fit is refused, what is
/// there stays, and trimming makes room again.
#[test]
fn a_full_volume_refuses_writes_and_takes_trims() {
    let disk = volume(16 << 20);
    make_device(&*disk, 1 << 30);
    let device = open_device(Arc::clone(&disk) as _, View::HEAD);
    let mut data = vec![0; 256 << 10];
    Rng::new(1).fill(&mut data);
    let mut written = 0;
    let refused = loop {
        match device.write(written, &data, false) {
            Ok(()) => written += data.len() as u64,
            Err(why) => break why,
        }
    };
    assert_eq!(refused.errno, Errno::NoSpace, "{refused}");
    assert!(written > 8 << 20);
    let mut read = vec![0; data.len()];
    for at in (0..written).step_by(data.len()) {
        device.read(at, &mut read).unwrap();
        assert!(read == data);
    }
    device.trim(0, written / 2, false).unwrap();
    device.zero(written / 2 + 1, written / 2 - 1, true, false).unwrap();
    while disk.background_step().unwrap() {}
    for at in (0..written / 2).step_by(data.len()) {
        device.write(at, &data, false).unwrap();
    }
}

/// Parts of pages of a hole take no space when they are zeroed. Pages of zeros would let writes
/// in beside the quota later.
#[test]
fn zeroes_of_parts_of_pages_do_not_get_around_a_quota() {
    const LIMIT_BYTES: u64 = 1 << 20;
    let disk = volume(64 << 20);
    let devices = Devices::new(Arc::clone(&disk) as Arc<dyn Versions>, false);
    devices.create("disk", 32 << 20, ListCompression::default()).unwrap();
    let head = disk.versions().branch_named("disk").unwrap().head();
    disk.set_quota(head.branch, Some(LIMIT_BYTES)).unwrap();
    let device = devices.open("disk").unwrap();
    let used_bytes = || disk.quota(head).unwrap().used_bytes;
    let used_before = used_bytes();
    for page in 0..8192 {
        device.zero(page * 4096 + 512, 512, true, false).unwrap();
    }
    device.zero(1, (32 << 20) - 2, true, false).unwrap();
    assert_eq!(used_bytes(), used_before);
    let mut data = [0; 4096];
    Rng::new(1).fill(&mut data);
    let mut written = 0;
    for page in 0..8192 {
        device.zero(page * 4096 + 512, 512, true, false).unwrap();
        match device.write(page * 4096, &data, false) {
            Ok(()) => written += 1,
            Err(why) => assert_eq!(why.errno, Errno::NoSpace, "{why}"),
        }
    }
    assert!((200..256).contains(&written), "{written} pages");
    assert!(used_bytes() <= LIMIT_BYTES);
    // Parts of pages that have data can be zeroed, and pages can be freed.
    device.zero(512, 512, true, false).unwrap();
    device.trim(0, 8192, false).unwrap();
    device.write(32768 * 4, &data, false).unwrap();
}
