//! Mirrored volumes that become longer.

use dendro_base::sync::atomic::AtomicU64;
use dendro_format::superblock::INCOMPATIBLE_SET;

use super::*;

const MORE: u64 = 1 << 20;

/// Has a superblock with this number state where the members end.
fn state_ends<D: Device>(set: &DeviceSet<D>, seq: u64) -> dendro_device::Result<()> {
    let member_ends = set.member_ends();
    let stated = Superblock { seq, incompatible: INCOMPATIBLE_SET, member_ends, ..superblock() };
    set.write_at(stated.layout.superblock_offset(seq), stated.encode().as_slot())?;
    set.flush()
}

fn lengthen<D: Device>(set: &DeviceSet<D>, len_bytes: u64, seq: u64) -> dendro_device::Result<()> {
    set.announce_len(len_bytes);
    state_ends(set, seq)?;
    set.extend(len_bytes, &block(9), false)?;
    state_ends(set, seq + 1)
}

#[test]
fn a_mirrored_volume_becomes_longer_and_each_member_alone_has_all_of_it() {
    let (devices, set) = two();
    set.write_at(REGION, &block(5)).unwrap();
    // Nobody has stated where they will end.
    assert!(set.extend(LEN + MORE, &block(9), false).is_err());
    lengthen(&set, LEN + MORE, 4).unwrap();
    assert_eq!(set.len_bytes(), LEN + MORE);
    assert_eq!(set.member_ends(), [LEN + MORE + ROSTER_AREA_LEN_BYTES; 2]);
    set.write_at(LEN + REGION, &block(6)).unwrap();
    lengthen(&set, LEN + 3 * MORE, 6).unwrap();
    drop(set);
    let check = |set: &DeviceSet<Sim>| {
        assert_eq!((set.len_bytes(), byte(set, REGION)), (LEN + 3 * MORE, 5));
        assert_eq!((byte(set, LEN + REGION), byte(set, LEN + 3 * MORE - 1)), (6, 9));
    };
    for one in &devices {
        check(&opened(&copies(std::slice::from_ref(one)), true).unwrap());
    }
    check(&opened(&devices, false).unwrap());
}

#[test]
fn devices_of_which_one_is_longer_hold_what_the_shorter_one_holds() {
    let devices = vec![device(1), device(2)];
    let set = made(&devices);
    drop(set);
    devices[1].extend(devices[1].len_bytes() + 5 * MORE, &[], false).unwrap();
    // Before anybody stated where it ends, nobody finds it.
    assert!(matches!(opened(&devices, false), Err(Error::Incomplete { .. })));
    devices[1].truncate(LEN + ROSTER_AREA_LEN_BYTES).unwrap();
    let set = opened(&devices, false).unwrap();
    state_ends(&set, 4).unwrap();
    drop(set);
    devices[1].extend(devices[1].len_bytes() + 5 * MORE, &[], false).unwrap();
    let set = opened(&devices, false).unwrap();
    lengthen(&set, LEN + 2 * MORE, 6).unwrap();
    let ends = [LEN + 2 * MORE, LEN + 5 * MORE].map(|len| len + ROSTER_AREA_LEN_BYTES);
    assert_eq!(set.member_ends(), ends);
    drop(set);
    let set = opened(&devices, false).unwrap();
    lengthen(&set, LEN + 4 * MORE, 8).unwrap();
    assert_eq!(byte(&*devices[1], LEN + 4 * MORE - 1), 9);
    assert_eq!(opened(&devices, false).unwrap().len_bytes(), LEN + 4 * MORE);
}

#[test]
fn it_does_not_become_longer_while_a_member_lacks_anything() {
    let (devices, set) = two();
    set.take_offline(&uuid(1)).unwrap();
    assert!(lengthen(&set, LEN + MORE, 4).is_err());
    set.write_at(REGION, &block(5)).unwrap();
    set.add(Arc::clone(&devices[1]), path(1), uuid(5), None).unwrap();
    assert!(lengthen(&set, LEN + MORE, 6).is_err());
    bring_up(&set);
    // The new tail would lie on the rosters.
    assert!(lengthen(&set, LEN + ROSTER_AREA_LEN_BYTES, 8).is_err());
    lengthen(&set, LEN + MORE, 10).unwrap();
    assert_eq!(opened(&devices, false).unwrap().len_bytes(), LEN + MORE);
}

