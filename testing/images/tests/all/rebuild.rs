//! Volumes of which superblocks, checkpoints or parts of the map are destroyed are rebuilt: what
//! the report calls complete equals what was there, and the rest is sound and can be read.

use std::sync::{Arc, Mutex, OnceLock};

use dendro_base::{Clock, ManualClock, Rng, Timestamp};
use dendro_check::{
    Error, Extent, Finding, FindingKind, Options, Rebuild, RebuildOptions, RebuildReport, Restored,
    Severity, Volume, find_superblocks, rebuild, verify,
};
use dendro_device::{Device, MemoryDevice, OverlayDevice};
use dendro_disk::model::{ModelList, ModelVersions};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, Op, Versions, View};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Entries, Head, NodePtr, Record, Superblock};
use dendro_images::contents::{Contents, End, image};
use dendro_images::golden;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_policy::{Classes, Scatter};

use crate::common::new_disk;

pub(crate) const SEGMENT_LEN_BYTES: usize = 128 << 10;
const ALL: [(Contents, End); 18] = [
    (Contents::Plain, End::Clean),
    (Contents::Plain, End::Crashed),
    (Contents::Versions, End::Clean),
    (Contents::Versions, End::Crashed),
    (Contents::History, End::Clean),
    (Contents::History, End::Crashed),
    (Contents::Reuse, End::Clean),
    (Contents::Reuse, End::Crashed),
    (Contents::Clients, End::Clean),
    (Contents::Clients, End::Crashed),
    (Contents::Quotas, End::Clean),
    (Contents::Quotas, End::Crashed),
    (Contents::Counted, End::Clean),
    (Contents::Counted, End::Crashed),
    (Contents::Frames, End::Clean),
    (Contents::Frames, End::Crashed),
    (Contents::Block, End::Clean),
    (Contents::Block, End::Crashed),
];

pub(crate) fn open(bytes: &[u8]) -> dendro_disk::Result<(LogDisk, Arc<MemoryDevice>)> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let disk = LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock)?;
    Ok((disk, device))
}

/// All that a volume holds, in all versions.
pub(crate) fn contents(bytes: &[u8]) -> ModelVersions {
    let (disk, _) = open(bytes).expect("the volume opens");
    ModelVersions::read_from(&disk).expect("it can be read")
}

pub(crate) fn rebuilt_on(device: &dyn Device) -> dendro_check::Result<RebuildReport> {
    let options = RebuildOptions { now: Timestamp(7), ..RebuildOptions::default() };
    rebuild(device, &options, &mut |_, _| ())
}

/// Rebuilds an image in place.
pub(crate) fn rebuilt(bytes: &mut Vec<u8>) -> RebuildReport {
    let device = MemoryDevice::from_bytes(bytes);
    let report = rebuilt_on(&device).expect("it can be rebuilt");
    *bytes = device.to_bytes();
    report
}

/// A volume and all that it holds.
pub(crate) struct Whole {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) before: ModelVersions,
}

/// Small volumes of all kinds, and some that were in use for a while.
pub(crate) fn volumes() -> &'static [Whole] {
    static VOLUMES: OnceLock<Vec<Whole>> = OnceLock::new();
    VOLUMES.get_or_init(|| {
        let small = ALL
            .map(|(what, end)| (format!("{what:?}, {end:?}"), image(what, end).expect("it works")));
        let busy = [(1, false), (2, true), (3, true)]
            .map(|(seed, has_versions)| (format!("busy {seed}"), busy(seed, has_versions)));
        let whole = |(name, bytes): (String, Vec<u8>)| {
            let before = contents(&bytes);
            Whole { name, bytes, before }
        };
        small.into_iter().chain(busy).map(whole).collect()
    })
}

