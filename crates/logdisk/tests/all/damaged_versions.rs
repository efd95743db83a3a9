//! A block that several versions share and that is damaged: the verifier names all of them, and no
//! others, as the engine sees them. Of a damaged node of the map it names all that may have
//! something below it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_check::{FindingKind, Options, Report, Volume, Watch, verify_watched};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const LISTS: u64 = 3;
const PAGES: u64 = 40;

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    LogDisk::open(Arc::clone(device), OpenOptions::default(), clock).expect("it is in order")
}

/// Lists in many versions: pages are written, punched and replaced in all branches, and lists are
/// deleted in some.
fn fill(disk: &LogDisk, rng: &mut Rng) -> Vec<Lid> {
    let lists: Vec<Lid> =
        (0..LISTS).map(|_| disk.allocate_list().expect("there is room")).collect();
    let mut aru = Aru::new(View::HEAD);
    lists.iter().for_each(|list| {
        aru.create_list(*list, ListHints::default());
    });
    disk.commit(aru).expect("there is room");
    for step in 0..300_u64 {
        let table = disk.versions();
        let heads: Vec<View> = table.branches().map(|branch| branch.head()).collect();
        let all: Vec<View> = table.views().collect();
        let head = heads[rng.below(heads.len() as u64) as usize];
        let any = all[rng.below(all.len() as u64) as usize];
        let mut aru = Aru::new(head);
        let list = lists[rng.below(LISTS) as usize];
        let page = rng.below(PAGES);
        match rng.below(40) {
            0..=5 => drop(disk.snapshot(head.branch, None)),
            6 if heads.len() < 6 => drop(disk.branch_off(any, &format!("b{step}"))),
            7 if any != table.main_head() => drop(disk.delete(any)),
            8 => {
                aru.punch_pages(list, page, 1 + rng.below(4));
            }
            9 if rng.below(8) == 0 => {
                aru.delete_list(list);
            }
            10 if rng.below(2) == 0 => {
                aru.create_list(list, ListHints::default());
            }
            _ => {
                aru.write_pages(list, page, vec![1 + step as u8 % 250; PAGE_SIZE]);
                aru.put_record(list, page, vec![step as u8; 200]);
            }
        }
        // A list that a branch has deleted cannot be written there.
        let _ = disk.commit(aru);
    }
    lists
}

/// The versions that have each block, in the order in which they are named.
fn sharers(disk: &LogDisk, lists: &[Lid]) -> BTreeMap<(u64, u64, u64), Vec<View>> {
    let table = disk.versions();
    let mut views: Vec<View> = table.views().collect();
    views.sort_by_key(|view| (view.branch, view.epoch.unwrap_or(u64::MAX)));
    let mut sharers: BTreeMap<_, Vec<View>> = BTreeMap::new();
    for view in views {
        for list in lists {
            for page in 0..PAGES {
                if let Some(addr) = disk.page_addr(view, *list, page).expect("it is sound") {
                    sharers.entry((list.0, page, addr)).or_default().push(view);
                }
            }
        }
    }
    sharers
}

fn verified(device: &dyn Device) -> Report {
    verified_with(device, 100_000)
}

fn verified_with(device: &dyn Device, max_findings_of_a_kind: u64) -> Report {
    let watch = Watch {
        marks_bytes: 1 << 20,
        max_findings_of_a_kind,
        progress: &mut |_, _| ControlFlow::Continue(()),
    };
    verify_watched(device, &Options { data: true }, watch)
}

fn new_volume() -> (Arc<MemoryDevice>, LogDisk) {
    let memory = Arc::new(MemoryDevice::new(32 << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as _;
    let options = FormatOptions { segment_size_bytes: 256 << 10, ..FormatOptions::default() };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, &options, &clock).expect("the device is large enough");
    (memory, open(&device))
}

/// A volume that was shut down, and what `look` told of it before.
fn image<T>(rng: &mut Rng, look: impl FnOnce(&LogDisk, &[Lid]) -> T) -> (Vec<u8>, T) {
    let (memory, disk) = new_volume();
    let lists = fill(&disk, rng);
    while disk.background_step().expect("the device works") {}
    let seen = look(&disk, &lists);
    disk.shut_down().expect("the device works");
    assert!(verified(&*memory).is_sound());
    (memory.to_bytes(), seen)
}

#[test]
fn a_damaged_block_is_named_with_all_versions_that_share_it() {
    let (mut shared, mut past) = (0, 0);
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let (mut image, sharers) = image(&mut rng, sharers);
        sharers.keys().for_each(|(_, _, addr)| image[*addr as usize] ^= 1);
        let report = verified(&MemoryDevice::from_bytes(&image));
        let view = |index: usize| {
            let version = &report.versions[index];
            View { branch: version.branch, epoch: version.epoch }
        };
        let mut found = 0;
        for finding in &report.findings {
            let place = sharers.iter().find(|((list, page, addr), _)| {
                let name = format!("page {page} of list {list} at byte {addr}, ");
                finding.detail.starts_with(&name)
            });
            if finding.kind == FindingKind::BlockGone {
                assert_eq!((place, &finding.seen_in), (None, &None), "seed {seed}");
                continue;
            }
            assert_eq!(finding.kind, FindingKind::BlockDamaged, "seed {seed}");
            let (place, views) = place.expect("some version has it");
            found += 1;
            let seen = finding.seen_in.as_ref().expect("versions have it");
            let last = views.iter().rev().find(|view| view.epoch.is_none()).or(views.last());
            let first: Vec<View> = seen.first.iter().map(|index| view(*index)).collect();
            assert_eq!(first, views[..views.len().min(16)], "seed {seed}: {place:?}");
            assert_eq!(Some(&view(seen.last)), last, "seed {seed}: {place:?}");
            assert_eq!(seen.count, views.len(), "seed {seed}: {place:?}");
            assert_eq!(seen.is_in_head, views.iter().any(|view| view.epoch.is_none()));
            shared += usize::from(views.len() > 1);
            past += usize::from(!seen.is_in_head);
        }
        assert_eq!(found, sharers.len(), "seed {seed}");
    }
    assert!(shared > 100 && past > 100, "{shared} shared, {past} of the past alone");
}