/// What is there after a crash in the middle of becoming longer: the old length or the new one, and
/// all that was flushed. It can be tried again, and then be opened with any one of the devices.
fn check_after_crash(images: &[Sim], left: Option<usize>, what: &str) {
    if let Some(left) = left {
        // One of them goes on alone, and the other returns.
        let found = found(&images[left..=left]);
        match DeviceSet::assemble(found, true, clock()) {
            Ok(alone) => {
                alone.write_at(3 * REGION, &block(7)).unwrap();
                alone.flush().unwrap();
            }
            Err(Error::OnlyStale { .. }) => return,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    let set = opened(images, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!([LEN, LEN + MORE].contains(&set.len_bytes()), "{what}: {}", set.len_bytes());
    assert_eq!(byte(&set, REGION), 5, "{what}");
    set.flush().unwrap();
    bring_up(&set);
    if left.is_some() {
        assert_eq!(byte(&set, 3 * REGION), 7, "{what}");
    }
    assert_eq!(states(&set), [MemberState::InSync; 2], "{what}");
    if set.len_bytes() == LEN {
        lengthen(&set, LEN + MORE, 20).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    set.write_at(LEN + REGION, &block(8)).unwrap();
    set.flush().unwrap();
    drop(set);
    for at in 0..2 {
        let one = opened(&copies(&images[at..=at]), true).unwrap();
        assert_eq!((one.len_bytes(), byte(&one, REGION)), (LEN + MORE, 5), "{what}");
        assert_eq!((byte(&one, LEN + REGION), byte(&one, LEN + MORE - 1)), (8, 9), "{what}");
    }
}

/// A device of a machine whose power goes after so many writes and flushes of all its devices.
struct Powered {
    device: Sim,
    calls_left: Arc<AtomicU64>,
}

impl Powered {
    fn call(&self) -> dendro_device::Result<()> {
        let left = self
            .calls_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let source = std::io::Error::other("the power has gone");
        let gone = dendro_device::Error::Io { operation: "write", offset: 0, len_bytes: 0, source };
        left.map(drop).map_err(|_| gone)
    }
}

impl Device for Powered {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.call()?;
        self.device.write_at(offset, bytes)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        self.call()?;
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.device.discard(offset, len_bytes)
    }
    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> dendro_device::Result<()> {
        self.call()?;
        self.device.extend(len_bytes, tail, allocates)
    }
}

fn crash_images(devices: &[Sim], style: CrashStyle, rng: &mut Rng) -> Vec<Sim> {
    devices.iter().map(|it| Arc::new(it.crash_image(rng, style))).collect()
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_old_length_or_the_new_one() {
    let mut rng = Rng::new(5);
    for calls in 0.. {
        let (devices, set) = two();
        set.write_at(REGION, &block(5)).unwrap();
        set.close().unwrap();
        drop(set);
        let calls_left = Arc::new(AtomicU64::new(u64::MAX));
        let powered = |(at, device): (usize, &Sim)| {
            let (device, calls_left) = (Arc::clone(device), Arc::clone(&calls_left));
            Found::look(Powered { device, calls_left }, path(at)).ok()
        };
        let found = devices.iter().enumerate().filter_map(powered).collect();
        let set = DeviceSet::assemble(found, false, clock()).unwrap().in_turn();
        set.flush().unwrap();
        calls_left.store(calls, Ordering::Relaxed);
        let outcome = lengthen(&set, LEN + MORE, 4);
        drop(set);
        for style in CrashStyle::ALL {
            for left in [None, Some(0), Some(1)] {
                let images = crash_images(&devices, style, &mut rng);
                check_after_crash(&images, left, &format!("{calls} calls, {style:?}, {left:?}"));
            }
        }
        if outcome.is_ok() {
            assert!(calls > 10, "it takes some calls");
            return;
        }
    }
}

#[test]
fn a_device_that_fails_at_any_moment_leaves_the_old_length_or_the_new_one() {
    let mut rng = Rng::new(6);
    for (on, call) in [(0, Call::Write), (0, Call::Flush), (1, Call::Write), (1, Call::Flush)] {
        for nth in 1.. {
            let (devices, set) = two();
            set.write_at(REGION, &block(5)).unwrap();
            set.flush().unwrap();
            devices[on].inject(Fault::fail(call).nth(nth));
            let outcome = lengthen(&set, LEN + MORE, 4);
            let is_over = outcome.is_ok() && states(&set) == [MemberState::InSync; 2];
            drop(set);
            for style in [CrashStyle::Everything, CrashStyle::Nothing, CrashStyle::Torn] {
                let images = crash_images(&devices, style, &mut rng);
                check_after_crash(&images, None, &format!("{call:?} {nth} of {on}, {style:?}"));
            }
            if is_over {
                break;
            }
        }
    }
}