/// What is on the device after a rebuild is sound, before and after the log was rolled forward, and
/// everything in the background was done.
pub(crate) fn assert_sound(bytes: &[u8], what: &str) {
    let report = verify(&MemoryDevice::from_bytes(bytes), &Options { data: false });
    let is_wrong = |of: &Finding| {
        // The log may have been damaged too. It is not a part of the map.
        of.severity() != Severity::Note && of.kind != FindingKind::LogLost
    };
    assert!(!report.findings.iter().any(is_wrong), "{what}: {report}");
    let (disk, device) = open(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    while disk.background_step().expect("the device works") {}
    disk.shut_down().expect("the device works");
    let report = verify(&*device, &Options { data: false });
    assert!(report.is_sound(), "{what}, rolled forward: {report}");
}

/// Where two volumes differ in what their versions hold. When a volume was made is not known any
/// more without superblocks.
pub(crate) fn difference(one: &ModelVersions, other: &ModelVersions) -> Option<String> {
    let views = |of: &ModelVersions| of.table().views().collect::<Vec<_>>();
    if views(one) != views(other) {
        return Some(format!("{:?} left, {:?} right", views(one), views(other)));
    }
    views(one).into_iter().find_map(|view| {
        let of = |volume: &ModelVersions| volume.state(view).expect("it has the view").clone();
        Some(format!("{view}: {}", of(one).diff(&of(other))?))
    })
}

/// What the report does not call incomplete equals what was there.
fn assert_rest_equal(before: &ModelVersions, disk: &LogDisk, report: &RebuildReport, what: &str) {
    let is_touched = |list: Lid| {
        let list = list.0;
        let of_part = |part: &Restored| {
            // What versions there are is a part of the map too.
            let covers = |list| (part.from.list..=part.to.list).contains(&list);
            !part.is_complete && (covers(list) || covers(VERSIONS_LIST))
        };
        report.restored.iter().any(of_part) || report.lost_pages.iter().any(|of| of.list == list)
    };
    for view in before.table().views() {
        let state = before.state(view).expect("it has the view");
        for (list, content) in state.lists(Lid(0)).filter(|(list, _)| !is_touched(*list)) {
            let found = ModelList::read_from(disk, view, list);
            let found = found.unwrap_or_else(|error| panic!("{what}, {view}: {error}"));
            assert_eq!(content, &found, "{what}, {view}, list {list}: {report:?}");
        }
    }
}

/// Rebuilds a damaged copy of an image, and compares it with what was there.
fn assert_restored(whole: &[u8], before: &ModelVersions, damaged: &[u8], what: &str) -> Extent {
    let mut bytes = damaged.to_vec();
    let report = rebuilt(&mut bytes);
    assert_sound(&bytes, what);
    let (disk, _) = open(&bytes).expect("it was opened just now");
    if report.is_complete() {
        let found = ModelVersions::read_from(&disk).expect("nothing is lost");
        let difference = difference(before, &found);
        assert!(difference.is_none(), "{what}: {difference:?}\n{report:?}");
    } else if !report.may_lack_nodes && report.unknown_move_count == 0 {
        assert_rest_equal(before, &disk, &report, what);
    }
    assert_eq!(whole.len(), bytes.len());
    report.extent
}

pub(crate) fn superblock(bytes: &[u8]) -> Superblock {
    find_superblocks(&MemoryDevice::from_bytes(bytes))
        .expect("it works")
        .current()
        .superblock
        .clone()
}

/// The nodes of the map of the newest checkpoint, with their levels.
pub(crate) fn nodes(bytes: &[u8]) -> Vec<(NodePtr, u8)> {
    let device = MemoryDevice::from_bytes(bytes);
    let volume = Volume::open(&device).expect("it works");
    let checkpoint = volume.checkpoint().expect("it works");
    volume
        .nodes(&checkpoint)
        .map(|node| node.expect("it works"))
        .map(|it| (it.place, it.info.level))
        .collect()
}

pub(crate) fn destroy(bytes: &mut [u8], node: &NodePtr) {
    let at = node.addr.bytes() as usize;
    bytes[at..at + 64].fill(0xa5);
}

fn zero_segment(bytes: &mut [u8], segment: usize) {
    bytes[segment * SEGMENT_LEN_BYTES..(segment + 1) * SEGMENT_LEN_BYTES].fill(0);
}

#[test]
fn a_volume_that_is_whole_is_left_alone() {
    for Whole { name, bytes: whole, .. } in volumes() {
        let mut bytes = whole.clone();
        let report = rebuilt(&mut bytes);
        assert_eq!(report.extent, Extent::Nothing, "{name}: {report:?}");
        assert!(bytes == *whole, "{name}: nothing is written");
    }
}

#[test]
fn both_superblock_areas_may_be_gone() {
    for Whole { name, bytes: whole, before } in volumes() {
        let mut bytes = whole.clone();
        zero_segment(&mut bytes, 0);
        zero_segment(&mut bytes, 1);
        let report = rebuilt(&mut bytes);
        assert_eq!(report.extent, Extent::Superblock, "{name}: {report:?}");
        assert!(report.is_complete() && report.superblocks_lost);
        let (made, was) = (superblock(&bytes), superblock(whole));
        assert_eq!((made.uuid, made.hash_key, made.layout), (was.uuid, was.hash_key, was.layout));
        assert_eq!(difference(before, &contents(&bytes)), None, "{name}");
        assert_sound(&bytes, name);
    }
}

#[test]
fn the_newest_checkpoint_may_be_gone() {
    for Whole { name, bytes: whole, before } in volumes() {
        let mut bytes = whole.clone();
        let at = superblock(&bytes).checkpoint_addr.bytes() as usize;
        bytes[at..at + 192].fill(0xff);
        assert_restored(whole, before, &bytes, name);
    }
}

/// Destroys all checkpoints but the newest.
pub(crate) fn destroy_older_checkpoints(bytes: &mut [u8]) {
    let newest = superblock(bytes).checkpoint_addr;
    let device = MemoryDevice::from_bytes(bytes);
    let volume = Volume::open(&device).expect("it works");
    for segment in volume.layout().log_segments() {
        for partial in volume.partials(segment) {
            for record in partial.records().flatten() {
                if let Record::Checkpoint { addr, .. } = record.record
                    && addr != newest
                {
                    let at = addr.bytes() as usize;
                    bytes[at..at + 64].fill(0xa5);
                }
            }
        }
    }
}

/// Destroys each node of the map alone. Returns how many could be restored completely, and how many
/// there are.
fn destroy_each_node(name: &str, whole: &[u8], before: &ModelVersions) -> (u32, u32) {
    let (mut complete_count, mut node_count) = (0, 0);
    for (node, level) in nodes(whole) {
        let mut bytes = whole.to_vec();
        destroy(&mut bytes, &node);
        let what = format!("{name}, level {level} at {}", node.addr);
        let extent = assert_restored(whole, before, &bytes, &what);
        assert_ne!(extent, Extent::Nothing, "{what}");
        node_count += 1;
        complete_count += u32::from(rebuilt(&mut bytes).is_complete());
    }
    (complete_count, node_count)
}

#[test]
fn any_node_may_be_gone() {
    let of_volume = |Whole { name, bytes, before }: &Whole| destroy_each_node(name, bytes, before);
    let counts = volumes().iter().map(of_volume);
    let (complete, all) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(all > 60 && complete * 10 > all * 9, "only {complete} of {all} were restored");
}

#[test]
fn any_node_may_be_gone_with_all_older_checkpoints() {
    let of_volume = |Whole { name, bytes, before }: &Whole| {
        let mut bytes = bytes.clone();
        destroy_older_checkpoints(&mut bytes);
        destroy_each_node(name, &bytes, before)
    };
    let counts = volumes().iter().map(of_volume);
    let (complete, all) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(all > 60 && complete * 2 > all, "only {complete} of {all} were restored");
}

#[test]
fn all_inner_nodes_may_be_gone() {
    for Whole { name, bytes: whole, before } in volumes() {
        let mut bytes = whole.clone();
        let device = MemoryDevice::from_bytes(whole);
        let volume = Volume::open(&device).expect("it works");
        for (node, _) in nodes(whole).into_iter().filter(|(_, level)| *level > 0) {
            destroy(&mut bytes, &node);
        }
        let is_inner = |entries: &Entries| matches!(entries, Entries::Inner(_));
        assert!(
            volume
                .nodes(&volume.checkpoint().expect("it works"))
                .flatten()
                .any(|it| is_inner(&it.entries))
        );
        assert_restored(whole, before, &bytes, name);
    }
}

#[test]
fn any_segment_may_be_gone() {
    for Whole { name, bytes: whole, before } in volumes() {
        for segment in 2..whole.len() / SEGMENT_LEN_BYTES {
            let mut bytes = whole.clone();
            zero_segment(&mut bytes, segment);
            if bytes == *whole {
                continue;
            }
            let device = MemoryDevice::from_bytes(&bytes);
            let report = rebuilt_on(&device).expect("it can be rebuilt");
            let what = format!("{name}, segment {segment}");
            // A part of the log may be gone. Then mounting refuses, and says what is lost.
            let Ok((disk, _)) = open(&device.to_bytes()) else { continue };
            drop(disk);
            assert_sound(&device.to_bytes(), &what);
            if report.extent == Extent::Parts && report.is_complete() {
                // Blocks may lie in the segment too.
                let (disk, _) = open(&device.to_bytes()).expect("it works");
                if let Ok(found) = ModelVersions::read_from(&disk) {
                    assert_eq!(difference(before, &found), None, "{what}: {report:?}");
                }
            }
        }
    }
}

/// A volume that is filled with records until nothing more fits, so that most of it is map.
fn full_of_records() -> Vec<u8> {
    let len_bytes = 96 * SEGMENT_LEN_BYTES as u64;
    let (disk, device) = new_disk(len_bytes, 128 << 10, OpenOptions::default());
    let list = disk.allocate_list().expect("it works");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    let mut rng = Rng::new(1);
    let mut value = vec![0; 900];
    for index in 0.. {
        rng.fill(&mut value);
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, index, &*value);
        match disk.commit(aru) {
            Ok(_) => {}
            Err(dendro_disk::Error::NoSpace { .. }) => break,
            Err(error) => panic!("record {index}: {error}"),
        }
    }
    disk.shut_down().expect("it works");
    device.to_bytes()
}

