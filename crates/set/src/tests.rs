//! Sets over simulated devices.

mod flushing;
mod gone;
mod growing;
mod spread;
mod waiting;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use dendro_base::sync::{Arc, Mutex};
use dendro_base::{Clock, ManualClock, Rng, Timestamp, Uuid};
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_device::{BLOCK_SIZE, Device};
use dendro_format::roster::{MemberState, ROSTER_AREA_LEN_BYTES, ROSTER_SLOT_LEN_BYTES};
use dendro_format::{Addr, Layout, Roster, Superblock};

use crate::member::read_roster;
use crate::{DeviceSet, Error, Found};

const LEN: u64 = 4 << 20;
const SET: Uuid = Uuid([7; 16]);
const REGION: u64 = 64 << 10;

type Sim = Arc<SimDevice>;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp(1)))
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_SIZE]
}

fn uuid(number: usize) -> Uuid {
    Uuid([number as u8 + 1; 16])
}

fn path(number: usize) -> PathBuf {
    PathBuf::from(format!("/dev/{number}"))
}

fn device(seed: u64) -> Sim {
    Arc::new(SimDevice::new(LEN + ROSTER_AREA_LEN_BYTES, seed))
}

/// A set whose volume is only its first superblock.
fn made(devices: &[Sim]) -> DeviceSet<Sim> {
    let named = devices.iter().enumerate().map(|(at, it)| (uuid(at), path(at), Arc::clone(it)));
    let set = DeviceSet::create(SET, named.collect(), clock()).unwrap();
    set.write_at(0, superblock().encode().as_slot()).unwrap();
    set.flush().unwrap();
    set
}

fn superblock() -> Superblock {
    Superblock {
        uuid: SET,
        seq: 0,
        compatible: 0,
        read_only: 0,
        incompatible: 0,
        layout: Layout::new(17, 16).unwrap(),
        clean: true,
        compression: 0,
        cold_compression: 0,
        checkpoint_addr: Addr(1 << 15),
        checkpoint_len_bytes: 4096,
        checkpoint_crc32c: 0,
        created: Timestamp::default(),
        written: Timestamp::default(),
        hash_key: [0; 16],
        label: String::new(),
        retired: Vec::new(),
        checkpoint_mirror: None,
        max_len_bytes: 0,
        member_ends: Vec::new(),
    }
}

fn two() -> (Vec<Sim>, DeviceSet<Sim>) {
    let devices = vec![device(1), device(2)];
    let set = made(&devices);
    (devices, set)
}

fn found(devices: &[Sim]) -> Vec<Found<Sim>> {
    let look = |(at, it): (usize, &Sim)| Found::look(Arc::clone(it), path(at)).ok();
    devices.iter().enumerate().filter_map(look).collect()
}

fn opened(devices: &[Sim], is_degraded: bool) -> Result<DeviceSet<Sim>, Error> {
    DeviceSet::assemble(found(devices), is_degraded, clock())
}

fn byte(device: &dyn Device, offset: u64) -> u8 {
    let mut byte = [0];
    device.read_at(offset, &mut byte).unwrap();
    byte[0]
}

fn states(set: &DeviceSet<Sim>) -> Vec<MemberState> {
    set.members().iter().map(|member| member.state).collect()
}

/// Brings all members up; returns the bytes that were copied.
fn bring_up(set: &DeviceSet<Sim>) -> u64 {
    let mut copied_bytes = 0;
    while let Some(step) = set.bring_up_step().unwrap() {
        copied_bytes += step.copied_bytes;
    }
    copied_bytes
}

fn copies(devices: &[Sim]) -> Vec<Sim> {
    let mut rng = Rng::new(9);
    let image = |it: &Sim| Arc::new(it.crash_image(&mut rng, CrashStyle::Everything));
    devices.iter().map(image).collect()
}

#[test]
fn what_is_written_is_on_every_member_and_each_alone_can_be_opened() {
    let (devices, set) = two();
    set.write_at(REGION, &block(5)).unwrap();
    set.flush().unwrap();
    assert_eq!((set.len_bytes(), set.copy_count(), set.part_at(REGION)), (LEN, 2, None));
    for one in &devices {
        assert_eq!(byte(&**one, REGION), 5);
        let alone = copies(std::slice::from_ref(one));
        assert!(matches!(opened(&alone, false), Err(Error::Incomplete { .. })));
        assert_eq!(byte(&opened(&alone, true).unwrap(), REGION), 5);
    }
}

