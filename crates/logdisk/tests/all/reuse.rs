//! Segments that are reused before the next checkpoint.

use std::ops::Range;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::{ModelState, apply};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View};
use dendro_format::Compression;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_logdisk::{
    CleanSettings, CoalesceSettings, FormatOptions, LogDisk, OpenOptions, Place, format,
};
use dendro_policy::{Classes, Scatter};

const SEGMENT_BYTES: u64 = 128 << 10;
const SEGMENT_COUNT: u64 = 512;
/// Two thirds of the volume.
const PAGES: u64 = SEGMENT_COUNT * SEGMENT_BYTES * 2 / 3 / PAGE_SIZE as u64;

struct Volume {
    device: Arc<MemoryDevice>,
    disk: LogDisk,
    list: Lid,
    /// The distance between the pages. The larger it is, the larger is the map.
    stride: u64,
    model: ModelState,
    rng: Rng,
}

/// Blocks go to payload streams. No checkpoint is taken by itself, because the limit of log between
/// checkpoints is high.
fn options() -> OpenOptions {
    OpenOptions { checkpoint_log_bytes: u64::MAX, stream_bytes: 0, ..OpenOptions::default() }
}

fn open(device: Arc<dyn Device>) -> LogDisk {
    LogDisk::open(device, options(), Arc::new(ManualClock::default())).expect("it was formatted")
}

impl Volume {
    fn new(seed: u64, stride: u64) -> Self {
        let mut volume = Self::empty(seed, stride);
        volume.fill();
        volume
    }

    fn empty(seed: u64, stride: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
        let shared: Arc<dyn Device> = Arc::clone(&device) as Arc<dyn Device>;
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let options =
            FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
        format(&shared, &options, &clock).expect("the device is large enough");
        let disk = open(shared);
        let list = disk.allocate_list().expect("the disk is writable");
        let model = ModelState::default();
        let rng = Rng::new(seed);
        let mut volume = Self { device, disk, list, stride, model, rng };
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        volume.commit(aru);
        volume
    }

    /// Writes all pages.
    fn fill(&mut self) {
        for at in 0..PAGES {
            self.write(at);
        }
        self.disk.checkpoint().expect("the device works");
    }

    /// Opens the disk again, so that what it lays down together is compressed.
    fn reopen_to_compress(&mut self) {
        self.disk.shut_down().expect("the device works");
        let coalescing = CoalesceSettings { moves_everything: true, ..CoalesceSettings::default() };
        let options = OpenOptions {
            cold_compression: Some(Some(Compression::ZSTD)),
            cleaning: CleanSettings { coalescing, ..CleanSettings::default() },
            ..options()
        };
        self.disk = LogDisk::open(
            Arc::clone(&self.device) as Arc<dyn Device>,
            options,
            Arc::new(ManualClock::default()),
        )
        .expect("it was formatted");
    }

    fn commit(&mut self, aru: Aru<'_>) {
        let ops = aru.ops().to_vec();
        self.disk.commit(aru).expect("there is room");
        apply(&mut self.model, &ops).expect("the disk took it");
    }

    fn write(&mut self, at: u64) {
        self.write_only(at);
        while self.disk.background_step().expect("the device works") {}
    }

    fn write_only(&mut self, at: u64) {
        let mut page = vec![0; PAGE_SIZE];
        self.rng.fill(&mut page);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(self.list, at * self.stride, page);
        self.commit(aru);
    }

    fn overwrite(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.rng.below(PAGES);
            self.write(at);
        }
    }

    /// Asserts that a crash at this moment leaves everything that was committed.
    fn check_crashed(&self) {
        self.disk.flush(CommitSeq::LATEST).expect("the device works");
        let image = MemoryDevice::from_bytes(&self.device.to_bytes());
        let report = dendro_check::verify(&image, &dendro_check::Options { data: true });
        assert!(report.is_sound(), "as the crash left it: {report}");
        let image: Arc<dyn Device> = Arc::new(image);
        let disk = open(Arc::clone(&image));
        let found = ModelState::read_from(&disk).expect("it can be read");
        assert_eq!(found.diff(&self.model), None);
        disk.shut_down().expect("the device works");
        drop(disk);
        let report = dendro_check::verify(&*image, &dendro_check::Options { data: true });
        assert!(report.is_sound(), "shut down: {report}");
    }
}