/// Destroys all checkpoints.
fn without_checkpoints(whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    destroy_older_checkpoints(&mut bytes);
    let at = superblock(whole).checkpoint_addr.bytes() as usize;
    bytes[at..at + 64].fill(0xa5);
    bytes
}

#[test]
fn a_volume_without_room_for_a_new_map_is_left_alone_and_a_longer_copy_is_rebuilt() {
    let whole = full_of_records();
    let before = contents(&whole);
    let bytes = without_checkpoints(&whole);
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let plan = Rebuild::plan(&*device, u64::MAX, &mut |_, _| ()).expect("it can be planned");
    assert_eq!(plan.report().extent, Extent::Map);
    let mut options =
        RebuildOptions { may_grow: true, now: Timestamp(7), ..RebuildOptions::default() };
    let refused = plan.write(&*device, &options);
    assert!(matches!(refused, Err(Error::NoFreeSegment)), "{refused:?}");
    for extra_len_bytes in [100, 400].map(|count| count * SEGMENT_LEN_BYTES as u64) {
        // It is planned again: what was refused has not destroyed anything.
        let len_bytes = bytes.len() as u64 + extra_len_bytes;
        let longer = OverlayDevice::with_len(Arc::clone(&device), len_bytes);
        let again = Rebuild::plan(&*device, u64::MAX, &mut |_, _| ()).expect("it can be planned");
        let told = |of: &RebuildReport| {
            let parts = of.restored.iter().filter(|part| !part.is_complete).count();
            (of.extent, parts, of.may_lack_nodes, of.restored_entry_count, of.lost_pages.len())
        };
        assert_eq!(told(again.report()), told(plan.report()));
        options.may_grow = false;
        assert!(matches!(plan.write(&longer, &options), Err(Error::NoFreeSegment)));
        options.may_grow = true;
        let report = plan.write(&longer, &options).expect("it may grow");
        let mut bytes = vec![0; len_bytes as usize];
        longer.read_at(0, &mut bytes).expect("it works");
        let added = superblock(&bytes).layout.len_bytes() - superblock(&whole).layout.len_bytes();
        assert!(report.grown_bytes == added && (1..=extra_len_bytes).contains(&added));
        assert_eq!(difference(&before, &contents(&bytes)), None);
        assert_sound(&bytes, "grown");
    }
}

