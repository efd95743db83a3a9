//! Volumes that are spread over their members.

mod growing;

use std::collections::BTreeMap;

use dendro_format::roster::extents::TAIL_LEN_BYTES;

use super::*;

const LOG2: u8 = 17;
pub(super) const SEGMENT: u64 = 1 << LOG2;
/// What a member needs beside the segments that are its own.
const BESIDE: u64 = 2 * SEGMENT + TAIL_LEN_BYTES + ROSTER_AREA_LEN_BYTES;

pub(super) fn part(segments: u64, seed: u64) -> Sim {
    Arc::new(SimDevice::new(segments * SEGMENT + BESIDE, seed))
}

/// A set over members with so many segments each, whose volume is only its first superblock.
pub(super) fn spread(segments: &[u64]) -> (Vec<Sim>, DeviceSet<Sim>) {
    let devices: Vec<Sim> = (1..).zip(segments).map(|(seed, of)| part(*of, seed)).collect();
    let named = devices.iter().enumerate().map(|(at, it)| (uuid(at), path(at), Arc::clone(it)));
    let set = DeviceSet::create_spread(SET, LOG2, named.collect(), clock()).unwrap();
    set.write_at(0, superblock().encode().as_slot()).unwrap();
    set.flush().unwrap();
    (devices, set)
}

/// A device that is open for reading only.
struct ReadOnly(Sim);

impl Device for ReadOnly {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> dendro_device::Result<()> {
        Err(dendro_device::Error::ReadOnly)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _len_bytes: u64) -> dendro_device::Result<()> {
        Ok(())
    }
}

fn opened_to_read(devices: &[Sim], is_degraded: bool) -> Result<DeviceSet<ReadOnly>, Error> {
    let look = |(at, it): (usize, &Sim)| Found::look(ReadOnly(Arc::clone(it)), path(at)).ok();
    let found = devices.iter().enumerate().filter_map(look).collect();
    DeviceSet::assemble(found, is_degraded, clock())
}

#[test]
fn it_is_as_long_as_its_members_together_and_each_holds_a_part() {
    let (devices, set) = spread(&[5, 3]);
    assert_eq!(set.len_bytes(), 10 * SEGMENT + TAIL_LEN_BYTES);
    let whole: Vec<u8> = (0..8 * SEGMENT).map(|at| (at / 4096) as u8).collect();
    set.write_at(2 * SEGMENT, &whole).unwrap();
    let mut read = vec![0; whole.len() - 100];
    set.read_at(2 * SEGMENT + 50, &mut read).unwrap();
    assert_eq!(read[..], whole[50..whole.len() - 50]);
    let number = |offset| set.part_at(offset).map(|part| part.number);
    assert_eq!((number(2 * SEGMENT), number(3 * SEGMENT)), (Some(0), Some(1)));
    assert_eq!((set.part_at(0), set.copy_count()), (None, 1));
    // The second segment is the first of the second member.
    assert_eq!(byte(&*devices[1], 2 * SEGMENT), whole[SEGMENT as usize]);
    let held: Vec<u64> = set.members().iter().map(|of| of.held_bytes / SEGMENT).collect();
    assert_eq!(held, [5, 3]);
    set.flush().unwrap();
    drop(set);
    let again = opened(&devices, false).unwrap();
    again.read_at(2 * SEGMENT + 50, &mut read).unwrap();
    assert_eq!(read[..], whole[50..whole.len() - 50]);
    let outside = again.read_at(10 * SEGMENT + TAIL_LEN_BYTES - 10, &mut [0; 11]);
    assert!(matches!(outside, Err(dendro_device::Error::OutOfRange { .. })));
}

/// Reads three blocks, one of them over a border of members, together.
fn read_three(set: &DeviceSet<Sim>, places: [u64; 3]) -> [Vec<u8>; 3] {
    let mut bufs = [0; 3].map(|_| vec![0; BLOCK_SIZE]);
    let mut parts = bufs.each_mut().map(|buf| [std::io::IoSliceMut::new(buf)]);
    let mut reads: Vec<_> = parts
        .iter_mut()
        .zip(places)
        .map(|(parts, offset)| dendro_device::ReadOf { offset, parts })
        .collect();
    set.read_each(&mut reads).unwrap();
    bufs
}

