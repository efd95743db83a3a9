//! A sparse image on a file system that is full.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::sync::Mutex;
use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::sim::{Call, CrashStyle, Fault, SimDevice};
use dendro_device::{BLOCK_SIZE, Device, Error as DeviceError, HostRoom, Result};
use dendro_disk::{Aru, CommitSeq, Error, Lid, LogicalDisk, Op, PAGE_SIZE, Versions, View};
use dendro_format::superblock::INCOMPATIBLE_VERSIONS;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

use crate::common::new_list;

pub(crate) const DEVICE_BYTES: u64 = 64 << 20;
pub(crate) const SEGMENT_BYTES: u64 = 1 << 20;
const ENOSPC: i32 = 28;

/// A sparse image, and the room that its host has for it.
pub(crate) struct Image {
    pub(crate) sim: SimDevice,
    allocated: Mutex<BTreeSet<u64>>,
    host_bytes: AtomicU64,
    refused_count: AtomicU64,
    taken_count: AtomicU64,
}

impl Image {
    pub(crate) fn new(sim: SimDevice, host_bytes: u64) -> Arc<Self> {
        let (allocated, host_bytes) = (Mutex::default(), AtomicU64::new(host_bytes));
        let (refused_count, taken_count) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { sim, allocated, host_bytes, refused_count, taken_count })
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        (self.allocated.lock().len() * BLOCK_SIZE) as u64
    }

    /// `u64::MAX`: no host limits it, as with a block device.
    pub(crate) fn set_host_bytes(&self, host_bytes: u64) {
        self.host_bytes.store(host_bytes, Ordering::Relaxed);
    }

    /// Uses up the room of the host, as other programs do.
    pub(crate) fn fill_host(&self) {
        self.set_host_bytes(self.allocated_bytes());
    }

    /// How many blocks it has taken from the host.
    pub(crate) fn taken_count(&self) -> u64 {
        self.taken_count.load(Ordering::Relaxed)
    }

    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }
}

fn blocks(offset: u64, len_bytes: u64) -> std::ops::Range<u64> {
    offset / BLOCK_SIZE as u64..(offset + len_bytes) / BLOCK_SIZE as u64
}

impl Device for Image {
    fn len_bytes(&self) -> u64 {
        self.sim.len_bytes()
    }

    fn host_room(&self) -> Option<HostRoom> {
        let allocated_bytes = self.allocated_bytes();
        let host_bytes = self.host_bytes.load(Ordering::Relaxed);
        (host_bytes != u64::MAX).then(|| HostRoom {
            free_bytes: host_bytes.saturating_sub(allocated_bytes),
            allocated_bytes,
        })
    }

    fn next_written(&self, offset: u64) -> Option<u64> {
        let block = *self.allocated.lock().range(offset / BLOCK_SIZE as u64..).next()?;
        Some(offset.max(block * BLOCK_SIZE as u64))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.sim.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let len_bytes = bytes.len() as u64;
        {
            let mut allocated = self.allocated.lock();
            let host_blocks = self.host_bytes.load(Ordering::Relaxed) / BLOCK_SIZE as u64;
            for block in blocks(offset, len_bytes) {
                if !allocated.contains(&block) && allocated.len() as u64 >= host_blocks {
                    self.refused_count.fetch_add(1, Ordering::Relaxed);
                    let source = std::io::Error::from_raw_os_error(ENOSPC);
                    return Err(DeviceError::Io { operation: "write", offset, len_bytes, source });
                }
                let is_new = allocated.insert(block);
                self.taken_count.fetch_add(is_new.into(), Ordering::Relaxed);
            }
        }
        self.sim.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.sim.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let given_back = blocks(offset, len_bytes);
        self.allocated.lock().retain(|block| !given_back.contains(block));
        self.sim.discard(offset, len_bytes)
    }
}

fn open(device: Arc<dyn Device>, clock: &Arc<ManualClock>) -> LogDisk {
    LogDisk::open(device, OpenOptions::default(), Arc::clone(clock) as _).expect("it was formatted")
}

fn new_disk(device: &Arc<dyn Device>, clock: &Arc<ManualClock>) -> LogDisk {
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(device, &options, &(Arc::clone(clock) as Arc<dyn Clock>)).expect("it is large enough");
    open(Arc::clone(device), clock)
}