#[test]
fn the_start_of_the_device_may_be_gone() {
    for Whole { name, bytes: whole, .. } in volumes() {
        for count in [2, 3, 5, 9] {
            let mut bytes = whole.clone();
            (0..count).for_each(|segment| zero_segment(&mut bytes, segment));
            if bytes[count * SEGMENT_LEN_BYTES..].iter().all(|byte| *byte == 0) {
                continue;
            }
            let report = rebuilt(&mut bytes);
            assert_ne!(report.extent, Extent::Nothing);
            if open(&bytes).is_ok() {
                assert_sound(&bytes, &format!("{name}, {count} segments: {report:?}"));
            }
        }
    }
}

#[test]
fn the_end_of_the_device_may_be_gone() {
    let (mut whole_count, mut partly_count) = (0, 0);
    for Whole { name, bytes: whole, before } in volumes() {
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap_or(0) / SEGMENT_LEN_BYTES;
        let backups = whole.len() / SEGMENT_LEN_BYTES - 1;
        for count in (16..end.min(backups)).chain([backups]) {
            let what = format!("{name}, {count} segments are left");
            let cut = &whole[..count * SEGMENT_LEN_BYTES + 4096 * (count % 2)];
            let device = MemoryDevice::from_bytes(cut);
            let report = match rebuilt_on(&device) {
                Err(Error::NoFreeSegment) => continue,
                report => report.unwrap_or_else(|error| panic!("{what}: {error}")),
            };
            assert_eq!(report.extent == Extent::Map, report.checkpoint.is_none(), "{what}");
            let bytes = device.to_bytes();
            assert_eq!(rebuilt(&mut bytes.clone()).extent, Extent::Nothing, "{what}");
            // A part of the log may be lost. Then mounting refuses, and says what is lost.
            let disk = match open(&bytes) {
                Ok((disk, _)) => disk,
                Err(dendro_disk::Error::Lost(_)) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            assert_sound(&bytes, &what);
            partly_count += u32::from(!report.lost_pages.is_empty());
            if report.is_complete() {
                let found = ModelVersions::read_from(&disk).expect("nothing is lost");
                assert_eq!(difference(before, &found), None, "{what}: {report:?}");
                whole_count += 1;
            } else if !report.may_lack_nodes && !report.may_lack_log {
                assert_rest_equal(before, &disk, &report, &what);
            }
        }
    }
    assert!(whole_count > 10 && partly_count > 0, "{whole_count}, {partly_count}");
}

/// A list whose pages were written before a checkpoint, and again by three units before a second
/// one, apart from the main log. Returns its pages too.
fn with_pages_apart() -> (Vec<u8>, Vec<u8>) {
    const PAGE_LEN_BYTES: usize = 4096;
    let policy = Arc::new(Scatter::new(Classes { users: 2, survivors: 1 }, 4));
    let options = OpenOptions { stream_bytes: 0, policy, ..OpenOptions::default() };
    let (disk, device) = new_disk(8 << 20, 128 << 10, options);
    let list = disk.allocate_list().expect("it works");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    let mut rng = Rng::new(1);
    let mut pages = vec![0; 4 * PAGE_LEN_BYTES];
    let mut write = |range: std::ops::Range<usize>| {
        rng.fill(&mut pages[range.start * PAGE_LEN_BYTES..range.end * PAGE_LEN_BYTES]);
        let mut aru = Aru::new(View::HEAD);
        let data = pages[range.start * PAGE_LEN_BYTES..range.end * PAGE_LEN_BYTES].to_vec();
        aru.push(Op::WritePages { list, first_page: range.start as u64, data: data.into() });
        disk.commit(aru).expect("there is room");
        disk.flush(CommitSeq::LATEST).expect("it works");
    };
    write(0..4);
    disk.checkpoint().expect("it works");
    write(0..2);
    write(1..3);
    write(0..1);
    disk.checkpoint().expect("it works");
    (device.to_bytes(), pages)
}

/// Where the partial segments of the main log lie that write pages.
fn log_of_pages(bytes: &[u8]) -> Vec<usize> {
    let device = MemoryDevice::from_bytes(bytes);
    let volume = Volume::open(&device).expect("it works");
    let segments = volume.layout().log_segments();
    let partials = segments.flat_map(|segment| volume.partials(segment));
    let writes =
        |of: &Record<'_>| matches!(of, Record::WriteRun { .. } | Record::WriteBlock { .. });
    let mut found: Vec<_> = partials
        .filter(|of| of.header.head == Head::Main)
        .filter(|of| of.records().flatten().any(|it| writes(&it.record)))
        .map(|of| (of.header.seq, of.header.segment, of.header.offset_bytes))
        .collect();
    found.sort_unstable();
    let at =
        |(_, segment, offset)| volume.layout().segment_offset(segment) as usize + offset as usize;
    found.into_iter().map(at).collect()
}

#[test]
fn pages_of_which_map_and_log_are_lost_are_as_the_payload_streams_say() {
    let (whole, pages) = with_pages_apart();
    let log = log_of_pages(&whole);
    assert_eq!(log.len(), 4, "each unit has a partial segment of its own");
    for lost in 1..1 << 3 {
        let mut bytes = whole.clone();
        nodes(&whole).iter().for_each(|(node, _)| destroy(&mut bytes, node));
        for (_, at) in log[1..].iter().enumerate().filter(|(at, _)| lost >> at & 1 == 1) {
            bytes[*at..*at + 64].fill(0xa5);
        }
        let report = rebuilt(&mut bytes);
        assert!(!report.is_complete(), "{lost:#b}: {report:?}");
        assert_sound(&bytes, &format!("{lost:#b}"));
        let (disk, _) = open(&bytes).expect("it was rebuilt");
        let list = disk.lists(View::HEAD, Lid(1), 1).expect("it can be read")[0];
        let mut found = vec![0; pages.len()];
        disk.read_pages(View::HEAD, list, 0, &mut found).expect("they are there");
        assert!(found == pages, "{lost:#b}: {report:?}");
    }
}

#[test]
fn a_page_whose_newest_block_is_damaged_is_not_read_as_an_older_one() {
    let (whole, pages) = with_pages_apart();
    let mut bytes = whole.clone();
    nodes(&whole).iter().for_each(|(node, _)| destroy(&mut bytes, node));
    log_of_pages(&whole)[1..].iter().for_each(|at| bytes[*at..*at + 64].fill(0xa5));
    let block = whole.windows(4096).position(|bytes| *bytes == pages[..4096]).expect("it is there");
    bytes[block + 7] ^= 1;
    rebuilt(&mut bytes);
    let (disk, _) = open(&bytes).expect("it was rebuilt");
    let list = disk.lists(View::HEAD, Lid(1), 1).expect("it can be read")[0];
    let mut found = vec![0; 4096];
    assert!(disk.read_pages(View::HEAD, list, 0, &mut found).is_err());
    for page in 1..4 {
        disk.read_pages(View::HEAD, list, page, &mut found).expect("it is there");
        assert!(found == pages[page as usize * 4096..][..4096], "page {page}");
    }
}

/// A device that keeps the writes that were made to it.
struct Recording {
    below: MemoryDevice,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Device for Recording {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.writes.lock().expect("it works").push((offset, bytes.to_vec()));
        self.below.write_at(offset, bytes)
    }

    fn flush(&self) -> dendro_device::Result<()> {
        self.below.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.below.discard(offset, len_bytes)
    }
}

fn random_op(list: Lid, rng: &mut Rng) -> Op<'static> {
    let mut bytes = vec![0; 1 + rng.below(20_000) as usize];
    rng.fill(&mut bytes);
    let (index, first_page) = (rng.below(30), rng.below(60));
    match rng.below(6) {
        0 | 1 => {
            bytes.truncate(1 + index as usize * 10);
            Op::PutRecord { list, index, value: bytes.into() }
        }
        2 => Op::DeleteRecord { list, index },
        3 => Op::PunchPages { list, first_page, count: 1 + rng.below(40) },
        4 => Op::ZeroPages { list, first_page, count: 1 + rng.below(4) },
        _ => Op::WritePages { list, first_page, data: bytes.into() },
    }
}

