//! What is given back of an image, and when.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{Discards, FormatOptions, LogDisk, OpenOptions, format};

use crate::common::new_list;
use crate::host_full::{DEVICE_BYTES, Image, SEGMENT_BYTES, first_missing, put};

const AGE: Duration = Duration::from_secs(600);
const PAGES: u64 = (16 << 20) / PAGE_SIZE as u64;

struct Rig {
    clock: Arc<ManualClock>,
    image: Arc<Image>,
    options: OpenOptions,
}

impl Rig {
    fn new(discards: Discards, checkpoint_log_bytes: u64) -> Self {
        Self::with_segments(discards, checkpoint_log_bytes, SEGMENT_BYTES)
    }

    fn with_segments(
        discards: Discards,
        checkpoint_log_bytes: u64,
        segment_size_bytes: u64,
    ) -> Self {
        let clock = Arc::new(ManualClock::default());
        let image = Image::new(SimDevice::new(DEVICE_BYTES, 1), 4 * DEVICE_BYTES);
        let device: Arc<dyn Device> = Arc::clone(&image) as _;
        let layout = FormatOptions { segment_size_bytes, ..Default::default() };
        format(&device, &layout, &(Arc::clone(&clock) as Arc<dyn Clock>)).expect("it is large");
        let options = OpenOptions { discards, checkpoint_log_bytes, ..OpenOptions::default() };
        Self { clock, image, options }
    }

    fn open(&self) -> LogDisk {
        let device = Arc::clone(&self.image) as Arc<dyn Device>;
        LogDisk::open(device, self.options.clone(), Arc::clone(&self.clock) as _).expect("it is")
    }

    fn mib(&self) -> u64 {
        self.image.allocated_bytes() >> 20
    }

    fn wait(&self, disk: &LogDisk, time: Duration) {
        self.clock.advance(time);
        while disk.background_step().expect("the device works") {}
    }
}

fn fill(disk: &LogDisk, list: Lid) {
    for number in 0..PAGES {
        put(disk, list, number).expect("there is room");
    }
    disk.flush(CommitSeq::LATEST).expect("the device works");
}

fn delete(disk: &LogDisk, list: Lid) {
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(list);
    aru.set_reclaims();
    disk.commit(aru).expect("there is room");
    while disk.removal_step().expect("the device works") {}
    disk.checkpoint().expect("the device works");
}

#[test]
fn what_is_deleted_is_discarded_when_it_has_been_clean_for_long() {
    let rig = Rig::new(Discards::InTime, 128 << 20);
    let disk = rig.open();
    let list = new_list(&disk);
    rig.wait(&disk, AGE);
    fill(&disk, list);
    delete(&disk, list);
    rig.wait(&disk, AGE);
    assert!(rig.mib() >= 16, "{} MiB after one period", rig.mib());
    rig.wait(&disk, AGE);
    assert!(rig.mib() <= 6, "{} MiB after two", rig.mib());
}

#[test]
fn of_what_is_deleted_a_share_is_kept_and_nothing_if_the_host_has_little() {
    let (log_bytes, share_mib) = (2 << 20, 4);
    for (discards, host_bytes, least, most) in [
        (Discards::Never, 4 * DEVICE_BYTES, 16, 24),
        (Discards::InTime, 4 * DEVICE_BYTES, share_mib, share_mib + 6),
        (Discards::InTime, 20 << 20, 0, 6),
        (Discards::AtOnce, 4 * DEVICE_BYTES, 0, 6),
    ] {
        let rig = Rig::new(discards, log_bytes);
        let disk = rig.open();
        let list = new_list(&disk);
        fill(&disk, list);
        // It is long ago that as much was written between two checkpoints.
        disk.checkpoint().expect("the device works");
        (0..3).for_each(|_| rig.wait(&disk, AGE));
        rig.image.set_host_bytes(host_bytes);
        delete(&disk, list);
        rig.wait(&disk, Duration::ZERO);
        let (mib, case) = (rig.mib(), (discards, host_bytes));
        assert!((least..=most).contains(&mib), "{case:?}: {mib} MiB");
    }
}