#[test]
fn reads_made_together_come_from_the_members_that_have_them_or_from_another_one() {
    let whole: Vec<u8> = (0..4 * SEGMENT).map(|at| (at / 1024) as u8).collect();
    let places = [2 * SEGMENT, 3 * SEGMENT - 1000, 5 * SEGMENT - 8192];
    let is_right = |set: &DeviceSet<Sim>| {
        let wanted = places.map(|at| {
            let at = (at - 2 * SEGMENT) as usize;
            whole[at..at + BLOCK_SIZE].to_vec()
        });
        read_three(set, places) == wanted
    };
    let (_, parted) = spread(&[3, 3]);
    parted.write_at(2 * SEGMENT, &whole).unwrap();
    assert!(is_right(&parted));
    assert_eq!(parted.copy_count(), 1);

    let (devices, mirrored) = two();
    mirrored.write_at(2 * SEGMENT, &whole).unwrap();
    assert!(is_right(&mirrored));
    assert_eq!(mirrored.copy_count(), 2);
    devices[0].inject(Fault::fail(Call::Read).forever());
    assert!(is_right(&mirrored));
}

#[test]
fn slices_across_a_border_go_to_both_members() {
    let (_, set) = spread(&[3, 3]);
    let [one, two] = [vec![1; 3 * BLOCK_SIZE], vec![2; 2 * BLOCK_SIZE]];
    let at = 3 * SEGMENT - 2 * BLOCK_SIZE as u64;
    let slices = [std::io::IoSlice::new(&one), std::io::IoSlice::new(&two)];
    set.write_vectored_at(at, &slices).unwrap();
    let [mut first, mut second] = [vec![0; BLOCK_SIZE], vec![0; 4 * BLOCK_SIZE]];
    let mut parts = [std::io::IoSliceMut::new(&mut first), std::io::IoSliceMut::new(&mut second)];
    set.read_vectored_at(at, &mut parts).unwrap();
    let all = [first, second].concat();
    assert_eq!(all, [one, two].concat());
}

#[test]
fn a_flush_goes_to_those_alone_that_were_written_to() {
    let (devices, set) = spread(&[3, 3]);
    let flushes = || devices.iter().map(|it| it.counts().flushes).collect::<Vec<_>>();
    let before = flushes();
    set.write_at(3 * SEGMENT, &block(7)).unwrap();
    set.flush().unwrap();
    set.flush().unwrap();
    assert_eq!(flushes(), [before[0], before[1] + 1]);
    set.write_at(0, superblock().encode().as_slot()).unwrap();
    set.flush().unwrap();
    assert_eq!(flushes(), [before[0] + 1, before[1] + 2]);
    // One that fails is not forgotten.
    set.write_at(3 * SEGMENT, &block(8)).unwrap();
    devices[1].inject(Fault::fail(Call::Flush));
    assert!(set.flush().is_err());
    let count = flushes()[1];
    let _ = set.flush();
    assert_eq!(flushes()[1], count + 1);
}

#[test]
fn without_a_member_it_can_be_read_where_others_hold_it() {
    let (devices, set) = spread(&[3, 3]);
    set.write_at(2 * SEGMENT, &block(1)).unwrap();
    set.write_at(3 * SEGMENT, &block(2)).unwrap();
    set.flush().unwrap();
    drop(set);
    let alone = &copies(&devices)[..1];
    let text = opened(alone, false).unwrap_err().to_string();
    assert!(text.starts_with("/dev/1: not found, and a part of the volume lies there"), "{text}");
    assert!(matches!(opened(alone, true), Err(Error::NotWritable { .. })));
    assert!(matches!(opened_to_read(alone, false), Err(Error::LacksPart { .. })));
    let read = opened_to_read(alone, true).unwrap();
    assert!(read.is_read_only());
    assert_eq!(byte(&read, 2 * SEGMENT), 1);
    assert_eq!(byte(&read, 0), b'd');
    let error = read.read_at(3 * SEGMENT, &mut [0; 9]).unwrap_err().to_string();
    assert!(error.contains("/dev/1, which holds this, is not there"), "{error}");
    assert!(matches!(read.write_at(2 * SEGMENT, &block(1)), Err(dendro_device::Error::ReadOnly)));
}