/// A volume that was in use for a while: lists came and went, checkpoints were taken, segments were
/// cleaned, and its log was left as a crash leaves it.
fn busy(seed: u64, has_versions: bool) -> Vec<u8> {
    busy_rounds(seed, has_versions).pop().expect("it was in use")
}

/// The same after each of five rounds. After the second and the fourth it was shut down.
pub(crate) fn busy_rounds(seed: u64, has_versions: bool) -> Vec<Vec<u8>> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 128 << 10, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("there is room");
    let mut rng = Rng::new(seed);
    let mut lists: Vec<Lid> = Vec::new();
    let mut rounds = Vec::new();
    for round in 0..5 {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let disk = LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock)
            .expect("it works");
        for unit in 0..300 {
            let mut aru = Aru::new(View::HEAD);
            if lists.len() < 20 || rng.chance(20) {
                let list = disk.allocate_list().expect("it works");
                aru.create_list(list, ListHints::default());
                aru.put_record(list, 0, vec![round as u8; 100]);
                lists.push(list);
            } else if rng.chance(5) {
                let list = lists.swap_remove(rng.below(lists.len() as u64) as usize);
                aru.delete_list(list);
            } else {
                let list = lists[rng.below(lists.len() as u64) as usize];
                aru.push(random_op(list, &mut rng));
            }
            disk.commit(aru).expect("it works");
            while disk.background_step().expect("it works") {}
            if unit % 50 == 49 {
                disk.checkpoint().expect("it works");
            }
        }
        if has_versions {
            disk.snapshot(0, Some(&format!("round {round}"))).expect("it works");
            if round == 3 {
                let oldest = disk.versions().snapshots().next().expect("it works").view();
                disk.delete(oldest).expect("it works");
            }
        }
        match round % 2 {
            0 => disk.flush(CommitSeq::LATEST).expect("it works"),
            _ => disk.shut_down().expect("it works"),
        }
        rounds.push(device.to_bytes());
    }
    rounds
}

