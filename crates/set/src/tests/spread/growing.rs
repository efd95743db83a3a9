//! Members that take in more of their devices.

use dendro_format::superblock::INCOMPATIBLE_SET;

use super::*;
use crate::member::newest_superblock;

/// Has a superblock with this number state where the members end.
fn state_ends(set: &DeviceSet<Sim>, seq: u64) -> dendro_device::Result<()> {
    let member_ends = set.member_ends();
    let stated = Superblock { seq, incompatible: INCOMPATIBLE_SET, member_ends, ..superblock() };
    set.write_at(stated.layout.superblock_offset(seq), stated.encode().as_slot())?;
    set.flush()
}

/// Makes a device longer while no set is on it.
fn lengthen_by_hand(device: &Sim, len_bytes: u64) {
    device.extend(device.len_bytes() + len_bytes, &[], false).unwrap();
}

impl Run {
    pub(super) fn state_ends(&mut self) -> Result<(), String> {
        // In other slots than those that the model knows.
        let seq = 64 * (self.stated / 24) + 4 + self.stated % 24;
        self.stated += 1;
        state_ends(&self.set, seq).map_err(|error| error.to_string())
    }

    pub(super) fn lengthen(&mut self) -> Result<(), String> {
        if !self.set.is_spread() {
            return Ok(());
        }
        let members = self.set.members();
        let one = &members[self.rng.below(members.len() as u64) as usize];
        let more = between(&mut self.rng, 0, 5) * SEGMENT + between(&mut self.rng, 0, 3) * 4096;
        self.set.announce_end(&one.uuid, one.end_bytes + more);
        self.state_ends()?;
        let most = self.set.most_len_bytes().unwrap();
        match self.set.lengthen_member(&one.uuid, one.end_bytes + more, false) {
            Err(Error::Device { source, .. }) => return Err(source.to_string()),
            Err(error) => panic!("{error}"),
            Ok(()) => {}
        }
        assert!(more < 4 * SEGMENT || one.leaves || self.set.most_len_bytes().unwrap() > most);
        self.state_ends()
    }

    /// Makes some devices longer that superblocks know the ends of.
    pub(super) fn lengthen_by_hand(&mut self) {
        let newest = self.devices.iter().filter_map(|it| newest_superblock(&**it));
        let newest: Vec<Superblock> = newest.filter(|newest| newest.uuid == SET).collect();
        for device in &self.devices {
            let Some((.., end)) = read_roster(&**device) else { continue };
            // On all of them, as another one may be made like any.
            let is_stated = newest.iter().all(|newest| newest.member_ends.contains(&end));
            if is_stated && self.rng.chance(20) {
                lengthen_by_hand(device, between(&mut self.rng, 1, 100) * 4096);
            }
        }
    }
}

#[test]
fn a_member_takes_in_more_of_its_device() {
    let (devices, set) = spread(&[3, 3]);
    set.write_at(set.len_bytes() - 4096, &block(5)).unwrap();
    state_ends(&set, 1).unwrap();
    let (end, most) = (devices[1].len_bytes(), set.most_len_bytes().unwrap());
    assert_eq!(set.end_with(&uuid(1), 4 * SEGMENT), Some(end + 4 * SEGMENT));
    assert_eq!(set.gained_bytes(&uuid(1), end + 4 * SEGMENT), 4 * SEGMENT);
    // The new end must not lie on the old one.
    assert_eq!(set.end_with(&uuid(1), SEGMENT), Some(end + 2 * SEGMENT));
    assert_eq!(set.gained_bytes(&uuid(1), end + SEGMENT), 0);
    set.lengthen_member(&uuid(1), end + SEGMENT, false).unwrap();
    assert_eq!(set.member_ends(), [end, end]);
    set.lengthen_member(&uuid(1), end + 4 * SEGMENT, false).unwrap();
    state_ends(&set, 3).unwrap();
    assert_eq!(set.member_ends(), [end, end + 4 * SEGMENT]);
    assert_eq!(set.most_len_bytes(), Some(most + 4 * SEGMENT));
    // Both copies of the tail are read, and the volume is as long as before.
    devices[0].inject(Fault::fail(Call::Read).forever());
    assert_eq!(byte(&set, most - 1), 5);
    devices[0].clear_faults();
    set.extend(most + 4 * SEGMENT, &[6; BLOCK_SIZE], false).unwrap();
    set.write_at(most - TAIL_LEN_BYTES + 3 * SEGMENT, &block(8)).unwrap();
    set.flush().unwrap();
    drop(set);
    let again = opened(&devices, false).unwrap();
    assert_eq!(byte(&again, most - TAIL_LEN_BYTES + 3 * SEGMENT), 8);
    assert_eq!((byte(&again, most + 4 * SEGMENT - 1), again.member_ends()[0]), (6, end));
    assert!(matches!(again.lengthen_member(&uuid(9), end, false), Err(Error::NoSet)));
    let mirrored = two().1.lengthen_member(&uuid(0), 9 << 20, false);
    assert!(matches!(mirrored, Err(Error::NotSpread { .. })));
}