#[test]
fn damage_that_nobody_sees_does_not_hide_what_somebody_sees() {
    let mut rng = Rng::new(1);
    let (memory, disk) = new_volume();
    let [gone, kept] = [(); 2].map(|()| disk.allocate_list().expect("there is room"));
    let mut aru = Aru::new(View::HEAD);
    for list in [gone, kept] {
        let mut page = vec![0; PAGE_SIZE];
        aru.create_list(list, ListHints::default());
        for page_index in 0..4 {
            rng.fill(&mut page);
            aru.write_pages(list, page_index, page.clone());
        }
    }
    disk.commit(aru).expect("there is room");
    let snapshot = disk.snapshot(0, None).expect("there is room").view();
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(gone);
    disk.commit(aru).expect("there is room");
    let place = |view, list, page| disk.page_addr(view, list, page).expect("it is sound");
    let mut damaged: Vec<_> = (0..4).filter_map(|page| place(snapshot, gone, page)).collect();
    damaged.extend(place(View::HEAD, kept, 0));
    disk.delete(snapshot).expect("it is not held");
    disk.checkpoint().expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let mut image = memory.to_bytes();
    damaged.iter().for_each(|addr| image[*addr as usize] ^= 1);
    let report = verified_with(&MemoryDevice::from_bytes(&image), 2);
    let count = |kind| report.findings.iter().filter(|finding| finding.kind == kind).count();
    assert_eq!(damaged.len(), 5);
    assert_eq!([FindingKind::BlockGone, FindingKind::BlockDamaged].map(count), [2, 1], "{report}");
}

/// The versions in which something of a list cannot be read.
fn failing(disk: &LogDisk, lists: &[Lid]) -> Vec<View> {
    let table = disk.versions();
    let is_bad = |view: &View| {
        lists.iter().any(|list| match disk.hints(*view, *list) {
            Ok(None) => false,
            Err(_) => true,
            Ok(Some(_)) => (0..PAGES).any(|page| {
                disk.page_addr(*view, *list, page).is_err()
                    || disk.record(*view, *list, page).is_err()
            }),
        })
    };
    table.views().filter(is_bad).collect()
}

#[test]
fn a_damaged_node_is_named_with_all_versions_that_may_miss_something() {
    let (mut lost, mut of_some) = (0, 0);
    for seed in 0..12 {
        let (whole, lists) = image(&mut Rng::new(seed), |_, lists| lists.to_vec());
        let device = MemoryDevice::from_bytes(&whole);
        let volume = Volume::open(&device).expect("it is sound");
        let checkpoint = volume.checkpoint().expect("it is sound");
        for node in volume.nodes(&checkpoint).map(|node| node.expect("it is sound")) {
            let mut damaged = whole.clone();
            damaged[node.place.addr.bytes() as usize + 50] ^= 1;
            let report = verified(&MemoryDevice::from_bytes(&damaged));
            let finding = &report.findings[0];
            assert_eq!(finding.kind, FindingKind::NodeDamaged, "seed {seed}: {report}");
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&damaged));
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
            let Ok(disk) = LogDisk::open(device, OpenOptions::default(), clock) else { continue };
            let failing = failing(&disk, &lists);
            let Some(seen) = &finding.seen_in else {
                assert_eq!((failing, finding.list), (vec![], None), "seed {seed}: {report}");
                continue;
            };
            lost += failing.len();
            of_some += usize::from(seen.count < report.versions.len());
            assert!(seen.count >= failing.len(), "seed {seed}: {report}");
            let is_head = |view: &View| view.epoch.is_none();
            assert!(seen.is_in_head || !failing.iter().any(is_head), "seed {seed}: {report}");
            if seen.count <= seen.first.len() {
                let is_named = |view: &View| {
                    let mut named = seen.first.iter().map(|index| &report.versions[*index]);
                    named.any(|of| (of.branch, of.epoch) == (view.branch, view.epoch))
                };
                assert!(failing.iter().all(is_named), "seed {seed}: {report}");
            }
        }
    }
    assert!(lost > 100 && of_some > 0, "{lost} lost, {of_some} of some versions");
}