#[test]
fn an_older_copy_of_a_member_is_not_taken_for_it() {
    let (devices, set) = spread(&[3, 3]);
    set.close().unwrap();
    drop(set);
    let mut olds = vec![copies(&devices)];
    for closes in [true, false] {
        let set = opened(&devices, false).unwrap();
        set.write_at(3 * SEGMENT, &block(9)).unwrap();
        set.flush().unwrap();
        olds.push(copies(&devices));
        if closes {
            set.close().unwrap();
        }
        drop(set);
        // Of those that were made while it was open, the last is as new as can be told.
        let told = if closes { olds.len() } else { olds.len() - 1 };
        for old in &olds[..told] {
            for at in 0..2 {
                let mut mixed = copies(&devices);
                mixed[at] = Arc::clone(&old[at]);
                assert!(matches!(opened(&mixed, false), Err(Error::OldPart { .. })), "{closes}");
                assert!(matches!(opened(&mixed, true), Err(Error::NotWritable { .. })));
                let read = opened_to_read(&mixed, true).unwrap();
                assert!(read.read_at((2 + at as u64) * SEGMENT, &mut [0; 9]).is_err());
            }
        }
    }
}

#[test]
fn superblocks_are_read_and_written_on_all_members() {
    let (devices, set) = spread(&[3, 3]);
    set.write_at(8192, &block(4)).unwrap();
    set.write_at(set.len_bytes() - 4096, &block(5)).unwrap();
    set.flush().unwrap();
    for device in &devices {
        let tail_end = device.len_bytes() - ROSTER_AREA_LEN_BYTES;
        assert_eq!((byte(&**device, 8192), byte(&**device, tail_end - 1)), (4, 5));
    }
    devices[0].inject(Fault::fail(Call::Read).forever().within(8192..12288));
    assert_eq!(byte(&set, 8192), 4);
    let mut buf = vec![0; BLOCK_SIZE];
    devices[1].write_at(8192, &block(3)).unwrap();
    devices[0].clear_faults();
    assert!(set.mend(8192, &mut buf, &|bytes| bytes[0] == 4));
    assert_eq!(byte(&*devices[1], 8192), 4);
    assert!(!set.mend(2 * SEGMENT, &mut buf, &|_| true));
}

#[test]
fn after_a_crash_members_have_the_same_superblocks_before_anything_is_written() {
    let (devices, set) = spread(&[3, 3]);
    for device in &devices {
        device.write_at(8192, &block(1)).unwrap();
        device.flush().unwrap();
    }
    devices[1].write_at(8192, &block(2)).unwrap();
    drop(set);
    let set = opened(&devices, false).unwrap();
    let seen = byte(&set, 8192);
    set.write_at(2 * SEGMENT, &block(9)).unwrap();
    for device in &devices {
        assert_eq!(byte(&**device, 8192), seen);
    }
}

#[test]
fn a_device_is_added_and_the_volume_made_longer() {
    let (mut devices, set) = spread(&[3, 3]);
    let tail_at = set.len_bytes() - TAIL_LEN_BYTES;
    devices.push(part(4, 3));
    set.add(Arc::clone(&devices[2]), path(2), uuid(2), None).unwrap();
    assert_eq!(set.len_bytes(), tail_at + TAIL_LEN_BYTES);
    let most = set.most_len_bytes().unwrap();
    assert_eq!(most, 12 * SEGMENT + TAIL_LEN_BYTES);
    assert!(set.extend(most + SEGMENT, &[0; BLOCK_SIZE], false).is_err());
    assert!(set.extend(most - 4096, &[0; BLOCK_SIZE], false).is_err());
    set.extend(most, &[6; BLOCK_SIZE], false).unwrap();
    assert_eq!(set.len_bytes(), most);
    set.write_at(most - TAIL_LEN_BYTES - SEGMENT, &block(8)).unwrap();
    set.flush().unwrap();
    drop(set);
    let again = opened(&devices, false).unwrap();
    assert_eq!(byte(&again, most - TAIL_LEN_BYTES - SEGMENT), 8);
    assert_eq!(byte(&again, most - 1), 6);
    assert!(matches!(opened(&devices[..2], false), Err(Error::LacksPart { .. })));
}

