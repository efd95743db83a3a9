//! Volumes that are full or nearly full, where cleaning is always under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::{Clock, ManualClock, Rng};
use dendro_check::{Options, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::{ModelState, apply};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{CleanSettings, FormatOptions, LogDisk, OpenOptions, format};

use crate::common::busy::{CHUNK_PAGES, disk_with_large_list};

const SEGMENT_BYTES: u64 = 128 << 10;

fn small_disk(segment_count: u64) -> (Arc<dyn Device>, LogDisk) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(segment_count * SEGMENT_BYTES));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    let disk = open(&device);
    (device, disk)
}

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let options = OpenOptions { checkpoint_log_bytes: 1 << 20, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device), options, Arc::new(ManualClock::default()))
        .expect("it was formatted")
}

fn new_list(disk: &LogDisk, model: &mut ModelState) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    commit(disk, model, aru).expect("there is room");
    list
}

fn commit(disk: &LogDisk, model: &mut ModelState, aru: Aru<'_>) -> Result<(), Error> {
    let ops = aru.ops().to_vec();
    disk.commit(aru)?;
    apply(model, &ops).expect("the disk took it");
    Ok(())
}

fn page(rng: &mut Rng) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE - 64 * rng.below(3) as usize * rng.below(30) as usize];
    rng.fill(&mut page);
    page
}

fn check(disk: LogDisk, device: &Arc<dyn Device>, model: &ModelState) {
    let found = ModelState::read_from(&disk).expect("it can be read");
    assert_eq!(found.diff(model), None);
    disk.shut_down().expect("the device works");
    drop(disk);
    let found = ModelState::read_from(&open(device)).expect("it can be read");
    assert_eq!(found.diff(model), None);
}

#[test]
fn a_volume_at_80_percent_can_be_overwritten_many_times() {
    let (device, disk) = small_disk(512);
    let mut model = ModelState::default();
    let list = new_list(&disk, &mut model);
    let mut rng = Rng::new(1);
    let pages = disk.space().capacity_bytes * 8 / 10 / PAGE_SIZE as u64;
    for number in 0..pages * 6 {
        let mut aru = Aru::new(View::HEAD);
        let at = if number < pages { number } else { rng.below(pages) };
        let data = page(&mut rng);
        aru.write_pages(list, at, data);
        aru.put_record(list, rng.below(50), number.to_le_bytes().to_vec());
        commit(&disk, &mut model, aru).expect("there is always room at 80 percent");
        if rng.chance(3) {
            disk.background_step().expect("the device works");
        }
        if rng.chance(3) {
            disk.flush(CommitSeq::LATEST).expect("the device works");
        }
    }
    let stats = disk.stats();
    assert!(stats.cleaned_segments > 100, "the cleaner had work: {stats:?}");
    check(disk, &device, &model);
}

#[test]
fn a_full_volume_can_be_filled_again_after_each_deletion() {
    let (device, disk) = small_disk(96);
    let mut model = ModelState::default();
    let mut rng = Rng::new(2);
    let mut lists = Vec::new();
    let mut filled = Vec::new();
    for _ in 0..8 {
        let mut bytes = 0;
        loop {
            let list = disk.allocate_list().expect("the disk is writable");
            let data: Vec<u8> = (0..1 + rng.below(20)).flat_map(|_| page(&mut rng)).collect();
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default());
            aru.put_record(list, 0, &[1_u8; 100][..]);
            aru.write_pages(list, 0, &data[..]);
            match commit(&disk, &mut model, aru) {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            bytes += data.len();
            lists.push(list);
        }
        filled.push(bytes);
        let mut kept = Vec::new();
        for list in lists.drain(..) {
            if rng.chance(50) {
                let mut aru = Aru::new(View::HEAD);
                aru.delete_list(list).set_reclaims();
                commit(&disk, &mut model, aru).expect("deleting always works");
            } else {
                kept.push(list);
            }
        }
        lists = kept;
    }
    // Each time about half of the volume is filled again; otherwise the cleaner would lose space.
    assert!(filled[1..].iter().all(|&bytes| bytes > filled[0] / 4), "{filled:?}");
    check(disk, &device, &model);
}

#[test]
fn pages_moved_between_lists_survive_the_cleaning_of_their_segments() {
    let (device, disk) = small_disk(96);
    let mut model = ModelState::default();
    let (a, b) = (new_list(&disk, &mut model), new_list(&disk, &mut model));
    let mut rng = Rng::new(3);
    let pages = disk.space().capacity_bytes * 4 / 10 / PAGE_SIZE as u64;
    for _ in 0..pages * 30 {
        let mut aru = Aru::new(View::HEAD);
        let (from, to) = if rng.chance(50) { (a, b) } else { (b, a) };
        if rng.chance(5) {
            let (from_page, to_page) = (rng.below(pages), rng.below(pages));
            let count = rng.below(10);
            aru.push(dendro_disk::Op::MovePages { from, from_page, to, to_page, count });
        } else {
            aru.write_pages(from, rng.below(pages), page(&mut rng));
        }
        commit(&disk, &mut model, aru).expect("there is room");
    }
    assert!(disk.stats().cleaned_segments > 20, "{:?}", disk.stats());
    check(disk, &device, &model);
}