#[test]
fn a_volume_is_overwritten_many_times_with_few_checkpoints_and_a_crash_loses_nothing() {
    let mut volume = Volume::new(1, 1);
    let before = volume.disk.stats();
    for _ in 0..6 {
        volume.overwrite(PAGES / 2);
        volume.check_crashed();
    }
    let after = volume.disk.stats();
    let reused = after.reused_segments - before.reused_segments;
    // The only checkpoints that are taken are due to dirty nodes.
    let checkpoints = after.checkpoint_seq - before.checkpoint_seq;
    assert!(reused > SEGMENT_COUNT && reused > 50 * checkpoints, "{after:?}");
}

#[test]
fn with_enough_room_the_blocks_that_the_checkpoint_names_are_not_overwritten() {
    let mut volume = Volume::new(2, 1);
    let before = volume.disk.stats().reused_segments;
    volume.overwrite(PAGES / 8);
    for at in 0..PAGES / 8 {
        volume.write(at);
    }
    assert_eq!(volume.disk.stats().reused_segments, before);
    volume.check_crashed();
}

/// A disk with segments of frames that its log empties. If `is_collected`, the collection has taken
/// the first page out of each of them before.
fn with_emptied_frames(is_collected: bool) -> Volume {
    const FRAMED: u64 = 4096;
    let mut volume = Volume::empty(6, 1);
    volume.reopen_to_compress();
    let framed = volume.disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(framed, ListHints::default());
    volume.commit(aru);
    for first_page in (0..FRAMED).step_by(512) {
        // A part of each page gains nothing, so that the frames fill some segments.
        let mut data = vec![1; 512 * PAGE_SIZE];
        data.chunks_mut(PAGE_SIZE).for_each(|page| volume.rng.fill(&mut page[..PAGE_SIZE / 16]));
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(framed, first_page, data);
        volume.commit(aru);
    }
    volume.disk.flush(CommitSeq::LATEST).expect("the device works");
    let from = Place { list: framed.0, page: 0 };
    let moved = volume.disk.coalesce(View::HEAD, from, Lid(framed.0 + 1), false);
    assert_eq!(moved.expect("the device works").next, None);
    let addrs = (0..FRAMED).map(|page| {
        volume.disk.page_addr(View::HEAD, framed, page).expect("it is mapped").expect("it is there")
    });
    let addrs: Vec<u64> = addrs.collect();
    let mut frames: Vec<Range<u64>> = Vec::new();
    let mut page = 0;
    for frame in addrs.chunk_by(|a, b| a == b) {
        frames.extend((frame.len() > 1).then(|| page..page + frame.len() as u64));
        page += frame.len() as u64;
    }
    assert!(frames.len() > 100, "{} frames", frames.len());
    volume.fill();
    let punch = |first_page, count| Op::PunchPages { list: framed, first_page, count };
    let snapshot = is_collected.then(|| volume.disk.snapshot(0, None).expect("there is room"));
    let mut aru = Aru::new(View::HEAD);
    for frame in frames {
        aru.push(punch(frame.start, 1));
    }
    volume.commit(aru);
    if let Some(snapshot) = snapshot {
        volume.disk.delete(snapshot.view()).expect("it is there");
        while volume.disk.collection_step().expect("the device works") {}
    }
    let mut aru = Aru::new(View::HEAD);
    aru.push(punch(0, FRAMED));
    volume.commit(aru);
    volume
}