#[test]
fn a_member_leaves_when_others_have_room_for_what_it_holds() {
    let (mut devices, set) = spread(&[3, 3]);
    set.write_at(3 * SEGMENT, &block(4)).unwrap();
    let text = set.remove(&uuid(1)).unwrap_err().to_string();
    assert!(text.contains("holds 393216 bytes of the volume"), "{text}");
    assert_eq!(set.surplus_bytes(&uuid(1)), Some(3 * SEGMENT));
    assert!(matches!(set.take_offline(&uuid(1)), Err(Error::HoldsPart { .. })));
    devices.push(part(4, 3));
    set.add(Arc::clone(&devices[2]), path(2), uuid(2), Some(uuid(1))).unwrap();
    assert!(set.members()[1].leaves);
    assert!(matches!(set.remove(&uuid(0)), Err(Error::NoRoomElsewhere { .. })));
    assert_eq!(bring_up(&set), 3 * SEGMENT);
    assert_eq!(set.left_to_copy_bytes(), 0);
    let paths: Vec<PathBuf> = set.members().into_iter().map(|of| of.path).collect();
    assert_eq!(paths, [path(0), path(2)]);
    assert_eq!(byte(&set, 3 * SEGMENT), 4);
    set.flush().unwrap();
    drop(set);
    assert_eq!(
        byte(
            &opened(&[Arc::clone(&devices[0]), Arc::clone(&devices[2])], false).unwrap(),
            3 * SEGMENT
        ),
        4
    );
    assert!(Found::look(Arc::clone(&devices[1]), path(1)).is_err());
    assert_eq!(byte(&*devices[1], 0), 0);
}

#[test]
fn a_device_that_cannot_be_written_is_not_added() {
    let (devices, set) = spread(&[3, 3]);
    for nth in 1.. {
        let third = part(4, 3);
        third.inject(Fault::fail(Call::Write).nth(nth));
        if set.add(Arc::clone(&third), path(2), uuid(2), None).is_ok() {
            assert!(nth > 2);
            break;
        }
        assert_eq!(set.members().len(), 2);
        let all = [&devices[..], &[third]].concat();
        set.write_at(2 * SEGMENT, &block(nth as u8)).unwrap();
        set.flush().unwrap();
        let again = opened(&copies(&all), false).unwrap();
        assert_eq!(again.members().len(), 2);
    }
}

#[test]
fn what_cannot_be_written_to_the_new_place_stays_in_the_old_one() {
    let (mut devices, set) = spread(&[3, 3]);
    devices.push(part(4, 3));
    set.add(Arc::clone(&devices[2]), path(2), uuid(2), Some(uuid(1))).unwrap();
    set.bring_up_step().unwrap();
    devices[2].inject(Fault::fail(Call::Write));
    set.write_at(3 * SEGMENT, &block(4)).unwrap();
    assert!(set.bring_up_step().is_err());
    bring_up(&set);
    assert_eq!((byte(&set, 3 * SEGMENT), set.members().len()), (4, 2));
}

#[test]
fn what_was_copied_to_a_place_that_could_not_be_flushed_stays_in_the_old_one() {
    let (devices, set) = spread(&[6, 3]);
    set.write_at(2 * SEGMENT, &block(5)).unwrap();
    set.flush().unwrap();
    let new = part(6, 9);
    set.add(Arc::clone(&new), path(2), uuid(2), Some(uuid(0))).unwrap();
    let first = set.bring_up_step().unwrap().unwrap();
    assert!(first.copied_bytes > 0);
    // What was copied is written, and not durable; what is written now makes the flush go there.
    set.write_at(2 * SEGMENT + BLOCK_SIZE as u64, &block(6)).unwrap();
    new.inject(Fault::fail(Call::Flush));
    assert!(set.flush().is_err());
    assert!(set.bring_up_step().is_err(), "what was moved may be lost");
    while set.bring_up_step().unwrap().is_some() {}
    assert_eq!(set.members().len(), 2);
    // What no flush has made durable is lost with the power.
    let lost = |it: &Sim| Arc::new(it.crash_image(&mut Rng::new(1), CrashStyle::Nothing));
    let left: Vec<Sim> = devices.iter().chain([&new]).map(lost).collect();
    let again = opened(&left[1..], false).unwrap();
    assert_eq!(byte(&again, 2 * SEGMENT), 5);
}

