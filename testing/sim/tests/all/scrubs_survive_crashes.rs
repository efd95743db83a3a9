//! Scrubs under simulated power cuts: the recorded position is one that was recorded, and a pass
//! that goes on from there has found all damage when it ends.

use std::collections::BTreeSet;

use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_check::Volume;
use dendro_device::Device;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_disk::{Aru, CommitSeq, ListHints, LogicalDisk, View};
use dendro_format::{Key, Value};
use dendro_fs::format::VOLUME_LIST;
use dendro_fs::testing::StepClock;
use dendro_fs::{
    FileSystem, FormatOptions, FsError, KeptScrub, ScrubState, keep_scrub, kept_scrub,
};
use dendro_logdisk::{LogDisk, Scrub};
use dendro_sim::disk::Engine;
use dendro_sim::log::LogEngine;

const DEVICE_LEN_BYTES: u64 = 16 << 20;
const LISTS: u64 = 40;

fn as_device(device: &Arc<SimDevice>) -> Arc<dyn Device> {
    Arc::clone(device) as Arc<dyn Device>
}

/// A volume with lists of pages. Returns the addresses of some of its blocks.
fn fill(engine: &LogEngine, device: &Arc<SimDevice>, rng: &mut Rng) -> BTreeSet<u64> {
    engine.format(as_device(device)).unwrap();
    let disk = engine.open(as_device(device)).unwrap();
    let options =
        FormatOptions { uid: 0, gid: 0, mode: 0o755, label: "sim".into(), hash_key: [7; 16] };
    FileSystem::create_on(&disk, &options, &StepClock::default()).unwrap();
    for _ in 0..LISTS {
        let list = disk.allocate_list().unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        let mut bytes = vec![0; 1 + rng.below(100_000) as usize];
        rng.fill(&mut bytes);
        aru.write_pages(list, 0, bytes);
        disk.commit(aru).unwrap();
    }
    disk.shut_down().unwrap();
    let volume = Volume::open(&**device).unwrap();
    let checkpoint = volume.checkpoint().unwrap();
    let mut blocks = BTreeSet::new();
    for (Key { list, .. }, value) in volume.entries(&checkpoint, None, None).flatten() {
        let Value::Chunk(chunk) = value else { continue };
        assert!(list > VOLUME_LIST.0);
        blocks.extend(chunk.iter().map(|(_, page)| page.addr.bytes()).filter(|_| rng.chance(8)));
    }
    blocks
}

fn record(disk: &LogDisk, scrub: &Scrub) -> Result<KeptScrub, FsError> {
    let kept = KeptScrub {
        state: ScrubState::Running,
        started: Timestamp(1),
        rate_bytes_per_sec: None,
        memory_bytes: None,
        position: scrub.position(),
        last_complete: None,
    };
    keep_scrub(disk, View::HEAD, &kept).map(|()| kept)
}

/// The blocks among `chosen` in which the disk has met damage.
fn found(disk: &LogDisk, chosen: &BTreeSet<u64>) -> BTreeSet<u64> {
    let places = disk.damage().places();
    chosen.iter().copied().filter(|at| places.iter().any(|of| of.addr_bytes == *at)).collect()
}

/// Scrubs, records the position after each step, and flushes at times. Returns the records in their
/// order, and how many of them were durable at the end; it ends at the power cut.
fn scrub(disk: &LogDisk, rng: &mut Rng) -> (Vec<KeptScrub>, usize) {
    let mut pass = Scrub::new().with_memory(4 << 10);
    let (mut records, mut durable) = (Vec::new(), 0);
    while let Ok(true) = disk.scrub_step(&mut pass) {
        let Ok(kept) = record(disk, &pass) else { break };
        records.push(kept);
        let flushed = match rng.below(4) {
            0 => disk.flush(CommitSeq::LATEST).is_ok(),
            1 => disk.checkpoint().is_ok(),
            _ => false,
        };
        if flushed {
            durable = records.len();
        }
    }
    (records, durable)
}

#[test]
fn a_scrub_goes_on_from_a_recorded_position_and_misses_nothing_after_any_power_cut() {
    let (mut resumed, mut lost) = (0, 0);
    for (seed, calls) in (0..12_u64).flat_map(|seed| (0..14).map(move |nth| (seed, nth * 5))) {
        let mut rng = Rng::new(seed * 1000 + calls);
        let engine = LogEngine::draw(&mut rng, 19);
        let device = Arc::new(SimDevice::new(DEVICE_LEN_BYTES, seed));
        let chosen = fill(&engine, &device, &mut rng);
        assert!(chosen.len() > 5);
        for &at in &chosen {
            device.corrupt(at..at + 1, 1);
        }
        let disk = engine.open(as_device(&device)).unwrap();
        device.cut_after_calls(calls);
        let (records, durable) = scrub(&disk, &mut rng);
        let before = found(&disk, &chosen);
        for style in [CrashStyle::Nothing, CrashStyle::Everything, CrashStyle::Torn] {
            let image = Arc::new(device.crash_image(&mut rng, style));
            let disk = engine.open(as_device(&image)).unwrap();
            let kept = kept_scrub(&disk, View::HEAD).unwrap();
            let number = kept.as_ref().map(|kept| {
                let number = records.iter().rposition(|of| of == kept);
                number.expect("it is a record that was made") + 1
            });
            let number = number.unwrap_or(0);
            assert!(number >= durable, "{seed} {calls}: record {number}, {durable} durable");
            lost += records.len() - number;
            let mut pass = match &kept {
                Some(kept) => Scrub::resume(&kept.position).expect("it is a position"),
                None => Scrub::new(),
            };
            resumed += usize::from(kept.is_some());
            while disk.scrub_step(&mut pass).unwrap() {
                record(&disk, &pass).unwrap();
            }
            let both: BTreeSet<u64> = &before | &found(&disk, &chosen);
            assert_eq!(both, chosen, "{seed} {calls}");
            disk.shut_down().unwrap();
        }
    }
    assert!(resumed > 50 && lost > 50, "{resumed} resumed, {lost} lost");
}