#[test]
fn a_member_that_fails_is_called_missing_before_the_write_is_acknowledged() {
    for call in [Call::Write, Call::Flush] {
        let (devices, set) = two();
        set.write_at(REGION, &block(5)).unwrap();
        devices[1].inject(Fault::fail(call));
        set.write_at(REGION, &block(6)).unwrap();
        set.flush().unwrap();
        assert_eq!(states(&set), [MemberState::InSync, MemberState::Missing]);
        assert_eq!(set.take_notes().len(), 1);
        // Whatever is lost of what was not flushed.
        let mut rng = Rng::new(3);
        let after: Vec<Sim> = devices
            .iter()
            .map(|it| Arc::new(it.crash_image(&mut rng, CrashStyle::Nothing)))
            .collect();
        assert_eq!(read_roster(&*after[0]).unwrap().0.members[1].state, MemberState::Missing);
        let set = opened(&after, false).unwrap();
        assert_eq!(byte(&set, REGION), 6);
        // It gets the region that it may lack, and no others.
        set.flush().unwrap();
        assert_eq!(bring_up(&set), REGION);
        assert_eq!(states(&set), [MemberState::InSync; 2]);
        assert_eq!(byte(&*after[1], REGION), 6);
    }
}

#[test]
fn the_last_member_is_never_called_missing() {
    let (devices, set) = two();
    devices.iter().for_each(|it| it.inject(Fault::fail(Call::Write)));
    assert!(set.write_at(REGION, &block(6)).is_err());
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    set.write_at(REGION, &block(6)).unwrap();
}

#[test]
fn a_member_that_was_left_out_gets_what_was_written_meanwhile() {
    let (devices, set) = two();
    set.write_at(8 * REGION, &block(1)).unwrap();
    set.flush().unwrap();
    drop(set);
    let left = opened(&devices[..1], true).unwrap();
    left.write_at(9 * REGION, &block(2)).unwrap();
    left.write_at(20 * REGION, &block(3)).unwrap();
    left.flush().unwrap();
    drop(left);
    // The stale one alone can be told from the volume.
    let set = opened(&devices, false).unwrap();
    assert_eq!(byte(&set, 9 * REGION), 2);
    set.write_at(30 * REGION, &block(4)).unwrap();
    assert!(matches!(states(&set)[1], MemberState::BroughtUp { .. }));
    assert_eq!(byte(&*devices[1], 30 * REGION), 4);
    assert_eq!(set.left_to_copy_bytes(), 2 * REGION);
    assert_eq!(bring_up(&set), 2 * REGION);
    assert_eq!((byte(&*devices[1], 9 * REGION), byte(&*devices[1], 20 * REGION)), (2, 3));
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    // From now on the first can be lost.
    drop(set);
    assert_eq!(byte(&opened(&devices[1..], true).unwrap(), 20 * REGION), 3);
}

#[test]
fn what_is_in_part_brought_up_is_not_taken_for_the_volume_and_goes_on_where_it_was() {
    let (devices, set) = two();
    set.remove(&uuid(1)).unwrap();
    assert!(matches!(opened(&devices[1..], true), Err(Error::NoSet)), "it has no roster");
    let fresh = device(6);
    let devices = [Arc::clone(&devices[0]), fresh];
    set.add(Arc::clone(&devices[1]), path(1), uuid(5), None).unwrap();
    // Nothing has been copied yet.
    drop(set);
    let set = opened(&devices, false).unwrap();
    set.flush().unwrap();
    assert_eq!(states(&set)[1], MemberState::BroughtUp { copied_to_bytes: 0 });
    let half = LEN / 2;
    while set.left_to_copy_bytes() > half {
        set.bring_up_step().unwrap();
    }
    assert!(matches!(opened(&devices[1..], true), Err(Error::OnlyStale { .. })));
    drop(set);
    let set = opened(&devices, false).unwrap();
    set.flush().unwrap();
    assert_eq!(bring_up(&set), LEN, "progress is recorded every 64 MiB");
    assert_eq!(states(&set), [MemberState::InSync; 2]);
}