#[test]
fn nothing_is_added_after_a_roster_could_not_be_written() {
    let (mut devices, set) = spread(&[4, 4]);
    devices[1].inject(Fault::fail(Call::Write).forever());
    assert!(set.truncate(7 * SEGMENT + TAIL_LEN_BYTES).is_err() || set.close().is_err());
    for number in 2..6 {
        devices.push(part(4, number as u64 + 1));
        let added = set.add(Arc::clone(&devices[number]), path(number), uuid(number), None);
        assert!(matches!(added, Err(Error::Device { .. })), "{number}");
    }
    drop(set);
    // The first of them may have been added, though nobody was told so.
    let again = opened(&copies(&devices), false).unwrap();
    assert!((2..=3).contains(&again.members().len()));
}

/// What the blocks of a volume may hold: what each sector held when it was durable, and what was
/// written since.
#[derive(Clone, Default)]
struct Model {
    blocks: BTreeMap<u64, ([u8; 8], Vec<u8>)>,
    len_bytes: u64,
}

impl Model {
    fn write(&mut self, offset: u64, count: u64, value: u8) {
        for number in 0..count {
            let block = self.blocks.get_mut(&(offset + number * 4096));
            match block {
                Some((_, since)) => since.push(value),
                // Anything may be there until it is flushed.
                None => continue,
            }
        }
    }

    fn flush(&mut self, set: &DeviceSet<Sim>) {
        for (offset, (durable, since)) in &mut self.blocks {
            if let Some(last) = since.last() {
                *durable = [*last; 8];
                // The power may be off for the member that holds it.
                let mut read = [0];
                assert!(set.read_at(*offset, &mut read).is_err() || read[0] == *last);
                since.clear();
            }
        }
    }

    /// Takes over what a set holds, once more of its blocks if it is longer.
    fn look(&mut self, set: &DeviceSet<Sim>) -> Result<(), String> {
        // Behind that there is room for rosters.
        let unused_bytes = if set.is_spread() { 0 } else { ROSTER_AREA_LEN_BYTES };
        self.len_bytes = set.len_bytes() - unused_bytes;
        let end = self.len_bytes - TAIL_LEN_BYTES;
        self.blocks.retain(|offset, _| *offset < end);
        for offset in (2 * SEGMENT..end).step_by(32 << 10).chain([8192, SEGMENT - 4096]) {
            let mut block = [0; BLOCK_SIZE];
            set.read_at(offset, &mut block).map_err(|error| error.to_string())?;
            let sectors = std::array::from_fn(|at| block[at * 512]);
            self.blocks.insert(offset, (sectors, Vec::new()));
        }
        Ok(())
    }

    /// What a crash has left is what was durable, or written since.
    fn check(&self, set: &DeviceSet<Sim>) {
        let end = set.len_bytes() - TAIL_LEN_BYTES;
        for (offset, (durable, since)) in self.blocks.range(..end) {
            let mut block = [0; BLOCK_SIZE];
            set.read_at(*offset, &mut block).unwrap();
            for (at, sector) in block.chunks(512).enumerate() {
                let is_known = sector[0] == durable[at] || since.contains(&sector[0]);
                assert!(is_known, "{offset}: {} of {durable:?} {since:?}", sector[0]);
            }
        }
    }
}

/// A device with room for so many segments of its own, on which a volume lies alone.
fn alone(segments: u64) -> (Vec<Sim>, DeviceSet<Sim>) {
    let device = part(segments, 1);
    let set = DeviceSet::single(Arc::clone(&device), path(0), clock());
    set.write_at(0, superblock().encode().as_slot()).unwrap();
    set.flush().unwrap();
    (vec![device], set)
}

fn begin(set: &DeviceSet<Sim>, segments: u64) -> Result<(), Error> {
    set.begin_spread(SET, uuid(0), path(0), (LOG2, segments as u32 + 2))
}

