//! Devices that are gone while something is copied from them.

use super::spread::{SEGMENT, part, spread};
use super::*;

fn fail_all(device: &Sim) {
    for call in [Call::Read, Call::Write, Call::Flush] {
        device.inject(Fault::fail(call).forever());
    }
}

/// Copies as long as that is possible.
fn copy_all(set: &DeviceSet<Sim>) {
    for _ in 0..1000 {
        if !matches!(set.bring_up_step(), Ok(Some(_))) {
            break;
        }
    }
}

#[test]
fn what_a_device_holds_that_is_gone_is_not_taken_for_copied() {
    let (devices, set) = spread(&[3, 3]);
    set.write_at(3 * SEGMENT, &block(4)).unwrap();
    set.flush().unwrap();
    let third = part(4, 3);
    set.add(Arc::clone(&third), path(2), uuid(2), Some(uuid(1))).unwrap();
    fail_all(&devices[1]);
    copy_all(&set);
    devices[1].clear_faults();
    drop(set);
    let all = [&devices[..], &[third]].concat();
    assert_eq!(byte(&opened(&all, false).unwrap(), 3 * SEGMENT), 4);
}

#[test]
fn no_member_is_in_sync_with_others_that_were_gone() {
    let (devices, set) = two();
    set.write_at(5 * REGION, &block(4)).unwrap();
    set.flush().unwrap();
    let third = device(3);
    set.add(Arc::clone(&third), path(2), uuid(2), None).unwrap();
    devices.iter().for_each(fail_all);
    copy_all(&set);
    devices.iter().for_each(|device| device.clear_faults());
    drop(set);
    let all = [&devices[..], &[third]].concat();
    assert_eq!(byte(&opened(&all, true).unwrap(), 5 * REGION), 4);
}

#[test]
fn a_block_that_cannot_be_read_is_passed_over() {
    let (devices, set) = spread(&[3, 3]);
    set.write_at(3 * SEGMENT + 4096, &block(4)).unwrap();
    set.flush().unwrap();
    set.add(part(4, 3), path(2), uuid(2), Some(uuid(1))).unwrap();
    let bad = 2 * SEGMENT..2 * SEGMENT + 4096;
    devices[1].inject(Fault::fail(Call::Read).forever().within(bad));
    copy_all(&set);
    assert_eq!((byte(&set, 3 * SEGMENT + 4096), set.members().len()), (4, 2));
}