#[test]
fn members_that_were_written_to_apart_are_refused() {
    let (devices, set) = two();
    drop(set);
    for at in [0, 1] {
        let alone = opened(&devices[at..=at], true).unwrap();
        alone.write_at(REGION, &block(at as u8)).unwrap();
        alone.flush().unwrap();
    }
    let refused = opened(&devices, true).unwrap_err();
    assert!(matches!(refused, Error::Split { .. }), "{refused}");
    let message = refused.to_string();
    assert!(message.contains("/dev/0") && message.contains("/dev/1"), "{message}");
    // Also when one comes back to a set in use.
    let set = opened(&devices[..1], false).unwrap();
    set.flush().unwrap();
    let refused = set.add(Arc::clone(&devices[1]), path(1), uuid(9), None).unwrap_err();
    assert!(matches!(refused, Error::Split { .. }), "{refused}");
}

#[test]
fn members_that_were_written_to_apart_are_refused_also_if_an_opening_was_repeated() {
    let (devices, set) = two();
    drop(set);
    let alone = opened(&devices[..1], true).unwrap();
    // What was read is stale from the beginning, which takes no roster more.
    byte(&alone, REGION);
    break_rosters(&devices[0], Call::Write, 1);
    assert!(alone.write_at(REGION, &block(1)).is_err());
    alone.write_at(REGION, &block(1)).unwrap();
    drop(alone);
    opened(&devices[1..], true).unwrap().write_at(9 * REGION, &block(2)).unwrap();
    let refused = opened(&devices, true).unwrap_err();
    assert!(matches!(refused, Error::Split { .. }), "{refused}");
}

#[test]
fn an_older_copy_of_a_member_is_brought_up_from_the_beginning() {
    let (devices, set) = two();
    drop(set);
    let old = copies(&devices);
    let set = opened(&devices, false).unwrap();
    set.write_at(REGION, &block(5)).unwrap();
    set.flush().unwrap();
    drop(set);
    let devices = [Arc::clone(&devices[0]), Arc::clone(&old[1])];
    let set = opened(&devices, false).unwrap();
    for offset in (0..LEN).step_by(REGION as usize) {
        byte(&set, offset);
    }
    set.flush().unwrap();
    assert!(matches!(states(&set)[1], MemberState::BroughtUp { .. }));
    assert_eq!(bring_up(&set), LEN);
    assert_eq!(byte(&*devices[1], REGION), 5);
}

#[test]
fn blocks_that_are_read_before_the_first_write_become_alike() {
    let (devices, set) = two();
    set.write_at(REGION, &block(5)).unwrap();
    set.flush().unwrap();
    // The power goes before either has all of it.
    set.write_at(REGION, &block(6)).unwrap();
    set.write_at(5 * REGION, &block(7)).unwrap();
    let mut rng = Rng::new(3);
    let after = [
        Arc::new(devices[0].crash_image(&mut rng, CrashStyle::Everything)),
        Arc::new(devices[1].crash_image(&mut rng, CrashStyle::Nothing)),
    ];
    let set = opened(&after, false).unwrap();
    assert_eq!(byte(&set, REGION), 6);
    assert_eq!(byte(&*after[1], REGION), 5);
    set.flush().unwrap();
    assert_eq!(byte(&*after[1], REGION), 6);
    // The other one is asked first if what the first has is of no use.
    let after = [
        Arc::new(devices[0].crash_image(&mut rng, CrashStyle::Everything)),
        Arc::new(devices[1].crash_image(&mut rng, CrashStyle::Nothing)),
    ];
    let set = opened(&after, false).unwrap();
    assert_eq!(byte(&set, REGION), 6);
    assert!(set.prefer(1) && !set.prefer(2));
    assert_eq!(byte(&set, REGION), 5);
    set.flush().unwrap();
    assert_eq!(byte(&*after[0], REGION), 5);
    assert!(!set.prefer(1) && set.prefer(0));
}