#[test]
fn a_volume_on_one_device_is_spread_over_it_and_another() {
    let (mut devices, set) = alone(5);
    let whole: Vec<u8> = (0..5 * SEGMENT).map(|at| (at / 4096) as u8).collect();
    set.write_at(2 * SEGMENT, &whole).unwrap();
    assert!(matches!(begin(&set, 6), Err(Error::NoRoom { .. })));
    assert!(!set.is_listed());
    begin(&set, 5).unwrap();
    begin(&set, 5).unwrap();
    assert_eq!((set.len_bytes(), set.is_spread()), (7 * SEGMENT + TAIL_LEN_BYTES, true));
    // What was not flushed when it became a set is flushed.
    set.flush().unwrap();
    let left = opened(&copies(&devices), false).unwrap();
    assert!(left.is_spread());
    devices.push(part(3, 2));
    set.add(Arc::clone(&devices[1]), path(1), uuid(1), None).unwrap();
    set.extend(set.most_len_bytes().unwrap(), &[1; 4096], false).unwrap();
    set.write_at(7 * SEGMENT, &block(9)).unwrap();
    set.flush().unwrap();
    let mut read = vec![0; whole.len()];
    let again = opened(&devices, false).unwrap();
    for set in [&set, &left, &again] {
        set.read_at(2 * SEGMENT, &mut read).unwrap();
        assert!(read == whole);
    }
    assert_eq!((again.len_bytes(), byte(&again, 7 * SEGMENT)), (set.len_bytes(), 9));
    assert_eq!(byte(&*devices[1], 2 * SEGMENT), 9);
    let (_, mirrored) = two();
    assert!(matches!(begin(&mirrored, 20), Err(Error::NotAlone)));
}

#[test]
fn what_was_written_before_a_volume_is_spread_is_flushed_after_it() {
    let (devices, set) = alone(5);
    set.write_at(3 * SEGMENT, &block(5)).unwrap();
    let before = devices[0].counts().flushes;
    begin(&set, 5).unwrap();
    let then = devices[0].counts().flushes;
    set.flush().unwrap();
    assert!(before < then && then < devices[0].counts().flushes);
}

#[test]
fn a_device_that_cannot_be_written_stays_alone_and_one_that_cannot_be_flushed_fails() {
    let (devices, set) = alone(5);
    devices[0].inject(Fault::fail(Call::Write));
    assert!(matches!(begin(&set, 5), Err(Error::Device { .. })));
    set.write_at(3 * SEGMENT, &block(5)).unwrap();
    set.flush().unwrap();
    assert_eq!((set.is_listed(), set.len_bytes()), (false, devices[0].len_bytes()));
    assert_eq!(set.part_at(3 * SEGMENT), None);
    begin(&set, 5).unwrap();
    let (devices, set) = alone(5);
    set.write_at(3 * SEGMENT, &block(5)).unwrap();
    devices[0].inject(Fault::fail(Call::Flush));
    assert!(matches!(begin(&set, 5), Err(Error::Device { .. })));
    assert!(set.flush().is_err() && set.write_at(3 * SEGMENT, &block(6)).is_err());
}

#[test]
fn nobody_writes_to_the_rosters_of_a_volume_that_became_a_set_meanwhile() {
    let (devices, set) = alone(5);
    let end = set.len_bytes();
    begin(&set, 5).unwrap();
    // As one that looked at the length before.
    set.len_bytes.store(end, Ordering::Relaxed);
    for offset in [end - TAIL_LEN_BYTES, end - 2 * TAIL_LEN_BYTES] {
        assert!(set.write_at(offset, &[1; TAIL_LEN_BYTES as usize]).is_err());
        assert!(set.discard(offset, TAIL_LEN_BYTES).is_err());
    }
    assert!(read_roster(&*devices[0]).is_some());
}

fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most - least + 1)
}