pub(crate) fn put(disk: &LogDisk, list: Lid, number: u64) -> std::result::Result<CommitSeq, Error> {
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, number % 64, number.to_le_bytes().to_vec());
    aru.write_pages(list, number, vec![(number % 250) as u8 + 1; PAGE_SIZE]);
    disk.commit(aru)
}

/// Returns the first number below `end` for which what `put` has put is missing, or `end`.
pub(crate) fn first_missing(disk: &LogDisk, list: Lid, end: u64) -> u64 {
    let mut page = vec![0; PAGE_SIZE];
    for number in 0..end {
        disk.read_pages(View::HEAD, list, number, &mut page).expect("it can be read");
        if page.iter().any(|&byte| u64::from(byte) != number % 250 + 1) {
            return number;
        }
    }
    end
}

fn is_no_space<T>(answer: &std::result::Result<T, Error>) -> bool {
    matches!(answer, Err(Error::NoSpace { .. }))
}

#[test]
fn a_write_without_room_waits_and_accepted_units_are_durable_when_flush_succeeds() {
    let clock = Arc::new(ManualClock::default());
    let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
    let disk = new_disk(&(Arc::clone(&sim) as Arc<dyn Device>), &clock);
    let list = new_list(&disk);
    sim.inject(Fault::fail(Call::Write).os_error(ENOSPC).forever());
    let mut accepted = 0;
    while put(&disk, list, accepted).is_ok() {
        accepted += 1;
        assert!(accepted < 20_000, "all of it stays in memory");
        if accepted % 300 == 0 {
            assert!(is_no_space(&disk.flush(CommitSeq::LATEST)), "a flush promised what it cannot");
        }
    }
    assert!(accepted > 0 && is_no_space(&put(&disk, list, accepted)));
    assert!(is_no_space(&disk.checkpoint()) && is_no_space(&disk.write_step(Default::default())));
    assert_eq!(disk.read_only_reason(), None);
    // What has not been written is read from memory.
    assert_eq!(first_missing(&disk, list, accepted), accepted);
    // Units that give space back are still accepted.
    let other = disk.allocate_list().expect("it is not latched");
    let mut aru = Aru::new(View::HEAD);
    aru.punch_pages(list, accepted, 1);
    aru.set_reclaims();
    disk.commit(aru).expect("nothing has to be written for it");
    sim.clear_faults();
    put(&disk, list, accepted).expect("there is room again");
    disk.flush(CommitSeq::LATEST).expect("there is room again");
    let mut rng = Rng::new(3);
    let image = sim.crash_image(&mut rng, CrashStyle::Nothing);
    let again = open(Arc::new(image), &clock);
    assert_eq!(first_missing(&again, list, accepted + 1), accepted + 1);
    assert!(other.0 > list.0);
}

#[test]
fn a_checkpoint_that_finds_no_room_at_any_of_its_writes_is_finished_later() {
    for nth in 1.. {
        let clock = Arc::new(ManualClock::default());
        let sim = Arc::new(SimDevice::new(DEVICE_BYTES, nth));
        let disk = new_disk(&(Arc::clone(&sim) as Arc<dyn Device>), &clock);
        let list = new_list(&disk);
        for number in 0..400 {
            put(&disk, list, number).expect("there is room");
        }
        sim.inject(Fault::fail(Call::Write).os_error(ENOSPC).nth(nth).times(3));
        let mut tries = 0;
        while is_no_space(&disk.checkpoint()) {
            tries += 1;
            put(&disk, list, 400).err();
        }
        assert_eq!(disk.read_only_reason(), None);
        sim.clear_faults();
        disk.checkpoint().expect("there is room again");
        let mut rng = Rng::new(nth);
        let image = sim.crash_image(&mut rng, CrashStyle::Nothing);
        let again = open(Arc::new(image), &clock);
        assert_eq!(first_missing(&again, list, 400), 400, "write {nth} of the checkpoint");
        again.shut_down().expect("the device works");
        if sim.struck_count() == 0 {
            assert!(nth > 3, "a checkpoint has nodes, a log before it, and a superblock");
            return;
        }
        assert!(tries > 0);
    }
}