#[test]
fn members_that_were_closed_are_alike_and_stay_as_they_are() {
    let (devices, set) = two();
    set.write_at(REGION, &block(5)).unwrap();
    set.close().unwrap();
    assert!(!read_roster(&*devices[0]).unwrap().0.is_clean, "something is not flushed");
    set.flush().unwrap();
    set.close().unwrap();
    assert!(read_roster(&*devices[0]).unwrap().0.is_clean);
    drop(set);
    // What the first one has is read, and is not right any more.
    devices[0].write_at(REGION, &block(9)).unwrap();
    let set = opened(&devices, false).unwrap();
    assert_eq!(byte(&set, REGION), 9);
    set.write_at(0, &block(1)).unwrap();
    assert_eq!(byte(&*devices[1], REGION), 5);
    assert!(set.copies_differ(REGION, 1) && !set.copies_differ(0, 1));
    assert!(!read_roster(&*devices[0]).unwrap().0.is_clean);
    // A write after it was closed opens it again.
    set.flush().unwrap();
    set.close().unwrap();
    set.write_at(0, &block(2)).unwrap();
    assert!(!read_roster(&*devices[1]).unwrap().0.is_clean);
}

#[test]
fn a_member_that_was_absent_after_a_crash_gets_what_was_accepted_then() {
    let (devices, set) = two();
    set.write_at(REGION, &block(6)).unwrap();
    let mut rng = Rng::new(3);
    let after = [
        Arc::new(devices[0].crash_image(&mut rng, CrashStyle::Everything)),
        Arc::new(devices[1].crash_image(&mut rng, CrashStyle::Nothing)),
    ];
    let alone = opened(&after[..1], true).unwrap();
    assert_eq!(byte(&alone, REGION), 6);
    alone.flush().unwrap();
    drop(alone);
    let set = opened(&after, false).unwrap();
    set.flush().unwrap();
    assert_eq!(bring_up(&set), REGION);
    assert_eq!(byte(&*after[1], REGION), 6);
}

#[test]
fn reads_that_fail_on_one_member_are_answered_by_the_other_and_mended() {
    let (devices, set) = two();
    set.write_at(REGION, &block(5)).unwrap();
    // The first MiB is read from the first member.
    devices[0].inject(Fault::fail(Call::Read).times(2));
    let written = devices[0].counts().writes;
    assert_eq!(byte(&set, REGION + 100), 5);
    assert_eq!((devices[0].struck_count(), devices[0].counts().writes), (2, written + 1));
    // Wrong bytes on one.
    for at in [0, 1] {
        devices[at].corrupt(REGION..REGION + 512, 3);
        let mut buf = vec![0; 512];
        let is_right = |bytes: &[u8]| bytes == [5; 512];
        assert!(set.mend(REGION, &mut buf, &is_right) && is_right(&buf));
        assert!(
            devices.iter().all(|it| it.to_bytes()[REGION as usize..][..BLOCK_SIZE] == block(5))
        );
    }
    assert!(!set.mend(REGION, &mut [0; 512], &|_| false));
    assert!(set.members().iter().all(|member| member.failed_reads > 0));
}

#[test]
fn wrong_use_gets_a_clear_answer() {
    let (devices, set) = two();
    let short = Arc::new(SimDevice::new(LEN, 5));
    let refused = set.add(short, "/dev/short".into(), uuid(5), None).unwrap_err();
    assert!(matches!(refused, Error::TooShort { .. }), "{refused}");
    let again = set.add(Arc::clone(&devices[1]), path(1), uuid(5), None).unwrap_err();
    assert!(matches!(again, Error::AlreadyMember { .. }), "{again}");
    set.remove(&uuid(1)).unwrap();
    let last = set.remove(&uuid(0)).unwrap_err();
    assert!(matches!(last, Error::LastCopy { .. }), "{last}");
    assert!(matches!(set.take_offline(&uuid(0)), Err(Error::LastCopy { .. })));
    // One that is brought up is no copy yet.
    set.add(Arc::clone(&devices[1]), path(1), uuid(5), None).unwrap();
    assert!(matches!(set.remove(&uuid(0)), Err(Error::LastCopy { .. })));

    let others = [device(7), device(8)];
    let foreign = made(&others);
    drop(foreign);
    let mut roster = read_roster(&*others[0]).unwrap().0;
    assert_eq!(roster.set, SET);
    roster.set = Uuid([8; 16]);
    crate::member::write_roster(&*others[0], others[0].len_bytes(), &roster, 1).unwrap();
    assert!(Found::look(Arc::clone(&others[0]), path(0)).is_err(), "the volume is another one");
}

