//! A volume made in the place of another, with a power cut at any time.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng, SystemClock, Uuid};
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, create, format, invalidate};

const DEVICE_BYTES: u64 = 24 << 20;
const SMALL: u64 = 128 << 10;
const LARGE: u64 = 1 << 20;
const PAGES: u64 = 24;

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn options(uuid: u8, segment_size_bytes: u64) -> FormatOptions {
    let uuid = Uuid::from_random([uuid; 16]);
    FormatOptions { uuid, segment_size_bytes, ..FormatOptions::default() }
}

fn open(device: Arc<dyn Device>) -> dendro_disk::Result<LogDisk> {
    LogDisk::open(device, OpenOptions::default(), clock())
}

/// Puts a list into the volume whose record and pages contain `mark`.
fn fill(disk: &LogDisk, mark: u8) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    aru.put_record(list, 0, vec![mark]);
    for page in 0..PAGES {
        aru.write_pages(list, page, vec![mark; PAGE_SIZE]);
    }
    disk.commit(aru).expect("there is room");
    list
}

fn assert_filled(disk: &LogDisk, list: Lid, mark: u8, context: &str) {
    let record = disk.record(View::HEAD, list, 0).expect("it can be read");
    assert_eq!(record.as_deref(), Some(&[mark][..]), "{context}");
    for page in 0..PAGES {
        let mut bytes = vec![0; PAGE_SIZE];
        disk.read_pages(View::HEAD, list, page, &mut bytes).expect("it can be read");
        assert!(bytes.iter().all(|byte| *byte == mark), "{context}, page {page}");
    }
}

/// What crashes left while a volume was replaced.
#[derive(Debug, Default)]
struct CrashOutcomes {
    old: usize,
    nothing: usize,
    new: usize,
}

/// Makes a volume with segments of `before` in the place of one of `ancient`, uses it, and makes
/// one of `after` in its place. Looks at what crashes leave.
fn reformat(ancient: u64, before: u64, after: u64, is_clean: bool) -> CrashOutcomes {
    let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 7));
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    format(&device, &options(1, ancient), &clock()).expect("it fits");
    // Each volume gets several superblocks, in both logs if that many fit.
    for _ in 0..20 {
        open(Arc::clone(&device)).expect("a volume").shut_down().expect("shut down");
    }
    format(&device, &options(2, before), &clock()).expect("it fits");
    let mut lists = Vec::new();
    for _ in 0..20 {
        let disk = open(Arc::clone(&device)).expect("a volume");
        // Older checkpoints are overwritten.
        lists.push(fill(&disk, 2));
        if lists.len() > 3 {
            let mut aru = Aru::new(View::HEAD);
            aru.set_reclaims().delete_list(lists.remove(0));
            disk.commit(aru).expect("it is there");
        }
        disk.shut_down().expect("shut down");
    }
    if !is_clean {
        let disk = open(Arc::clone(&device)).expect("a volume");
        lists.push(fill(&disk, 2));
        disk.flush(dendro_disk::CommitSeq::LATEST).expect("the device works");
        drop(disk);
    }
    sim.start_recording();
    invalidate(&*device).expect("the device works");
    device.discard(0, DEVICE_BYTES).expect("the device works");
    let disk = create(&device, &options(3, after), OpenOptions::default(), &clock());
    let disk = disk.expect("it fits");
    let new = fill(&disk, 3);
    disk.shut_down().expect("shut down");
    drop(disk);
    let recording = sim.take_recording().expect("recorded");
    let mut rng = Rng::new(1);
    let mut found = CrashOutcomes::default();
    for event in 0..=recording.len() {
        for round in 0..8 {
            let style = CrashStyle::ALL[round % CrashStyle::ALL.len()];
            let image = recording.image_at(event, &mut rng, style);
            let context = format!("{before} to {after}, event {event}, {style:?}");
            let Ok(disk) = open(Arc::new(image)) else {
                found.nothing += 1;
                continue;
            };
            let uuid = disk.superblock().uuid;
            if uuid == Uuid::from_random([2; 16]) {
                lists.iter().for_each(|list| assert_filled(&disk, *list, 2, &context));
                found.old += 1;
            } else {
                assert_eq!(uuid, Uuid::from_random([3; 16]), "an ancient volume: {context}");
                assert_filled(&disk, new, 3, &context);
                found.new += 1;
            }
        }
    }
    assert!(open(device).is_ok_and(|disk| disk.superblock().uuid == Uuid::from_random([3; 16])));
    found
}

#[test]
fn a_crash_leaves_the_whole_old_volume_or_none_or_the_new_one() {
    let mut all = CrashOutcomes::default();
    for (ancient, before, after) in [
        (SMALL, SMALL, SMALL),
        (LARGE, SMALL, SMALL),
        (SMALL, LARGE, SMALL),
        (SMALL, SMALL, LARGE),
        (LARGE, SMALL, LARGE),
        (4 * SMALL, LARGE, 2 * SMALL),
    ] {
        for is_clean in [true, false] {
            let found = reformat(ancient, before, after, is_clean);
            all.old += found.old;
            all.nothing += found.nothing;
            all.new += found.new;
        }
    }
    assert!(all.old > 100 && all.nothing > 100 && all.new > 20, "{all:?}");
}

#[test]
fn a_volume_recreated_with_the_same_uuid_has_nothing_of_the_earlier_one() {
    let device: Arc<dyn Device> = Arc::new(dendro_device::MemoryDevice::new(256 << 20));
    let open = || {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        LogDisk::open(Arc::clone(&device), OpenOptions::default(), clock)
    };
    for round in 1..=3 {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        format(&device, &FormatOptions::default(), &clock).expect("the device is large enough");
        let disk = open().expect("it was formatted");
        let lists = |disk: &LogDisk| {
            disk.lists(View::HEAD, Lid(0), usize::MAX).expect("the map is sound").len()
        };
        assert_eq!(lists(&disk), 0, "round {round}");
        for unit in 0..100 / round {
            let list = disk.allocate_list().expect("the disk is writable");
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default()).write_pages(list, 0, vec![unit; 50_000]);
            disk.commit(aru).expect("there is room");
            disk.flush(CommitSeq::LATEST).expect("the device works");
        }
        // Nothing is found after a crash either, when recovery looks for the log behind its end.
        drop(disk);
        let disk = open().expect("nothing is lost");
        assert_eq!(lists(&disk), usize::from(100 / round), "round {round}");
        assert_eq!(disk.recovery_notes(), [""; 0]);
    }
}
