//! How often a rebuild reads the device, and what it keeps of that in memory.

use std::collections::BTreeMap;
use std::sync::Mutex;

use dendro_base::Rng;
use dendro_check::{RebuildOptions, RebuildReport, Volume, rebuild};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, View};
use dendro_format::Head;
use dendro_images::contents::{Contents, End, image_with_rests};
use dendro_logdisk::OpenOptions;

use crate::common::new_disk;
use crate::rebuild::{
    SEGMENT_LEN_BYTES, Whole, destroy, destroy_older_checkpoints, difference, nodes, open, volumes,
};

/// A device that calls `look` with the offset and the length of each read, which may fail it.
struct Watched<F> {
    below: MemoryDevice,
    look: F,
}

impl<F: Fn(u64, usize) -> dendro_device::Result<()> + Send + Sync> Device for Watched<F> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        (self.look)(offset, buf.len())?;
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.below.write_at(offset, bytes)
    }

    fn flush(&self) -> dendro_device::Result<()> {
        self.below.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.below.discard(offset, len_bytes)
    }
}

/// Many small units that change many lists in turn, each durable before the next one, and then a
/// checkpoint.
fn with_small_commits() -> Vec<u8> {
    let (disk, device) = new_disk(48 << 20, SEGMENT_LEN_BYTES as u64, OpenOptions::default());
    let mut lists = Vec::new();
    for _ in 0..24 {
        let list = disk.allocate_list().expect("it works");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        disk.commit(aru).expect("there is room");
        lists.push(list);
    }
    let mut rng = Rng::new(1);
    let mut value = vec![0; 900];
    for index in 0..30 {
        for list in &lists {
            rng.fill(&mut value);
            let mut aru = Aru::new(View::HEAD);
            aru.put_record(*list, index, &*value);
            disk.commit(aru).expect("there is room");
            disk.flush(CommitSeq::LATEST).expect("it works");
        }
    }
    disk.checkpoint().expect("it works");
    device.to_bytes()
}

/// Where the partial segments of the main log lie.
pub(crate) fn log_of(bytes: &[u8]) -> Vec<u64> {
    let device = MemoryDevice::from_bytes(bytes);
    let volume = Volume::open(&device).expect("it works");
    let layout = volume.layout();
    let partials = layout.log_segments().flat_map(|segment| volume.partials(segment));
    let log = partials.filter(|partial| partial.header.head == Head::Main).map(|it| it.header);
    log.map(|it| layout.segment_offset(it.segment) + u64::from(it.offset_bytes)).collect()
}

/// Rebuilds a volume of many small commits of which every second leaf is lost, in so much memory.
/// Returns how many partial segments the log has, and how often one was read singly.
fn reads_of_log(memory_bytes: u64) -> (usize, usize) {
    let whole = with_small_commits();
    let mut bytes = whole.clone();
    destroy_older_checkpoints(&mut bytes);
    let leaves = nodes(&whole).into_iter().filter(|(_, level)| *level == 0);
    leaves.step_by(2).for_each(|(leaf, _)| destroy(&mut bytes, &leaf));
    let counts: Mutex<BTreeMap<u64, usize>> = Mutex::default();
    let count = |offset, _| {
        *counts.lock().expect("it works").entry(offset).or_default() += 1;
        Ok(())
    };
    let counting = Watched { below: MemoryDevice::from_bytes(&bytes), look: count };
    let options = RebuildOptions { memory_bytes, ..RebuildOptions::default() };
    let report = rebuild(&counting, &options, &mut |_, _| ()).expect("it can be rebuilt");
    let incomplete = report.restored.iter().filter(|part| !part.is_complete).count();
    let gap_count = report.restored.len();
    assert!(incomplete == 0 && gap_count >= 8, "{incomplete} of {gap_count}");

    let of = |bytes: &[u8]| {
        let (disk, _) = open(bytes).expect("the volume opens");
        ModelVersions::read_from(&disk).expect("it can be read")
    };
    let (before, after) = (of(&whole), of(&counting.below.to_bytes()));
    let state = |of: &ModelVersions| of.state(View::HEAD).expect("it is there").clone();
    assert!(state(&after).lists(Lid(0)).count() == 24);
    assert_eq!(state(&before).diff(&state(&after)), None);

    // A segment's first partial segment lies where the segment is read as a whole too.
    let log = log_of(&whole);
    let is_inside = |at: &&u64| !at.is_multiple_of(SEGMENT_LEN_BYTES as u64);
    let counts = counts.lock().expect("it works");
    (log.len(), log.iter().filter(is_inside).filter_map(|at| counts.get(at)).sum())
}

#[test]
fn a_log_of_many_small_commits_is_not_read_again_after_the_sweep() {
    let (count, reads) = reads_of_log(u64::MAX);
    assert!(count > 700 && reads == 0, "{reads} reads of {count}");
}

#[test]
fn a_log_that_does_not_fit_in_memory_is_not_read_for_each_gap_again() {
    let (count, reads) = reads_of_log(1 << 20);
    // It is read once when the rebuild is planned, and once when the map is written.
    assert!((count..=2 * count).contains(&reads), "{reads} reads of {count}");
}