/// All that damages at once, but for segments of the main log.
fn damaged_in_many_ways(whole: &[u8], with_checkpoint: bool, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for (node, _) in nodes(whole) {
        if rng.chance(30) {
            destroy(&mut bytes, &node);
        }
    }
    if !with_checkpoint {
        let at = superblock(whole).checkpoint_addr.bytes() as usize;
        bytes[at..at + 192].fill(0xff);
    }
    if rng.chance(50) {
        zero_segment(&mut bytes, 0);
        zero_segment(&mut bytes, 1);
    }
    bytes
}

#[test]
fn a_rebuild_that_is_interrupted_is_done_again_with_the_same_result() {
    for (number, Whole { name, bytes: whole, .. }) in volumes().iter().enumerate() {
        let mut rng = Rng::new(number as u64);
        let damaged = damaged_in_many_ways(whole, number % 3 != 0, &mut rng);
        let device =
            Recording { below: MemoryDevice::from_bytes(&damaged), writes: Mutex::default() };
        rebuilt_on(&device).expect("it can be rebuilt");
        let expected = contents_if_any(&device.below.to_bytes());
        let writes = device.writes.into_inner().expect("it works");
        for cut in 0..=writes.len() {
            // Of the writes before the power cut each sector may be there or not.
            let mut torn = damaged.clone();
            for (at, (offset, bytes)) in writes[..cut].iter().enumerate() {
                for (sector, bytes) in bytes.chunks(512).enumerate() {
                    let start = *offset as usize + sector * 512;
                    // All before the last flush is there.
                    if cut == writes.len() || at + 1 == cut && rng.chance(50) || rng.chance(80) {
                        torn[start..start + 512].copy_from_slice(bytes);
                    }
                }
            }
            rebuilt(&mut torn);
            let what = format!("{name}, cut after {cut} writes");
            let found = contents_if_any(&torn);
            assert!(found.is_some() == expected.is_some(), "{what}");
            if let Some((expected, found)) = expected.as_ref().zip(found) {
                assert_eq!(difference(expected, &found), None, "{what}");
            }
        }
    }
}