#[test]
fn a_single_device_becomes_a_set_and_moves_to_another_device() {
    let old = Arc::new(SimDevice::new(LEN + ROSTER_AREA_LEN_BYTES, 1));
    // The volume of a set, of which only one device is left, without its rosters.
    drop(made(&[Arc::clone(&old)]));
    crate::member::erase_rosters(&*old, old.len_bytes()).unwrap();
    let set = DeviceSet::single(Arc::clone(&old), path(0), clock());
    assert!(matches!(
        set.list(SET, uuid(0), path(0), LEN + BLOCK_SIZE as u64),
        Err(Error::NoRoom { .. })
    ));
    assert!(matches!(set.add(device(3), path(1), uuid(1), None), Err(Error::NoSet)));
    set.list(SET, uuid(0), path(0), LEN).unwrap();
    let new = device(2);
    set.add(Arc::clone(&new), path(1), uuid(1), None).unwrap();
    set.replace(&uuid(0)).unwrap();
    set.write_at(REGION, &block(9)).unwrap();
    bring_up(&set);
    let members = set.members();
    assert_eq!((members.len(), members[0].uuid), (1, uuid(1)));
    set.write_at(2 * REGION, &block(8)).unwrap();
    set.flush().unwrap();
    assert!(found(&[old]).is_empty());
    let set = opened(&[new], false).unwrap();
    assert_eq!((byte(&set, REGION), byte(&set, 2 * REGION)), (9, 8));
}

#[test]
fn a_member_that_is_replaced_leaves_whenever_a_crash_interrupts_it() {
    let (devices, set) = two();
    let new = device(3);
    devices[0].start_recording();
    set.add(Arc::clone(&new), path(2), uuid(2), Some(uuid(0))).unwrap();
    let recording = devices[0].take_recording().unwrap();
    // No crash leaves a roster with the new member in which the old one is to stay.
    let mut rng = Rng::new(1);
    let mut count = 0;
    for event in 0..=recording.len() {
        let image = recording.image_at(event, &mut rng, CrashStyle::Everything);
        let roster = read_roster(&image).unwrap().0;
        count += usize::from(roster.find(&uuid(2)).is_some());
        assert_eq!(roster.find(&uuid(2)).is_some(), roster.find(&uuid(0)).unwrap().leaves);
    }
    assert!(count > 0);
    bring_up(&set);
    assert_eq!(set.members().len(), 2);
    // After a crash between the last copy and the leaving, all are in sync.
    set.replace(&uuid(1)).unwrap();
    drop(set);
    let set = opened(&[Arc::clone(&devices[1]), Arc::clone(&new)], false).unwrap();
    set.write_at(REGION, &block(1)).unwrap();
    bring_up(&set);
    let members = set.members();
    assert_eq!((members.len(), members[0].uuid), (1, uuid(2)));
}

#[test]
fn a_member_stays_when_the_one_that_was_to_replace_it_is_removed() {
    let (_devices, set) = two();
    set.add(device(3), path(2), uuid(2), Some(uuid(0))).unwrap();
    set.take_offline(&uuid(2)).unwrap();
    bring_up(&set);
    assert_eq!(set.members().len(), 3, "nobody has taken its place");
    set.remove(&uuid(2)).unwrap();
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    assert!(set.members().iter().all(|member| !member.leaves));
}

#[test]
fn a_set_has_room_for_rosters_whichever_member_is_missing() {
    let (devices, set) = two();
    for member in [0, 1] {
        set.take_offline(&uuid(member)).unwrap();
        set.check_room(LEN).unwrap();
        set.add(Arc::clone(&devices[member]), path(member), uuid(member), None).unwrap();
        bring_up(&set);
    }
}

