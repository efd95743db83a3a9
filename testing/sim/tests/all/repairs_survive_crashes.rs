//! Repairs of files under simulated power cuts: after each one, another repair ends well.

use std::collections::{BTreeMap, BTreeSet};

use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_disk::model::ModelState;
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, Versions, View};
use dendro_fs::format::{HEAD_INDEX, ORPHAN_LIST, VOLUME_LIST};
use dendro_fs::testing::StepClock;
use dendro_fs::{
    Caller, FileKind, FileSystem, FormatOptions, Ino, Options, RepairOptions, repair, verify,
};
use dendro_logdisk::LogDisk;
use dendro_sim::disk::Engine;
use dendro_sim::log::LogEngine;

const DEVICE_LEN_BYTES: u64 = 16 << 20;
const DIRECTORIES: u64 = 6;
const FILES: u64 = 40;
/// The first list of a file.
const FIRST_FILE: Lid = Lid(4);

const OPTIONS: RepairOptions = RepairOptions {
    safe_only: false,
    data: true,
    memory_bytes: 1 << 20,
    now: Timestamp(1_800_000_000_000_000_000),
    hash_key: [9; 16],
};

fn as_device(device: &Arc<SimDevice>) -> Arc<dyn Device> {
    Arc::clone(device) as Arc<dyn Device>
}

fn mount(disk: LogDisk) -> FileSystem {
    let clock = Arc::new(StepClock::default());
    FileSystem::mount(Arc::new(disk), Options::default(), clock).unwrap()
}

/// A volume with directories in directories, and files in them.
fn fill(engine: &LogEngine, device: &Arc<SimDevice>, rng: &mut Rng) {
    engine.format(as_device(device)).unwrap();
    let disk = engine.open(as_device(device)).unwrap();
    let options =
        FormatOptions { uid: 0, gid: 0, mode: 0o755, label: "sim".into(), hash_key: [7; 16] };
    FileSystem::create_on(&disk, &options, &StepClock::default()).unwrap();
    let fs = mount(disk);
    let caller = Caller::default();
    let mut directories = vec![Ino::ROOT];
    for number in 0..DIRECTORIES {
        let parent = directories[rng.below(directories.len() as u64) as usize];
        let name = format!("d{number}");
        directories.push(fs.mkdir(&caller, parent, name.as_bytes(), 0o755).unwrap().ino);
    }
    for number in 0..FILES {
        let parent = directories[rng.below(directories.len() as u64) as usize];
        let name = format!("f{number}");
        let ino = fs.mknod(&caller, parent, name.as_bytes(), 0o100_644, 0).unwrap().ino;
        let data = vec![number as u8 + 1; rng.below(20_000) as usize];
        fs.write(ino, 0, &data, false).unwrap();
    }
    fs.shut_down().unwrap();
}

/// Deletes and changes records at random, but for the volume's description.
fn harm(disk: &LogDisk, rng: &mut Rng) {
    let mut records = Vec::new();
    for list in disk.lists(View::HEAD, Lid(0), 1000).unwrap() {
        if list != VOLUME_LIST && list != ORPHAN_LIST {
            for (index, record) in disk.records(View::HEAD, list, 0, 1000).unwrap() {
                records.push((list, index, record.to_vec()));
            }
        }
    }
    let mut aru = Aru::new(View::HEAD);
    for _ in 0..8 {
        let (list, index, mut value) = records[rng.below(records.len() as u64) as usize].clone();
        if rng.chance(50) {
            aru.delete_record(list, index);
        } else {
            let at = rng.below(value.len() as u64) as usize;
            value[at] ^= 1 << rng.below(8);
            aru.put_record(list, index, value);
        }
    }
    aru.delete_record(Lid(Ino::ROOT.0), HEAD_INDEX);
    disk.commit(aru).unwrap();
}