#[test]
fn a_tiny_full_volume_that_often_crashes_does_not_clean_forever() {
    let (device, disk) = small_disk(32);
    disk.shut_down().expect("the device works");
    let mut refused = 0;
    for number in 0..400 {
        let disk = open(&device);
        let list = disk.allocate_list().expect("the disk is writable");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default()).write_pages(list, 0, vec![7; 20_000]);
        match disk.commit(aru) {
            Ok(seq) => disk.flush(seq).expect("the device works"),
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        // Every second time the deletion is lost with the process.
        if refused == 0 {
            let mut aru = Aru::new(View::HEAD);
            aru.delete_list(list).set_reclaims();
            disk.commit(aru).expect("deleting always works");
        }
        if number % 2 == 0 {
            disk.shut_down().expect("the device works");
        }
    }
    assert!(refused > 0, "the volume was to run full");
}

#[test]
fn the_map_that_a_checkpoint_wrote_stays_in_memory() {
    let (_device, disk) = small_disk(128);
    let mut model = ModelState::default();
    let list = new_list(&disk, &mut model);
    for number in 0..20_000 {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, number, &[7_u8; 100][..]);
        commit(&disk, &mut model, aru).expect("there is room");
    }
    disk.checkpoint().expect("the device works");
    let stats = disk.stats();
    assert_eq!(stats.dirty_node_bytes, 0);
    assert!(stats.cached_node_bytes > 20_000 * 100, "{stats:?}");
}

#[test]
fn the_setting_for_clean_segments_may_exceed_the_volume() {
    let (device, disk) = small_disk(64);
    let mut model = ModelState::default();
    let mut rng = Rng::new(1);
    let list = new_list(&disk, &mut model);
    let pages = disk.space().capacity_bytes * 8 / 10 / PAGE_SIZE as u64;
    for most in [u32::MAX, u32::MAX - 1, u32::MAX / 4, 65] {
        disk.set_clean_settings(CleanSettings {
            min_clean_segments: Some(most),
            max_clean_segments: Some(most),
            ..CleanSettings::default()
        });
        for _ in 0..2 * pages {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, rng.below(pages), page(&mut rng));
            commit(&disk, &mut model, aru).expect("all of it fits");
            disk.background_step().expect("the device works");
        }
        while disk.idle_step().expect("the device works") {}
    }
    check(disk, &device, &model);
}

#[test]
fn cleaning_moves_nothing_once_another_thread_has_shut_the_disk_down() {
    const CHUNKS: u64 = 20_000;
    let mut shutdown_count = 0;
    for nth in (0..100).step_by(2) {
        let (device, disk, list, _) = disk_with_large_list(CHUNKS);
        for from in (0..CHUNKS).step_by(256) {
            let mut aru = Aru::new(View::HEAD);
            for number in (from..CHUNKS.min(from + 256)).filter(|number| number % 3 > 0) {
                aru.write_pages(list, number * CHUNK_PAGES, vec![8; 16]);
            }
            disk.commit(aru).expect("there is room");
        }
        disk.checkpoint().expect("the device works");
        let min_clean_segments = Some(u32::MAX / 2);
        disk.set_clean_settings(CleanSettings { min_clean_segments, ..disk.clean_settings() });
        let (read_count, closing) = (AtomicU64::new(0), Arc::downgrade(&disk));
        let moved_before = Arc::new(AtomicU64::new(0));
        let moved = Arc::clone(&moved_before);
        let shut_down = move || {
            if read_count.fetch_add(1, Ordering::Relaxed) == nth {
                let disk = closing.upgrade().expect("it is open");
                disk.shut_down().expect("the device works");
                moved.store(disk.stats().moved_bytes, Ordering::Relaxed);
            }
        };
        let steps = || while disk.clean_step().expect("the device works") {};
        if device.reads_beside(Arc::new(shut_down), steps) <= nth {
            break;
        }
        shutdown_count += 1;
        let moved_bytes = disk.stats().moved_bytes;
        assert_eq!(moved_bytes, moved_before.load(Ordering::Relaxed), "at read {nth}");
        drop(disk);
        let report = verify(&device.memory, &Options { data: false });
        assert!(report.findings.is_empty(), "at read {nth}: {report}");
    }
    assert!(shutdown_count > 20, "cleaning takes {shutdown_count} reads");
}