#[test]
fn what_the_sweep_could_not_read_is_read_again_when_it_is_needed() {
    let whole = with_small_commits();
    let mut bytes = whole.clone();
    destroy_older_checkpoints(&mut bytes);
    let leaves: Vec<_> = nodes(&whole).into_iter().filter(|(_, level)| *level == 0).collect();
    destroy(&mut bytes, &leaves[0].0);
    // The base needs the last leaf before the sweep. The sweep reads its segment as a whole, and
    // then page by page.
    let at = leaves[leaves.len() - 1].0.addr.bytes();
    let mut kept = Vec::new();
    for failure_count in 0..4 {
        let below = MemoryDevice::from_bytes(&bytes);
        let left = Mutex::new(failure_count);
        let fail_at_first = |offset, len| {
            let mut left = left.lock().expect("it works");
            if *left == 0 || !(offset..offset + len as u64).contains(&at) {
                return Ok(());
            }
            *left -= 1;
            Err(dendro_device::Error::Io {
                operation: "read",
                offset,
                len_bytes: len as u64,
                source: std::io::Error::other("it failed"),
            })
        };
        let device = Watched { below, look: fail_at_first };
        let options = RebuildOptions::default();
        let report = rebuild(&device, &options, &mut |_, _| ()).expect("it can be rebuilt");
        assert_eq!(*left.lock().expect("it works"), 0, "{failure_count} failures");
        assert!(report.restored.iter().all(|part| part.is_complete), "{report:?}");
        let (disk, _) = open(&device.below.to_bytes()).expect("the volume opens");
        kept.push(ModelVersions::read_from(&disk).expect("it can be read"));
    }
    assert!(kept.iter().all(|of| of.diff(&kept[0]).is_none()));
}

/// Rebuilds an image in so much memory: what is said of it, and what the device is then.
fn rebuilt_in(memory_bytes: u64, bytes: &[u8]) -> dendro_check::Result<(RebuildReport, Vec<u8>)> {
    let device = MemoryDevice::from_bytes(bytes);
    let options = RebuildOptions { memory_bytes, ..RebuildOptions::default() };
    let report = rebuild(&device, &options, &mut |_, _| ())?;
    Ok((report, device.to_bytes()))
}

/// The same in little more than the least memory in which it can be rebuilt, which comes first.
fn rebuilt_in_little(bytes: &[u8]) -> (u64, (RebuildReport, Vec<u8>)) {
    let mut memory_bytes = 1 << 10;
    loop {
        match rebuilt_in(memory_bytes, bytes) {
            Err(dendro_check::Error::Memory { .. }) => memory_bytes *= 2,
            done => return (memory_bytes, done.expect("it can be rebuilt")),
        }
    }
}

#[test]
fn a_rebuild_in_little_memory_comes_to_the_same() {
    let mut least = Vec::new();
    // There, moves are not known that two parts of a map in little memory have in common.
    let with_rests = image_with_rests(Contents::Frames, End::Clean).expect("it works");
    let volumes = volumes().iter().map(|Whole { name, bytes, .. }| (&**name, bytes));
    for (name, whole) in volumes.chain([("frames with rests", &with_rests)]) {
        let mut bytes = whole.clone();
        let leaves = nodes(whole).into_iter().filter(|(_, level)| *level == 0);
        leaves.step_by(2).for_each(|(leaf, _)| destroy(&mut bytes, &leaf));
        let much = rebuilt_in(u64::MAX, &bytes).expect("it can be rebuilt");
        let (memory_bytes, little) = rebuilt_in_little(&bytes);
        let said = |report| format!("{report:?}");
        assert_eq!(said(little.0), said(much.0), "{name} with {memory_bytes} bytes");
        let contents = |bytes: &[u8]| {
            let (disk, _) = open(bytes).expect("the volume opens");
            ModelVersions::read_from(&disk).expect("it can be read")
        };
        let (little, much) = (contents(&little.1), contents(&much.1));
        assert_eq!(difference(&little, &much), None, "{name} with {memory_bytes} bytes");
        least.push(memory_bytes);
    }
    // Nothing that was read fits in an eighth of that.
    assert!(least.iter().all(|bytes| *bytes / 8 < SEGMENT_LEN_BYTES as u64), "{least:?}");
}

#[test]
fn what_is_left_of_a_volume_and_does_not_fit_in_memory_is_refused_and_stays_as_it_was() {
    let whole = with_small_commits();
    let mut bytes = whole.clone();
    destroy_older_checkpoints(&mut bytes);
    let device = MemoryDevice::from_bytes(&bytes);
    let options = RebuildOptions { memory_bytes: 128 << 10, ..RebuildOptions::default() };
    let refused = rebuild(&device, &options, &mut |_, _| ()).expect_err("it is too much");
    assert!(matches!(refused, dendro_check::Error::Memory { .. }), "{refused}");
    assert!(device.to_bytes() == bytes);
}