#[test]
fn members_that_became_longer_while_nobody_looked_are_found() {
    let (devices, set) = spread(&[3, 5]);
    set.write_at(3 * SEGMENT, &block(7)).unwrap();
    state_ends(&set, 1).unwrap();
    let most = set.most_len_bytes();
    let ends = set.member_ends();
    set.close().unwrap();
    drop(set);
    devices.iter().for_each(|device| lengthen_by_hand(device, 5 * SEGMENT + 4096));
    for number in 0..3 {
        let set = opened(&devices, false).unwrap();
        assert_eq!((byte(&set, 3 * SEGMENT), set.most_len_bytes()), (7, most), "{number}");
        assert_eq!(set.member_ends(), ends);
        set.write_at(2 * SEGMENT, &block(number)).unwrap();
        set.flush().unwrap();
    }
    let set = opened(&devices, false).unwrap();
    for number in [0, 1] {
        set.lengthen_member(&uuid(number), 0, false).unwrap();
    }
    assert_eq!(set.most_len_bytes(), most.map(|most| most + 10 * SEGMENT));
    // It is one of the set in the same way when it has left and come back.
    let (devices, set) = two();
    state_ends(&set, 1).unwrap();
    drop(set);
    lengthen_by_hand(&devices[0], 4096);
    assert_eq!(opened(&devices, false).unwrap().members().len(), 2);
    drop(devices);
}

#[test]
fn what_lies_before_the_rosters_is_not_taken_for_them() {
    let (devices, set) = spread(&[3, 3]);
    let end = devices[0].len_bytes();
    state_ends(&set, 1).unwrap();
    set.lengthen_member(&uuid(0), end + 4 * SEGMENT, false).unwrap();
    state_ends(&set, 3).unwrap();
    // The other member ends where this one did, and so where its old rosters are.
    assert_eq!(set.member_ends(), [end + 4 * SEGMENT, end]);
    drop(set);
    lengthen_by_hand(&devices[0], 9 * SEGMENT);
    assert_eq!(opened(&devices, false).unwrap().member_ends(), [end + 4 * SEGMENT, end]);
    // A slot that cannot be read may be the newest.
    let slot = end + 4 * SEGMENT - ROSTER_AREA_LEN_BYTES;
    devices[0].inject(Fault::fail(Call::Read).forever().within(slot..slot + 4096));
    assert!(read_roster(&*devices[0]).is_none());
}

#[test]
fn a_roster_of_another_end_is_not_taken_for_one_of_this_end() {
    // Then the first slot at the new end of the device is the second one of the old end.
    for generations in 0..2 {
        let (devices, set) = spread(&[3, 3]);
        let ends = set.member_ends();
        state_ends(&set, 1).unwrap();
        (0..generations).for_each(|_| set.set_fast(&uuid(0), true).unwrap());
        drop(set);
        devices.iter().for_each(|it| lengthen_by_hand(it, ROSTER_SLOT_LEN_BYTES as u64));
        assert_eq!(opened(&devices, false).unwrap().member_ends(), ends);
    }
}

#[test]
fn a_device_that_cannot_become_longer_leaves_the_member_as_it_was() {
    let (devices, set) = spread(&[3, 3]);
    state_ends(&set, 1).unwrap();
    let ends = set.member_ends();
    devices[1].inject(Fault::fail(Call::Write));
    let grown = set.lengthen_member(&uuid(1), ends[1] + 4 * SEGMENT, false);
    assert!(matches!(grown, Err(Error::Device { .. })));
    assert_eq!(set.member_ends(), ends);
    set.write_at(3 * SEGMENT, &block(7)).unwrap();
    set.flush().unwrap();
    set.lengthen_member(&uuid(1), ends[1] + 4 * SEGMENT, false).unwrap();
    assert_eq!(byte(&opened(&devices, false).unwrap(), 3 * SEGMENT), 7);
}

#[test]
fn a_roster_that_is_not_written_to_the_new_end_leaves_that_at_the_old_one() {
    let (devices, set) = spread(&[3, 3]);
    state_ends(&set, 1).unwrap();
    let ends = set.member_ends();
    devices[1].inject(Fault::fail(Call::Write).nth(2));
    assert!(set.lengthen_member(&uuid(1), ends[1] + 4 * SEGMENT, false).is_err());
    assert!(set.write_at(3 * SEGMENT, &block(7)).is_err() && set.flush().is_err());
    drop(set);
    let again = opened(&devices, false).unwrap();
    assert_eq!(again.member_ends(), ends);
    again.lengthen_member(&uuid(1), 0, false).unwrap();
    assert_eq!(again.member_ends(), [ends[0], ends[1] + 4 * SEGMENT]);
}