#[test]
fn a_full_host_is_noticed_before_a_write_fails_and_gets_back_what_is_deleted() {
    let clock = Arc::new(ManualClock::default());
    let image = Image::new(SimDevice::new(DEVICE_BYTES, 1), DEVICE_BYTES);
    let disk = new_disk(&(Arc::clone(&image) as Arc<dyn Device>), &clock);
    image.set_host_bytes(24 << 20);
    clock.advance(std::time::Duration::from_secs(2));
    let promised = disk.space().available_bytes;
    assert!((12 << 20..24 << 20).contains(&promised), "{promised}");
    for round in 0..4 {
        let list = new_list(&disk);
        let mut accepted = 0;
        while put(&disk, list, accepted).is_ok() {
            accepted += 1;
            clock.advance(std::time::Duration::from_millis(1));
        }
        let bytes = accepted * PAGE_SIZE as u64;
        assert!(bytes + (2 << 20) > promised, "round {round}: {bytes} of {promised}");
        disk.flush(CommitSeq::LATEST).expect("room was kept for it");
        disk.checkpoint().expect("room was kept for it");
        assert_eq!(first_missing(&disk, list, accepted), accepted);
        assert!(disk.space().available_bytes < 1 << 20);
        // First every second page: the segments are then half dead, and only cleaning gives that
        // room back.
        for number in (0..accepted).step_by(2) {
            let mut aru = Aru::new(View::HEAD);
            aru.punch_pages(list, number, 1);
            aru.set_reclaims();
            disk.commit(aru).expect("what gives space back is accepted");
        }
        let refilled = (0..accepted / 3).take_while(|&at| put(&disk, list, at * 2).is_ok()).count();
        assert_eq!(refilled as u64, accepted / 3, "round {round}");
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list);
        aru.set_reclaims();
        disk.commit(aru).expect("what gives space back is accepted");
    }
    assert_eq!(image.refused_count(), 0, "the device answered first");
}

#[test]
fn zeros_allocated_while_the_host_had_room_do_not_prevent_writes_when_it_is_full() {
    let clock = Arc::new(ManualClock::default());
    let image = Image::new(SimDevice::new(DEVICE_BYTES, 1), DEVICE_BYTES);
    let disk = new_disk(&(Arc::clone(&image) as Arc<dyn Device>), &clock);
    let list = new_list(&disk);
    let mut aru = Aru::new(View::HEAD);
    let count = (40 << 20) / PAGE_SIZE as u64;
    aru.push(Op::ZeroPages { list, first_page: 1 << 20, count });
    disk.commit(aru).expect("there is room");
    image.set_host_bytes(24 << 20);
    clock.advance(std::time::Duration::from_secs(2));
    // There is no room for new allocations, and writes that take room on the host have some.
    assert_eq!(disk.space().available_bytes, 0);
    for number in 0..2000 {
        put(&disk, list, number).expect("the host has room for it");
    }
    disk.flush(CommitSeq::LATEST).expect("the host has room for it");
    assert_eq!(first_missing(&disk, list, 2000), 2000);
}

#[test]
fn accepted_units_survive_while_other_programs_fill_and_empty_the_host() {
    for seed in 0..30 {
        let clock = Arc::new(ManualClock::default());
        let mut rng = Rng::new(seed);
        let image = Image::new(SimDevice::new(DEVICE_BYTES, seed), DEVICE_BYTES);
        let disk = new_disk(&(Arc::clone(&image) as Arc<dyn Device>), &clock);
        let list = new_list(&disk);
        disk.flush(CommitSeq::LATEST).expect("there is room");
        let (mut accepted, mut promised) = (0, 0);
        for _ in 0..400 {
            match rng.below(12) {
                0 => image.fill_host(),
                1 => image.set_host_bytes(image.allocated_bytes() + (rng.below(300) << 12)),
                2 => image.set_host_bytes(DEVICE_BYTES),
                3 => clock.advance(std::time::Duration::from_millis(700)),
                4 if disk.flush(CommitSeq::LATEST).is_ok() => promised = accepted,
                5 => drop(disk.checkpoint()),
                6 => drop(disk.background_step()),
                7 => drop(disk.write_step(Default::default())),
                _ => {
                    for _ in 0..rng.below(40) {
                        accepted += u64::from(put(&disk, list, accepted).is_ok());
                    }
                }
            }
            assert_eq!(disk.read_only_reason(), None, "seed {seed}");
            if rng.below(60) == 0 {
                let style = CrashStyle::draw(&mut rng);
                let again = open(Arc::new(image.sim.crash_image(&mut rng, style)), &clock);
                let found = first_missing(&again, list, accepted);
                assert!(found >= promised, "seed {seed}: {found} of {promised}");
            }
        }
        image.set_host_bytes(DEVICE_BYTES);
        assert_eq!(first_missing(&disk, list, accepted), accepted, "seed {seed}");
        disk.shut_down().expect("there is room again");
        let again = open(Arc::clone(&image) as _, &clock);
        assert_eq!(first_missing(&again, list, accepted), accepted, "seed {seed}");
        assert!(image.refused_count() > 0, "seed {seed}");
    }
}