/// Devices, some of which are members, and the set of these.
struct Run {
    rng: Rng,
    devices: Vec<Sim>,
    set: DeviceSet<Sim>,
    model: Model,
    /// The devices as they were when the set was opened last, and before it was written to.
    before: Vec<Sim>,
    written: u8,
    /// How often superblocks have stated where members end.
    stated: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = between(&mut rng, 1, 3);
        let segments: Vec<u64> = (0..count).map(|_| between(&mut rng, 3, 9)).collect();
        let (devices, set) = match rng.chance(30) {
            true => alone(segments[0]),
            false => spread(&segments),
        };
        // What was never written may read as anything.
        set.write_at(8192, &block(1)).unwrap();
        set.write_at(SEGMENT - 4096, &block(1)).unwrap();
        set.flush().unwrap();
        let mut model = Model::default();
        model.look(&set).unwrap();
        Self { rng, before: Vec::new(), devices, set, model, written: 0, stated: 0 }
    }

    /// Does something; an error means that the power is off.
    fn act(&mut self) -> Result<(), String> {
        if !self.set.is_spread() && self.rng.chance(5) {
            let segments = (self.model.len_bytes - TAIL_LEN_BYTES) / SEGMENT - 2;
            begin(&self.set, segments).map_err(|error| error.to_string())?;
        }
        let fail = |error: &dyn std::fmt::Display| error.to_string();
        let set = &self.set;
        let end = self.model.len_bytes - TAIL_LEN_BYTES;
        match self.rng.below(20) {
            0..8 => {
                let keys: Vec<u64> = self.model.blocks.keys().copied().collect();
                let first = keys[self.rng.below(keys.len() as u64) as usize];
                let most = if first < 2 * SEGMENT { 1 } else { (end - first) / 4096 };
                let count = between(&mut self.rng, 1, most.min(70));
                self.written = self.written % 250 + 1;
                self.model.write(first, count, self.written);
                let bytes = vec![self.written; count as usize * BLOCK_SIZE];
                set.write_at(first, &bytes).map_err(|error| fail(&error))
            }
            8..11 => {
                set.flush().map_err(|error| fail(&error))?;
                self.model.flush(set);
                Ok(())
            }
            11..16 => set.bring_up_step().map(drop).map_err(|error| fail(&error)),
            16 => self.resize(),
            17 => self.add(),
            18 => self.remove(),
            _ => match self.rng.below(3) {
                0 => set.close().map_err(|error| fail(&error)),
                1 => self.lengthen(),
                _ => Ok(()),
            },
        }
    }

    fn resize(&mut self) -> Result<(), String> {
        if !self.set.is_spread() {
            return Ok(());
        }
        let segments = (self.model.len_bytes - TAIL_LEN_BYTES) / SEGMENT;
        let most = self.set.most_len_bytes().unwrap() / SEGMENT;
        let wanted = between(&mut self.rng, 4, most.max(5));
        let len_bytes = wanted * SEGMENT + TAIL_LEN_BYTES;
        let outcome = match wanted > segments {
            true => self.set.extend(len_bytes, &[7; TAIL_LEN_BYTES as usize], false),
            false => self.set.truncate(len_bytes),
        };
        match outcome {
            Err(dendro_device::Error::FixedLen { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(()) => {
                // Behind the old end there may be anything, which a crash may change.
                let end = len_bytes - TAIL_LEN_BYTES;
                self.model.blocks.retain(|offset, _| *offset < end);
                self.set.flush().map_err(|error| error.to_string())?;
                self.model.flush(&self.set);
                let mut longer = Model::default();
                longer.look(&self.set)?;
                longer.blocks.retain(|offset, _| *offset >= segments * SEGMENT);
                self.model.blocks.extend(longer.blocks);
                self.model.len_bytes = len_bytes;
                Ok(())
            }
        }
    }

    fn add(&mut self) -> Result<(), String> {
        if !self.set.is_spread() || self.set.members().len() >= 4 {
            return Ok(());
        }
        let number = self.devices.len();
        let device = part(between(&mut self.rng, 2, 9), number as u64 + 1);
        self.devices.push(Arc::clone(&device));
        let members = self.set.members();
        let old = members[self.rng.below(members.len() as u64) as usize].uuid;
        let old = Some(old).filter(|_| self.rng.chance(30));
        match self.set.add(device, path(number), uuid(number), old) {
            Err(Error::Device { source, .. }) => Err(source.to_string()),
            Err(Error::NoRoomElsewhere { .. }) => Ok(()),
            Ok(_) => self.state_ends(),
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&mut self) -> Result<(), String> {
        if !self.set.is_spread() {
            return Ok(());
        }
        let members = self.set.members();
        let one = members[self.rng.below(members.len() as u64) as usize].uuid;
        match self.set.remove(&one) {
            Err(Error::Device { source, .. }) => Err(source.to_string()),
            Err(Error::NoRoomElsewhere { .. } | Error::LastCopy { .. }) | Ok(()) => Ok(()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Cuts the power of all, and opens what is left.
    fn crash(&mut self) {
        let style = CrashStyle::draw(&mut self.rng);
        let rng = &mut self.rng;
        let images = self.devices.iter().map(|it| Arc::new(it.crash_image(rng, style)));
        self.devices = images.collect();
        self.lengthen_by_hand();
        let set = self.opened(&self.devices).expect("one of them is a member");
        self.check_olds(&set);
        self.before = copies(&self.devices);
        self.model.check(&set);
        self.set = set;
        let set = &self.set;
        self.model.look(set).unwrap();
        // From here on what was read stays.
        set.write_at(2 * SEGMENT, &block(251)).unwrap();
        self.model.write(2 * SEGMENT, 1, 251);
        set.flush().unwrap();
        self.model.flush(set);
    }

    /// The set, as it is opened by any of its members.
    fn opened(&self, devices: &[Sim]) -> Option<DeviceSet<Sim>> {
        let mut first = self.set.members().len();
        (0..devices.len()).find_map(|_| {
            first += 1;
            let mut order = found(devices);
            if order.is_empty() {
                return Some(DeviceSet::single(Arc::clone(&devices[0]), path(0), clock()));
            }
            let count = order.len();
            order.rotate_left(first % count.max(1));
            match DeviceSet::assemble(order, false, clock()) {
                Ok(set) => Some(set),
                Err(Error::Removed { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        })
    }

    /// A member as it was before the last opening is not taken for it.
    fn check_olds(&self, set: &DeviceSet<Sim>) {
        let members = set.members();
        for (at, old) in self.before.iter().enumerate() {
            let mut mixed = copies(&self.devices);
            mixed[at] = Arc::clone(old);
            let is_member = members.iter().any(|member| member.path == path(at));
            let others = members.iter().any(|member| member.path != path(at));
            if !is_member || !others {
                continue;
            }
            let opened = opened(&mixed, false);
            assert!(opened.is_err(), "{at}: {:?}", opened.map(|set| set.members()));
        }
    }
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_that_was_flushed() {
    for seed in 0..150 {
        let mut run = Run::new(seed);
        for _ in 0..6 {
            let cut = run.rng.below(run.devices.len() as u64) as usize;
            let calls = between(&mut run.rng, 1, 150);
            run.devices[cut].cut_after_calls(calls);
            for _ in 0..60 {
                if run.act().is_err() {
                    break;
                }
            }
            run.crash();
        }
    }
}

#[test]
fn a_member_is_a_fast_one_until_it_is_said_to_be_none() {
    let fast = |set: &DeviceSet<Sim>| -> Vec<bool> {
        set.members().iter().map(|member| member.is_fast).collect()
    };
    let is_fast = |set: &DeviceSet<Sim>, segment| set.part_at(segment * SEGMENT).unwrap().is_fast;
    let (mut devices, set) = spread(&[3, 3]);
    assert_eq!((fast(&set), is_fast(&set, 3)), (vec![false, false], false));
    let before = set.parts_version();
    set.set_fast(&uuid(1), true).unwrap();
    assert_eq!((is_fast(&set, 2), is_fast(&set, 3)), (false, true));
    assert_ne!(set.parts_version(), before);
    drop(set);

    let set = opened(&devices, false).unwrap();
    assert_eq!((fast(&set), is_fast(&set, 3)), (vec![false, true], true));
    // The one that takes its place is a fast one too.
    devices.push(part(3, 7));
    set.add(Arc::clone(&devices[2]), path(2), uuid(2), Some(uuid(1))).unwrap();
    assert_eq!(fast(&set), [false, true, true]);
    bring_up(&set);
    assert_eq!((fast(&set), is_fast(&set, 2), is_fast(&set, 3)), (vec![false, true], false, true));
    set.set_fast(&uuid(2), false).unwrap();
    assert_eq!((fast(&set), is_fast(&set, 3)), (vec![false, false], false));

    assert!(matches!(set.set_fast(&uuid(5), true), Err(Error::NoSet)));
    assert!(matches!(two().1.set_fast(&uuid(0), true), Err(Error::NotSpread { .. })));
}