#[test]
fn a_log_that_goes_round_fills_what_was_written_before() {
    let rig = Rig::new(Discards::InTime, 8 << 20);
    let disk = rig.open();
    let list = new_list(&disk);
    let mut before = 0;
    for round in 0..8 {
        fill(&disk, list);
        disk.checkpoint().expect("the device works");
        rig.wait(&disk, Duration::from_secs(60));
        if round == 3 {
            before = rig.image.taken_count();
        }
    }
    // Slots of superblocks, and the ends of segments that were left before.
    let taken_count = rig.image.taken_count() - before;
    assert!(taken_count < 4 * PAGES / 32, "{taken_count} blocks were allocated");
    assert!(rig.mib() < 48, "{} MiB", rig.mib());
    assert_eq!(first_missing(&disk, list, PAGES), PAGES);
}

/// Writes all pages of a list again, while the background works.
fn overwrite(disk: &LogDisk, list: Lid) {
    for number in 0..PAGES {
        put(disk, list, number).expect("there is room");
        if number % 64 == 0 {
            while disk.background_step().expect("the device works") {}
        }
    }
}

#[test]
fn a_log_that_goes_round_gives_nothing_back_however_much_a_checkpoint_empties() {
    // Enough segments for payload streams. Recovery reads little of what these write, so four times
    // as much is written between checkpoints.
    let rig = Rig::with_segments(Discards::InTime, 3 << 20, 128 << 10);
    rig.image.set_host_bytes(u64::MAX);
    let disk = rig.open();
    let list = new_list(&disk);
    let mut before = 0;
    for round in 0..12 {
        overwrite(&disk, list);
        if round == 3 {
            before = rig.image.taken_count();
        }
    }
    // Slots of superblocks, and the ends of segments that were left before.
    let taken_count = rig.image.taken_count() - before;
    assert!(taken_count < PAGES / 16, "{taken_count} blocks were allocated");
    assert!(rig.mib() < 32, "{} MiB", rig.mib());
    assert_eq!(first_missing(&disk, list, PAGES), PAGES);
}

#[test]
fn what_is_overwritten_is_filled_again_before_the_image_grows() {
    let rig = Rig::with_segments(Discards::InTime, 3 << 20, 128 << 10);
    let disk = rig.open();
    let list = new_list(&disk);
    (0..12).for_each(|_| overwrite(&disk, list));
    // 16 MiB of data, what waits for a checkpoint, and what the one before has made clean.
    assert!(rig.mib() < 26, "{} MiB", rig.mib());
}

#[test]
fn a_background_that_waits_is_woken_before_the_image_grows() {
    let rig = Rig::with_segments(Discards::InTime, 3 << 20, 128 << 10);
    let disk = rig.open();
    let list = new_list(&disk);
    overwrite(&disk, list);
    disk.checkpoint().expect("the device works");
    disk.wait_for_background_work(Duration::ZERO);
    // The main log gets a few KiB of this, and the payload streams 4 MiB.
    for number in 0..8 {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, number * 128, vec![7; 128 * PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
    }
    assert!(disk.wait_for_background_work(Duration::ZERO), "nothing woke it");
}

#[test]
fn idle_times_write_ahead_of_a_log_that_is_flushed_often_and_of_no_other() {
    for (flushes, discards) in
        [(true, Discards::InTime), (false, Discards::InTime), (true, Discards::AtOnce)]
    {
        let rig = Rig::new(discards, 128 << 20);
        let disk = rig.open();
        let list = new_list(&disk);
        let write = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                put(&disk, list, number).expect("there is room");
                if flushes {
                    disk.flush(CommitSeq::LATEST).expect("the device works");
                }
            }
            disk.flush(CommitSeq::LATEST).expect("the device works");
            rig.image.allocated_bytes()
        };
        let written_bytes = write(0..400);
        while disk.idle_step().expect("the device works") {}
        let ahead_bytes = rig.image.allocated_bytes() - written_bytes;
        if !flushes || discards != Discards::InTime {
            assert_eq!(ahead_bytes, 0, "{flushes}, {discards:?}");
            continue;
        }
        assert!((4 << 20..=16 << 20).contains(&ahead_bytes), "{ahead_bytes}");
        let before = rig.image.taken_count();
        write(400..900);
        // The log takes three blocks for each. It had opened two segments by then.
        let taken_count = rig.image.taken_count() - before;
        assert!(taken_count < 600, "the log did not use it: {taken_count}");
        assert_eq!(first_missing(&disk, list, 900), 900);
        // What is not used is given back, and not made again.
        for _ in 0..3 {
            rig.wait(&disk, AGE);
            while disk.idle_step().expect("the device works") {}
        }
        let kept_bytes = rig.image.allocated_bytes();
        assert!(kept_bytes < written_bytes + (9 << 20), "{kept_bytes} of {written_bytes}");
    }
}

