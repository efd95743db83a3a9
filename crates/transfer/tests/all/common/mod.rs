//! Disks with random versions, and streams of them.

use std::ops::ControlFlow;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng, Uuid};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::ModelState;
use dendro_disk::testgen::{Generator, Profile};
use dendro_disk::{Aru, Lid, ListHints, PAGE_SIZE, Snapshot, Versions, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_stream::{Counts, Encoder, Header, Position, Version};
use dendro_transfer::{SendRange, origin, send};

/// The volume that sends.
pub(crate) const VOLUME: Uuid = Uuid([7; 16]);

pub(crate) fn formatted(device: &Arc<dyn Device>, segment_size_bytes: u64) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
    format(device, &options, &clock).expect("the device is large enough");
    opened(device)
}

pub(crate) fn opened(device: &Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    LogDisk::open(Arc::clone(device), OpenOptions::default(), clock).expect("it was formatted")
}

pub(crate) fn log_disk() -> LogDisk {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    formatted(&device, 1 << 20)
}

pub(crate) fn version(snapshot: &Snapshot) -> Version {
    let Snapshot { time, name, .. } = snapshot.clone();
    Version { origin: origin(VOLUME, snapshot), time, name }
}

/// The stream of a snapshot, and how much is in it.
pub(crate) fn sent(
    disk: &dyn Versions,
    of: &Snapshot,
    base: Option<&Snapshot>,
) -> (Vec<u8>, Counts) {
    sent_from(disk, of, base, None)
}

/// The same from a place on.
pub(crate) fn sent_from(
    disk: &dyn Versions,
    of: &Snapshot,
    base: Option<&Snapshot>,
    rest: Option<Position>,
) -> (Vec<u8>, Counts) {
    let header = Header {
        stream: VOLUME,
        source: VOLUME,
        version: version(of),
        base: base.map(version),
        is_compressed: false,
        kind: disk.versions().kind_of(of.branch),
        head_of: None,
        is_followed: false,
        rest,
    };
    let encoder = Encoder::begin(Vec::new(), &header, None).expect("a vector grows");
    let mut go_on = |_| ControlFlow::Continue(());
    let from = rest.unwrap_or(Position::START);
    let range = SendRange { of: of.view(), base: base.map(Snapshot::view), from };
    send(disk, range, encoder, &mut go_on).expect("it can be read")
}

pub(crate) fn state(disk: &dyn Versions, view: View) -> ModelState {
    ModelState::read_view(disk, view).expect("readable")
}

/// Does random work on several branches and makes snapshots, which it returns.
pub(crate) fn random_versions(
    disk: &dyn Versions,
    seed: u64,
    step_count: u64,
    background: &mut dyn FnMut(),
) -> Vec<Snapshot> {
    let mut rng = Rng::new(seed);
    let profile = Profile {
        max_write_bytes: 64 << 10,
        max_large_write_bytes: 300 << 10,
        target_bytes: 512 << 10,
        wrong_percent: 0,
        ..Profile::default()
    };
    let mut generator = Generator::new(rng.fork(), profile).beside_versions();
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for _ in 0..step_count {
        let heads: Vec<View> = disk.versions().branches().map(|branch| branch.head()).collect();
        let head = heads[rng.below(heads.len() as u64) as usize];
        match rng.below(100) {
            0..8 => snapshots.push(disk.snapshot(head.branch, None).expect("there is room")),
            8..11 if heads.len() < 4 => {
                let from = match snapshots.len() as u64 {
                    count if count > 0 && rng.chance(60) => {
                        snapshots[rng.below(count) as usize].view()
                    }
                    _ => head,
                };
                let name = format!("b{}", disk.versions().next_branch);
                drop(disk.branch_off(from, &name).expect("there is room"));
            }
            _ => {
                let state = state(disk, head);
                let mut aru = Aru::new(head);
                for op in generator.unit(&state, &mut || disk.allocate_list().ok()) {
                    aru.push(op);
                }
                // A change that needs too much at once is refused; that leaves what was there.
                drop(disk.commit(aru));
            }
        }
        background();
    }
    snapshots
}

pub(crate) fn commit(disk: &dyn Versions, view: View, build: impl FnOnce(&mut Aru<'_>)) {
    let mut aru = Aru::new(view);
    build(&mut aru);
    disk.commit(aru).expect("there is room");
}

/// A list with this many records and pages, at the main head.
pub(crate) fn list_of(disk: &dyn Versions, count: u64) -> Lid {
    let list = disk.allocate_list().expect("the disk is writable");
    commit(disk, View::HEAD, |aru| {
        aru.create_list(list, ListHints::default());
    });
    for first in (0..count).step_by(64) {
        commit(disk, View::HEAD, |aru| {
            for index in first..count.min(first + 64) {
                aru.put_record(list, index, vec![index as u8 | 1; 100]);
                aru.write_pages(list, index, vec![index as u8 | 1; PAGE_SIZE]);
            }
        });
    }
    list
}