#[test]
fn a_region_is_stale_durably_before_it_is_written_to() {
    let (devices, set) = two();
    set.take_offline(&uuid(1)).unwrap();
    set.write_at(9 * REGION, &block(2)).unwrap();
    // Nothing of what was not flushed is left.
    let mut rng = Rng::new(3);
    let after = Arc::new(devices[0].crash_image(&mut rng, CrashStyle::Nothing));
    assert!(read_roster(&*after).unwrap().0.stale.has(9));
}

#[test]
fn a_member_whose_roster_cannot_be_written_gets_again_what_it_had_not_flushed() {
    let devices = vec![device(1), device(2), device(3)];
    let set = made(&devices);
    let add = |at: usize| set.add(Arc::clone(&devices[at]), path(at), uuid(at), None).unwrap();
    set.take_offline(&uuid(2)).unwrap();
    add(2);
    // Nobody is missing, so this region is not called stale.
    set.write_at(5 * REGION, &block(9)).unwrap();
    devices[1].inject(Fault::fail(Call::Write).within(LEN..LEN + ROSTER_AREA_LEN_BYTES));
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync, MemberState::Missing, MemberState::InSync]);
    // What a power cut leaves of it.
    devices[1].write_at(5 * REGION, &block(0)).unwrap();
    set.flush().unwrap();
    add(1);
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync; 3]);
    assert_eq!(byte(&*devices[1], 5 * REGION), 9);
}

#[test]
fn a_member_that_is_lost_while_members_are_made_alike_gets_again_what_was_read() {
    let (devices, set) = two();
    // A power cut leaves one write on the first member alone.
    devices[0].write_at(5 * REGION, &block(9)).unwrap();
    drop(set);
    let devices = copies(&devices);
    let set = opened(&devices, false).unwrap();
    let mut read = block(0);
    set.read_at(5 * REGION, &mut read).unwrap();
    assert_eq!(read, block(9));
    devices[1].inject(Fault::fail(Call::Write).within(5 * REGION..6 * REGION));
    set.write_at(9 * REGION, &block(1)).unwrap();
    assert_eq!(states(&set), [MemberState::InSync, MemberState::Missing]);
    set.flush().unwrap();
    devices[1].clear_faults();
    set.add(Arc::clone(&devices[1]), path(1), uuid(1), None).unwrap();
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    assert_eq!(byte(&*devices[1], 5 * REGION), 9);
}

#[test]
fn an_older_roster_is_not_taken_where_a_newer_one_cannot_be_read() {
    let (devices, set) = two();
    set.take_offline(&uuid(1)).unwrap();
    set.write_at(5 * REGION, &block(9)).unwrap();
    set.flush().unwrap();
    drop(set);
    let look = || Found::look(Arc::clone(&devices[0]), path(0));
    assert!(look().is_ok_and(|found| found.roster().stale.has(5)));
    devices[0].inject(Fault::fail(Call::Read).nth(1));
    assert!(look().is_ok_and(|found| found.roster().stale.has(5)), "it is read once more");
    let (_, slot, _) = read_roster(&*devices[0]).unwrap();
    let start = LEN + (slot * ROSTER_SLOT_LEN_BYTES) as u64;
    let newest = start..start + ROSTER_SLOT_LEN_BYTES as u64;
    devices[0].inject(Fault::fail(Call::Read).within(newest).forever());
    assert!(look().is_err());
}

#[test]
fn a_member_that_is_lost_before_the_first_flush_gets_again_what_was_read() {
    let (devices, set) = two();
    // A daemon that was killed leaves a write in the caches of both devices.
    for device in &devices {
        device.write_at(5 * REGION, &block(9)).unwrap();
    }
    drop(set);
    let set = opened(&devices, false).unwrap();
    set.read_at(5 * REGION, &mut block(0)).unwrap();
    set.write_at(9 * REGION, &block(1)).unwrap();
    devices[1].inject(Fault::fail(Call::Write).within(9 * REGION..10 * REGION));
    set.write_at(9 * REGION, &block(2)).unwrap();
    assert_eq!(states(&set), [MemberState::InSync, MemberState::Missing]);
    // What a power cut leaves of it.
    devices[1].write_at(5 * REGION, &block(0)).unwrap();
    set.flush().unwrap();
    set.add(Arc::clone(&devices[1]), path(1), uuid(1), None).unwrap();
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    assert_eq!(byte(&*devices[1], 5 * REGION), 9);
}