#[test]
fn a_shutdown_gives_back_what_was_kept_and_after_a_crash_it_is_found_again() {
    let rig = Rig::new(Discards::InTime, 128 << 20);
    let disk = rig.open();
    let list = new_list(&disk);
    fill(&disk, list);
    delete(&disk, list);
    let kept_mib = rig.mib();
    assert!(kept_mib >= 16);
    drop(disk);
    // Not shut down.
    let disk = rig.open();
    let list = new_list(&disk);
    for number in 0..PAGES / 2 {
        put(&disk, list, number).expect("there is room");
    }
    disk.flush(CommitSeq::LATEST).expect("the device works");
    assert!(rig.mib() <= kept_mib + 1, "{} MiB after {kept_mib}", rig.mib());
    delete(&disk, list);
    disk.shut_down().expect("the device works");
    assert!(rig.mib() <= 6, "{} MiB", rig.mib());
}

/// The host may take seconds for that.
#[test]
fn a_checkpoint_and_a_mount_after_a_crash_discard_little_and_the_background_the_rest() {
    let batch_mib = (16 * SEGMENT_BYTES) >> 20;
    let mut rig = Rig::new(Discards::Never, 1 << 20);
    let disk = rig.open();
    let lists = [new_list(&disk), new_list(&disk)];
    lists.iter().for_each(|list| fill(&disk, *list));
    lists.iter().for_each(|list| delete(&disk, *list));
    drop(disk);
    let before_mib = rig.mib();
    rig.options.discards = Discards::InTime;
    let disk = rig.open();
    let opened_mib = rig.mib();
    assert!(opened_mib + batch_mib + 1 >= before_mib, "{before_mib}, then {opened_mib} MiB");
    disk.checkpoint().expect("the device works");
    assert!(rig.mib() + batch_mib + 1 >= opened_mib, "{opened_mib}, then {} MiB", rig.mib());
    rig.wait(&disk, Duration::ZERO);
    assert!(rig.mib() <= 10, "{} MiB", rig.mib());
}

#[test]
fn a_trim_gives_back_everything_clean_in_its_range() {
    for discards in [Discards::Never, Discards::InTime, Discards::AtOnce] {
        let rig = Rig::new(discards, 128 << 20);
        let disk = rig.open();
        let (list, other) = (new_list(&disk), new_list(&disk));
        fill(&disk, list);
        put(&disk, other, 0).expect("there is room");
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list);
        aru.set_reclaims();
        disk.commit(aru).expect("there is room");
        assert_eq!(disk.trim(3..SEGMENT_BYTES).expect("the device works"), 0);
        let half = disk.trim(0..DEVICE_BYTES / 2).expect("the device works");
        let all = disk.trim(0..u64::MAX).expect("the device works");
        assert!(half <= DEVICE_BYTES / 2 && all > DEVICE_BYTES / 2, "{half}, {all}");
        assert!(rig.mib() <= 6, "{discards:?}: {} MiB", rig.mib());
        assert_eq!(first_missing(&disk, other, 1), 1);
        disk.shut_down().expect("the device works");
        assert!(disk.trim(0..u64::MAX).is_err(), "a disk that takes no changes");
    }
}

#[test]
fn a_crash_while_segments_are_discarded_loses_nothing() {
    for seed in 0..20 {
        let rig = Rig::new(Discards::InTime, 1 << 20);
        let disk = rig.open();
        let mut rng = Rng::new(seed);
        let (list, other) = (new_list(&disk), new_list(&disk));
        fill(&disk, other);
        for number in 0..300 {
            put(&disk, list, number).expect("there is room");
        }
        delete(&disk, other);
        if rng.chance(50) {
            disk.trim(0..rng.below(DEVICE_BYTES)).expect("the device works");
        }
        rig.wait(&disk, AGE);
        rig.wait(&disk, AGE);
        for number in 300..400 {
            put(&disk, list, number).expect("there is room");
        }
        disk.flush(CommitSeq::LATEST).expect("the device works");
        let crashed = rig.image.sim.crash_image(&mut rng, CrashStyle::Nothing);
        let clock = Arc::clone(&rig.clock) as _;
        let again = LogDisk::open(Arc::new(crashed), rig.options.clone(), clock).expect("it is");
        assert_eq!(first_missing(&again, list, 400), 400, "seed {seed}");
    }
}