/// What the collection does is not in the log. The log may free the rest of a frame, but when it is
/// applied again, the frame is whole.
#[test]
fn segments_of_frames_that_lost_pages_to_a_collection_are_not_filled_before_a_checkpoint() {
    for is_collected in [false, true] {
        let mut volume = with_emptied_frames(is_collected);
        let before = volume.disk.stats();
        // When clean segments are few, those that the log has emptied are filled again, and for
        // others a checkpoint is taken.
        let mut after = before;
        while (after.reused_segments, after.checkpoint_seq)
            == (before.reused_segments, before.checkpoint_seq)
        {
            volume.overwrite(1);
            after = volume.disk.stats();
        }
        volume.check_crashed();
        let reused = after.reused_segments - before.reused_segments;
        assert_eq!(reused > 0, !is_collected, "{reused} segments were filled again");
    }
}

#[test]
fn clean_segments_do_not_run_out_while_reclaimable_ones_wait() {
    const POOL: u32 = 16;
    let mut volume = Volume::new(5, 1);
    let min_clean_segments = Some(POOL);
    volume.disk.set_clean_settings(CleanSettings { min_clean_segments, ..Default::default() });
    // Where little is dead, the pool is as small as the setting says.
    for at in PAGES..PAGES * 9 / 8 {
        volume.write(at);
    }
    let mut left = Vec::new();
    for _ in 0..3 * PAGES {
        while volume.disk.clean_step().expect("the device works") {}
        volume.overwrite(1);
        let present = volume.disk.volume_facts();
        left.push(present.clean_count.saturating_sub(present.reserved_count));
    }
    let least = left.into_iter().skip(PAGES as usize).min().expect("pages were written");
    assert!(least > POOL / 4, "so few were left to be written to: {least}");
}

#[test]
fn segments_that_a_collection_emptied_wait_for_a_checkpoint() {
    let mut volume = Volume::new(3, 1);
    for _ in 0..4 {
        let snapshot = volume.disk.snapshot(0, None).expect("there is room");
        volume.overwrite(PAGES / 16);
        volume.disk.delete(snapshot.view()).expect("it is there");
        // The crash undoes the collection, so what it freed must still be there.
        while volume.disk.collection_step().expect("the device works") {}
        volume.overwrite(PAGES / 4);
        volume.check_crashed();
    }
    assert!(volume.disk.stats().reused_segments > 0);
}

#[test]
fn a_segment_emptied_during_a_checkpoint_may_be_filled_with_its_nodes() {
    let mut volume = Volume::new(4, CHUNK_PAGES);
    for _ in 0..60 {
        for _ in 0..volume.rng.below(PAGES / 8) {
            let at = volume.rng.below(PAGES);
            volume.write_only(at);
            if volume.rng.chance(4) {
                volume.disk.background_step().expect("the device works");
            }
        }
        volume.check_crashed();
    }
    assert!(volume.disk.stats().reused_segments > SEGMENT_COUNT);
}

/// A volume so small that it is overwritten all the time. Most blocks are written and become dead
/// between two flushes.
mod crashes {
    use super::*;

    const SEGMENT_COUNT: u64 = 80;
    const PAGES: u64 = 800;
    /// Most writes go to these pages, so that segments are filled and become empty between two
    /// flushes.
    const HOT_PAGES: u64 = 60;
    const OPS: u64 = 4000;

    fn open(device: Arc<dyn Device>, seed: u64) -> LogDisk {
        let classes = Classes { users: 2, survivors: 1 };
        let options = OpenOptions {
            checkpoint_log_bytes: u64::MAX,
            stream_bytes: 0,
            policy: Arc::new(Scatter::new(classes, seed)),
            cleaning: CleanSettings { min_clean_segments: Some(28), ..CleanSettings::default() },
            ..OpenOptions::default()
        };
        LogDisk::open(device, options, Arc::new(ManualClock::default())).expect("it opens")
    }

    fn page_of(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(PAGE_SIZE / 8)
    }

    /// The page that operation `number` writes.
    fn place_of(number: u64) -> u64 {
        let mut rng = Rng::new(number);
        match number {
            ..PAGES => number,
            _ if rng.chance(95) => rng.below(HOT_PAGES),
            _ => rng.below(PAGES),
        }
    }