#[test]
fn a_shutdown_that_failed_for_lack_of_room_can_be_repeated() {
    let clock = Arc::new(ManualClock::default());
    let image = Image::new(SimDevice::new(DEVICE_BYTES, 1), DEVICE_BYTES);
    let disk = new_disk(&(Arc::clone(&image) as Arc<dyn Device>), &clock);
    let list = new_list(&disk);
    for number in 0..100 {
        put(&disk, list, number).expect("there is room");
    }
    image.fill_host();
    assert!(is_no_space(&disk.shut_down()));
    image.set_host_bytes(DEVICE_BYTES);
    disk.shut_down().expect("there is room again");
    let again = open(Arc::clone(&image) as _, &clock);
    assert_eq!(first_missing(&again, list, 100), 100);
    // The volume cannot be mounted for writing without room. It can be mounted afterwards.
    again.shut_down().expect("there is room");
    image.allocated.lock().clear();
    image.set_host_bytes(0);
    let answer = LogDisk::open(Arc::clone(&image) as _, OpenOptions::default(), clock.clone());
    assert!(is_no_space(&answer));
    image.set_host_bytes(DEVICE_BYTES);
    assert_eq!(first_missing(&open(Arc::clone(&image) as _, &clock), list, 100), 100);
}

#[test]
fn nothing_is_discarded_of_a_volume_that_keeps_its_allocation() {
    let clock = Arc::new(ManualClock::default());
    let device: Arc<dyn Device> = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
    let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
    for (is_allocated, device) in [(false, device), (true, Arc::clone(&sim) as Arc<dyn Device>)] {
        let segment_size_bytes = SEGMENT_BYTES;
        let options = FormatOptions { segment_size_bytes, is_allocated, ..Default::default() };
        format(&device, &options, &(Arc::clone(&clock) as Arc<dyn Clock>)).unwrap();
        let disk = open(Arc::clone(&device), &clock);
        let list = new_list(&disk);
        for number in 0..2000 {
            put(&disk, list, number).expect("there is room");
        }
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list);
        aru.set_reclaims();
        disk.commit(aru).expect("there is room");
        while disk.background_step().expect("the device works") {}
        for _ in 0..300 {
            put(&disk, new_list(&disk), 1).expect("there is room");
            disk.checkpoint().expect("the device works");
        }
    }
    assert_eq!(sim.counts().discards, 0);
}

#[test]
fn a_first_snapshot_for_which_the_host_has_no_room_is_refused_and_can_be_made_later() {
    let clock = Arc::new(ManualClock::default());
    let image = Image::new(SimDevice::new(DEVICE_BYTES, 1), DEVICE_BYTES);
    let device: Arc<dyn Device> = Arc::clone(&image) as _;
    let disk = new_disk(&device, &clock);
    let list = new_list(&disk);
    put(&disk, list, 0).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("there is room");
    // The place of the next superblock, which states that the volume has versions, is not
    // allocated.
    image.fill_host();
    assert!(is_no_space(&disk.snapshot(0, Some("early"))));
    assert!(image.refused_count() > 0);
    assert_eq!(disk.versions().snapshots().count(), 0);
    assert_eq!(disk.superblock().incompatible & INCOMPATIBLE_VERSIONS, 0);

    image.set_host_bytes(DEVICE_BYTES);
    clock.advance(std::time::Duration::from_secs(2));
    disk.snapshot(0, Some("late")).expect("there is room again");
    put(&disk, list, 1).expect("the disk still accepts changes");
    disk.shut_down().expect("there is room");
    drop(disk);
    let disk = open(device, &clock);
    assert_eq!(disk.versions().snapshots().count(), 1);
    assert_eq!(first_missing(&disk, list, 2), 2);
}