/// Has so many calls fail that write rosters or make them durable.
fn break_rosters(device: &Sim, call: Call, count: u64) {
    let fault = Fault::fail(call).times(count);
    let end = device.len_bytes();
    let rosters = end - ROSTER_AREA_LEN_BYTES..end;
    device.inject(if call == Call::Write { fault.within(rosters) } else { fault });
}

/// The newest roster that a power cut leaves.
fn durable_roster(device: &Sim) -> Roster {
    let image = device.crash_image(&mut Rng::new(3), CrashStyle::Nothing);
    read_roster(&image).unwrap().0
}

#[test]
fn a_region_that_could_not_be_called_stale_is_called_that_before_a_write_that_is_repeated() {
    let (devices, set) = two();
    set.take_offline(&uuid(1)).unwrap();
    break_rosters(&devices[0], Call::Write, 1);
    assert!(set.write_at(9 * REGION, &block(2)).is_err());
    set.write_at(9 * REGION, &block(2)).unwrap();
    assert!(durable_roster(&devices[0]).stale.has(9));
}

#[test]
fn a_member_that_could_not_be_called_missing_is_called_that_before_anything_is_acknowledged() {
    let lost = |set: &DeviceSet<Sim>, devices: &[Sim]| {
        devices[1].inject(Fault::fail(Call::Write));
        break_rosters(&devices[0], Call::Write, 1);
        assert!(set.write_at(5 * REGION, &block(2)).is_err());
    };
    for repeats in [true, false] {
        let (devices, set) = two();
        lost(&set, &devices);
        if repeats {
            set.write_at(5 * REGION, &block(2)).unwrap();
        } else {
            set.flush().unwrap();
        }
        let roster = durable_roster(&devices[0]);
        assert_eq!(roster.members[1].state, MemberState::Missing);
        assert!(roster.stale.has(5));
    }
}

#[test]
fn a_flush_that_failed_for_a_roster_is_not_believed_later() {
    let (devices, set) = two();
    set.take_offline(&uuid(1)).unwrap();
    set.write_at(5 * REGION, &block(1)).unwrap();
    set.flush().unwrap();
    // It is not durable when the flush for another region's mark fails, and never will be.
    set.write_at(5 * REGION, &block(2)).unwrap();
    break_rosters(&devices[0], Call::Flush, 1);
    assert!(set.write_at(9 * REGION, &block(3)).is_err());
    assert!(set.write_at(9 * REGION, &block(3)).is_err());
    assert!(set.flush().is_err());
    assert_eq!(byte(&set, 5 * REGION), 2);
}

#[test]
fn a_member_whose_rosters_cannot_be_written_for_a_while_falls_not_behind_one_brought_up() {
    let (devices, set) = two();
    set.take_offline(&uuid(1)).unwrap();
    set.write_at(9 * REGION, &block(2)).unwrap();
    set.flush().unwrap();
    set.add(Arc::clone(&devices[1]), path(1), uuid(1), None).unwrap();
    break_rosters(&devices[0], Call::Write, 5);
    for _ in 0..5 {
        assert!(set.replace(&uuid(1)).is_err());
    }
    let after = opened(&copies(&devices), false).unwrap();
    assert_eq!(byte(&after, 9 * REGION), 2);
}

#[test]
fn of_two_rosters_with_one_number_that_of_the_member_in_sync_counts() {
    let len_bytes = (66 << 20) + ROSTER_AREA_LEN_BYTES;
    let devices = [1, 2].map(|seed| Arc::new(SimDevice::new(len_bytes, seed)));
    let set = made(&devices[..1]);
    set.add(Arc::clone(&devices[1]), path(1), uuid(1), None).unwrap();
    // The new one alone has the roster that states how much has been copied.
    break_rosters(&devices[0], Call::Write, 1);
    while set.bring_up_step().is_ok() {}
    set.take_offline(&uuid(1)).unwrap();
    let generations = devices.each_ref().map(|it| read_roster(&**it).unwrap().0.generation);
    assert_eq!(generations[0], generations[1]);
    set.write_at(9 * REGION, &block(7)).unwrap();
    set.flush().unwrap();
    drop(set);
    let set = opened(&devices, false).unwrap();
    set.flush().unwrap();
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    assert_eq!(byte(&*devices[1], 9 * REGION), 7);
}