/// What pages and inline data each file has that `harm` left alone.
fn unharmed(before: &ModelState, after: &ModelState) -> BTreeMap<Lid, Vec<u8>> {
    let is_same = |lid: &Lid| before.list(*lid) == after.list(*lid);
    before
        .lists(FIRST_FILE)
        .filter(|(lid, _)| is_same(lid))
        .map(|(lid, _)| (lid, contents(before, lid)))
        .collect()
}

fn contents(state: &ModelState, lid: Lid) -> Vec<u8> {
    let list = state.list(lid).unwrap_or_else(|| panic!("list {lid} is gone"));
    let head = list.record(HEAD_INDEX).unwrap();
    let mut all = head[120..].to_vec();
    for (index, page) in list.pages(0..1 << 40) {
        all.extend_from_slice(&index.to_le_bytes());
        all.extend_from_slice(page);
    }
    all
}

/// Repairs the disk, and expects what must hold then.
fn mend(engine: &LogEngine, device: &Arc<SimDevice>, kept: &BTreeMap<Lid, Vec<u8>>) {
    let disk = engine.open(as_device(device)).unwrap();
    let mut rest = || Ok(disk.background_step().map(drop)?);
    let repaired = repair(&disk, View::HEAD, &[], &OPTIONS, &mut rest).unwrap();
    assert_eq!(repaired.left, vec![]);
    assert_eq!(verify(&disk, View::HEAD), Ok(vec![]));
    disk.shut_down().unwrap();
    engine.verify(&**device).unwrap();
    let disk = engine.open(as_device(device)).unwrap();
    let state = ModelState::read_view(&disk, View::HEAD).unwrap();
    for (lid, contents_before) in kept {
        assert_eq!(contents(&state, *lid), *contents_before, "list {lid}");
    }
    let fs = mount(disk);
    let mut reached = BTreeSet::from([Ino::ROOT]);
    let mut queue = vec![Ino::ROOT];
    while let Some(directory) = queue.pop() {
        fs.readdir(directory, 0, &mut |entry| {
            let is_dots = matches!(entry.name, b"." | b"..");
            let is_new = !is_dots && reached.insert(entry.ino);
            if is_new && entry.kind == FileKind::Directory {
                queue.push(entry.ino);
            }
            true
        })
        .unwrap();
    }
    assert!(kept.keys().all(|lid| reached.contains(&Ino(lid.0))), "a file has no name");
}

fn repair_and_cut(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let engine = LogEngine::draw(&mut rng, 17);
    let device = Arc::new(SimDevice::new(DEVICE_LEN_BYTES, rng.next_u64()));
    fill(&engine, &device, &mut rng);
    let disk = engine.open(as_device(&device)).unwrap();
    let before = ModelState::read_view(&disk, View::HEAD).unwrap();
    harm(&disk, &mut rng);
    let kept = unharmed(&before, &ModelState::read_view(&disk, View::HEAD).unwrap());
    disk.shut_down().unwrap();

    device.start_recording();
    let disk = engine.open(as_device(&device)).unwrap();
    disk.snapshot(0, Some("before")).unwrap();
    // Each unit reaches the device by itself, so that a cut can come behind it.
    let mut rest = || Ok(disk.flush(CommitSeq::LATEST)?);
    let repaired = repair(&disk, View::HEAD, &[], &OPTIONS, &mut rest).unwrap();
    assert!(!repaired.mended.is_empty());
    disk.shut_down().unwrap();
    let recording = device.take_recording().unwrap();

    let mut image_count = 0;
    let styles =
        [CrashStyle::Everything, CrashStyle::Nothing, CrashStyle::Torn, CrashStyle::Subset];
    for event in (0..=recording.len()).step_by(3) {
        let style = styles[rng.below(4) as usize];
        let image = Arc::new(recording.image_at(event, &mut rng, style));
        mend(&engine, &image, &kept);
        image_count += 1;
    }
    image_count
}

#[test]
fn after_a_power_cut_in_the_middle_of_a_repair_another_one_ends_well() {
    let image_count: usize = (1..8).map(repair_and_cut).sum();
    assert!(image_count > 50, "{image_count} images");
}
