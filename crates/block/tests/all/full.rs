use dendro_base::Rng;
use dendro_disk::View;
use dendro_nbd::{Errno, Export};

use crate::{make_device, open_device, volume};

/// A device may be larger than the volume has room for. What does not fit is refused, what is
/// there stays, and trimming makes room again.
#[test]
fn a_full_volume_refuses_writes_and_takes_trims() {
    let disk = volume(16 << 20);
    make_device(&*disk, 1 << 30);
    let device = open_device(std::sync::Arc::clone(&disk) as _, View::HEAD);
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