/// A clock that does something once, when it is looked at.
#[derive(Default)]
struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Hook {
    fn set(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.lock() = Some(Box::new(act));
    }
}

impl Clock for Hook {
    fn now(&self) -> Timestamp {
        let act = self.0.lock().take();
        act.into_iter().for_each(|act| act());
        Timestamp(1)
    }
}

/// A set that looks at a clock between a failure and what it states about it.
fn hooked() -> (Vec<Sim>, Arc<DeviceSet<Sim>>, Arc<Hook>) {
    let (devices, _) = two();
    let hook = Arc::new(Hook::default());
    let clock = Arc::clone(&hook) as Arc<dyn Clock>;
    let set = DeviceSet::assemble(found(&devices), false, clock).unwrap();
    set.flush().unwrap();
    (devices, Arc::new(set), hook)
}

#[test]
fn a_write_that_failed_on_a_member_is_stale_there_also_if_a_flush_comes_between() {
    let (devices, set, hook) = hooked();
    devices[1].inject(Fault::fail(Call::Write));
    let other = Arc::clone(&set);
    hook.set(move || other.flush().unwrap());
    set.write_at(5 * REGION, &block(9)).unwrap();
    set.flush().unwrap();
    set.add(Arc::clone(&devices[1]), path(1), uuid(1), None).unwrap();
    bring_up(&set);
    assert_eq!(states(&set), [MemberState::InSync; 2]);
    assert_eq!(byte(&*devices[1], 5 * REGION), 9);
}

#[test]
fn a_flush_beside_one_that_fails_on_a_member_is_acknowledged_when_that_is_called_missing() {
    let (devices, set, hook) = hooked();
    set.write_at(5 * REGION, &block(9)).unwrap();
    devices[1].inject(Fault::fail(Call::Flush));
    let (failed, has_failed) = std::sync::mpsc::channel();
    hook.set(move || {
        failed.send(()).unwrap();
        // Long enough for the other flush, unless that waits.
        std::thread::sleep(std::time::Duration::from_millis(50));
    });
    std::thread::scope(|scope| {
        let (set, devices) = (&set, &devices);
        scope.spawn(move || {
            has_failed.recv().unwrap();
            set.flush().unwrap();
            assert_eq!(durable_roster(&devices[0]).members[1].state, MemberState::Missing);
        });
        set.flush().unwrap();
    });
}

/// A device that looks at the set that it belongs to while it is cut off.
#[derive(Default)]
struct Cut {
    set: std::sync::OnceLock<std::sync::Weak<DeviceSet<Arc<Cut>>>>,
    could_be_read: std::sync::atomic::AtomicBool,
}

impl Device for Cut {
    fn len_bytes(&self) -> u64 {
        LEN
    }
    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> dendro_device::Result<()> {
        Ok(())
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> dendro_device::Result<()> {
        Ok(())
    }
    fn flush(&self) -> dendro_device::Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _len_bytes: u64) -> dendro_device::Result<()> {
        Ok(())
    }
    fn truncate(&self, _len_bytes: u64) -> dendro_device::Result<()> {
        let set = self.set.get().and_then(std::sync::Weak::upgrade).unwrap();
        self.could_be_read.store(set.state.try_read().is_some(), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn nobody_waits_while_an_image_is_cut_off_and_whoever_asks_for_paths_never_does() {
    let device = Arc::new(Cut::default());
    let set = Arc::new(DeviceSet::single(Arc::clone(&device), path(0), clock()));
    device.set.set(Arc::downgrade(&set)).unwrap();
    set.truncate(LEN / 2).unwrap();
    assert!(device.could_be_read.load(Ordering::Relaxed));
    let (_devices, set) = two();
    set.take_offline(&uuid(0)).unwrap();
    let present = set.present_paths();
    let _changing = set.state.write();
    assert_eq!((&present[..], set.present_paths()), (&[path(1)][..], present.clone()));
}