pub(crate) fn contents_if_any(bytes: &[u8]) -> Option<ModelVersions> {
    let (disk, _) = open(bytes).ok()?;
    ModelVersions::read_from(&disk).ok()
}

#[test]
fn volumes_damaged_at_random_are_rebuilt_and_sound() {
    // Kept images hold what later versions no longer leave behind.
    let kept = golden::all().expect("the kept images can be read").into_iter();
    let kept: Vec<_> = kept.filter(|golden| golden.name.contains("reuse")).collect();
    let volumes = volumes().iter().map(|whole| &whole.bytes);
    let volumes: Vec<_> = volumes.chain(kept.iter().map(|golden| &golden.image)).collect();
    let mut lost_page_count = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let whole = volumes[rng.below(volumes.len() as u64) as usize];
        let has_checkpoint = rng.chance(70);
        let mut bytes = damaged_in_many_ways(whole, has_checkpoint, &mut rng);
        for _ in 0..rng.below(4) {
            let at = 2 * SEGMENT_LEN_BYTES as u64
                + rng.below((bytes.len() - 3 * SEGMENT_LEN_BYTES) as u64);
            let len = rng.below(20_000) as usize;
            rng.fill(&mut bytes[at as usize..at as usize + len]);
        }
        let device = MemoryDevice::from_bytes(&bytes);
        match rebuilt_on(&device) {
            Ok(report) => lost_page_count += report.lost_pages.len(),
            Err(dendro_check::Error::NoFreeSegment) => continue,
            Err(error) => panic!("seed {seed}: {error}"),
        }
        if open(&device.to_bytes()).is_ok() {
            assert_sound(&device.to_bytes(), &format!("seed {seed}"));
        }
    }
    assert!(lost_page_count > 0, "no two entries ever named the same block");
}