    /// Returns the last operation that is there. All before it must be there, and none behind it.
    fn last_found(disk: &LogDisk, list: Lid) -> u64 {
        let record = disk.record(View::HEAD, list, 0).expect("it can be read");
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let last = record.map_or(0, |bytes| number(&bytes));
        let mut expected = vec![None; PAGES as usize];
        for number in 1..=last {
            expected[place_of(number) as usize] = Some(number);
        }
        for (at, number) in expected.into_iter().enumerate() {
            let mut page = vec![0; PAGE_SIZE];
            disk.read_pages(View::HEAD, list, at as u64, &mut page).expect("it can be read");
            assert_eq!(page, number.map_or(vec![0; PAGE_SIZE], page_of), "page {at} at {last}");
        }
        last
    }

    #[test]
    fn a_crash_between_two_flushes_keeps_what_was_flushed_and_no_block_of_a_later_generation() {
        for seed in 0..3 {
            let device = Arc::new(SimDevice::new(SEGMENT_COUNT * SEGMENT_BYTES, seed));
            let shared = || Arc::clone(&device) as Arc<dyn Device>;
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
            let options =
                FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
            format(&shared(), &options, &clock).expect("the device is large enough");
            let disk = open(shared(), seed);
            let list = disk.allocate_list().expect("the disk is writable");
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default());
            disk.commit(aru).expect("there is room");
            let mut rng = Rng::new(seed);
            let mut flushed = 0;
            for number in 1..OPS {
                let mut aru = Aru::new(View::HEAD);
                aru.write_pages(list, place_of(number), page_of(number));
                aru.put_record(list, 0, number.to_le_bytes().to_vec());
                disk.commit(aru).expect("there is room");
                while disk.background_step().expect("the device works") {}
                if rng.below(1000) == 0 {
                    disk.flush(CommitSeq::LATEST).expect("the device works");
                    flushed = number;
                }
                if number > PAGES && rng.below(25) == 0 {
                    let style = CrashStyle::draw(&mut rng);
                    let image = Arc::new(device.crash_image(&mut rng, style));
                    let found = last_found(&open(image, seed), list);
                    assert!(flushed <= found && found <= number, "{flushed}, {found}, {number}");
                }
            }
            let stats = disk.stats();
            assert!(stats.reused_segments > 10, "{stats:?}");
        }
    }
}

/// A deletion removes at once what lies in one leaf. When the log is rolled forward, the list may
/// lie in several leaves, or versions may seem to have it, and then it is left to be removed later.
#[test]
fn a_segment_emptied_by_a_deletion_may_be_reused_before_a_crash() {
    let mut volume = Volume::new(5, 1);
    volume.disk.snapshot(0, None).expect("there is room");
    let lists: Vec<Lid> = (0..24)
        .map(|_| {
            let list = volume.disk.allocate_list().expect("the disk is writable");
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default());
            for chunk in 0..100 {
                let mut page = vec![0; PAGE_SIZE];
                volume.rng.fill(&mut page);
                aru.write_pages(list, chunk * CHUNK_PAGES, page);
            }
            volume.disk.commit(aru).expect("there is room");
            list
        })
        .collect();
    volume.disk.checkpoint().expect("the device works");
    for list in lists {
        let mut aru = Aru::new(View::HEAD);
        aru.set_reclaims().delete_list(list);
        volume.disk.commit(aru).expect("a list can be deleted");
    }
    let before = volume.disk.stats();
    while volume.disk.stats().reused_segments == before.reused_segments {
        let at = volume.rng.below(PAGES);
        volume.write(at);
    }
    assert_eq!(volume.disk.stats().checkpoint_seq, before.checkpoint_seq);
    volume.disk.flush(CommitSeq::LATEST).expect("the device works");
    let device = Arc::clone(&volume.device) as Arc<dyn Device>;
    drop(volume.disk);
    let disk = open(device);
    let found = ModelState::read_from(&disk).expect("the device works");
    assert_eq!(found.diff(&volume.model), None);
}
