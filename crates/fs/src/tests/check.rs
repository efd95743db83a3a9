//! Checks of several versions together.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_disk::model::ModelDisk;
use dendro_disk::{Aru, Error, Lid, LogicalDisk, Op, Record, Result, Versions, View};
use dendro_disk::{CommitSeq, Completion, ListHints, Reservation, ScanPoint, Scanned, Space};

use super::damage::sample;
use super::{Fixture, USER, noatime};
use crate::format::HEAD_INDEX;
use crate::layout::inode::Inode;
use crate::testing::{Driver, Generator, Model, Profile, StepClock};
use crate::{CheckOptions, FileSystem, Finding, Ino, Options, check, verify};

/// All versions: the snapshots of each branch in their order, then its head.
fn all_views(disk: &dyn Versions) -> Vec<View> {
    let table = disk.versions();
    let mut views = Vec::new();
    for branch in table.branches() {
        let of_branch = table.snapshots().filter(|of| of.branch == branch.branch);
        views.extend(of_branch.map(dendro_disk::Snapshot::view));
        views.push(branch.head());
    }
    views
}

/// Changes, deletes, adds or exchanges a few records of a head at random.
pub(super) fn damage(disk: &ModelDisk, view: View, rng: &mut Rng) {
    let mut records = Vec::new();
    for list in disk.lists(view, Lid(0), 1000).unwrap() {
        for (index, record) in disk.records(view, list, 0, 1000).unwrap() {
            records.push((list, index, record.to_vec()));
        }
    }
    let mut aru = Aru::new(view);
    for _ in 0..=rng.below(4) {
        let any = |rng: &mut Rng| records[rng.below(records.len() as u64) as usize].clone();
        let (list, index, mut value) = any(rng);
        // Without the volume's description there is no file system.
        if list == crate::format::VOLUME_LIST {
            continue;
        }
        match rng.below(8) {
            0 => value.truncate(1 + rng.below(value.len() as u64) as usize),
            1 => rng.fill(&mut value),
            2 => {
                aru.delete_record(list, index);
                continue;
            }
            3 => {
                let (list, index, other) = any(rng);
                if list != crate::format::VOLUME_LIST {
                    aru.push(Op::PutRecord { list, index, value: value.clone().into() });
                }
                value = other;
            }
            4 => {
                aru.push(Op::PutRecord { list, index: index ^ 1, value: value.into() });
                continue;
            }
            _ => {
                let at = rng.below(value.len() as u64) as usize;
                value[at] ^= 1 << rng.below(8);
            }
        }
        aru.push(Op::PutRecord { list, index, value: value.into() });
    }
    disk.commit(aru).unwrap();
}

fn work(disk: &Arc<ModelDisk>, view: View, seed: u64, step_count: u64) {
    let clock = Arc::new(StepClock::default());
    let options = Options { view, ..noatime() };
    let Ok(fs) = FileSystem::mount(Arc::clone(disk) as _, options, clock.clone()) else { return };
    let mut driver = Driver::new(Arc::new(fs));
    let mut model = Model::new(clock.set_step(0), 0, 0, 0o755);
    let mut generator = Generator::new(seed, Profile::default());
    for number in 0..step_count {
        let step = generator.next(&model);
        let _ = driver.run(&step);
        let _ = model.run(&step, clock.set_step(number));
    }
}

/// One check of all versions finds in each what a check of it alone finds.
fn compare_with_single_checks(seeds: std::ops::Range<u64>) {
    let mut damaged_count = 0;
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let fixture = sample();
        let disk = Arc::new(ModelDisk::from_state(fixture.disk.state(), None));
        let mut branches = vec![0];
        for round in 0..8 {
            let branch = branches[rng.below(branches.len() as u64) as usize];
            let head = View { branch, epoch: None };
            work(&disk, head, seed * 100 + round, 30);
            if rng.below(3) == 0 {
                damage(&disk, head, &mut rng);
            }
            disk.snapshot(branch, Some(&format!("s{round}"))).unwrap();
            if rng.below(4) == 0 {
                let made = disk.branch_off(head, &format!("b{round}")).unwrap();
                branches.push(made.branch);
            }
        }
        let views = all_views(&*disk);
        let options = CheckOptions::default().with_max_findings_of_a_code(100_000);
        let checked = check(&*disk, &views, options, &mut |_| ControlFlow::Continue(())).unwrap();
        for &view in &views {
            let alone: BTreeSet<Finding> = verify(&*disk, view).unwrap().into_iter().collect();
            let found = checked.found.iter().filter(|found| found.views.contains(&view));
            let together: BTreeSet<Finding> = found.map(|of| of.finding.clone()).collect();
            assert_eq!(together, alone, "seed {seed}, {view}");
            damaged_count += usize::from(!alone.is_empty());
        }
    }
    assert!(damaged_count > 5, "no version was damaged");
}

#[test]
fn a_check_of_all_versions_finds_what_a_check_of_each_finds() {
    compare_with_single_checks(0..25);
}

#[test]
#[ignore = "takes minutes"]
fn a_check_of_all_versions_finds_what_a_check_of_each_finds_in_many_runs() {
    compare_with_single_checks(100..2000);
}

#[test]
fn a_thousand_snapshots_cost_little_more_than_one() {
    let fixture = Fixture::new();
    let dirs: Vec<Ino> = (0..20).map(|number| fixture.dir(&format!("d{number}"))).collect();
    for number in 0..2000 {
        let dir = dirs[number % dirs.len()];
        let name = format!("f{number}");
        fixture.fs.create(&USER, dir, name.as_bytes(), 0o644, Default::default()).unwrap();
    }
    let read = |views: &[View]| {
        let checked = check(&*fixture.disk, views, CheckOptions::default(), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(checked.found.is_empty());
        (checked.counts.lists_read, checked.counts.memory_bytes)
    };
    let (one, memory_of_one) = read(&[View::HEAD]);
    for number in 0..1000 {
        let ino = fixture.fs.lookup(dirs[number % 20], format!("f{number}").as_bytes());
        fixture.fs.write(ino.unwrap().ino, 0, b"changed", false).unwrap();
        fixture.disk.snapshot(0, Some(&format!("s{number}"))).unwrap();
    }
    let views = all_views(&*fixture.disk);
    assert_eq!(views.len(), 1001);
    let (all, memory_of_all) = read(&views);
    // The files, and one changed file in each snapshot.
    assert_eq!((one, all), (2021, 2021 + 999));
    assert!(memory_of_all <= memory_of_one + 1000, "{memory_of_one}, then {memory_of_all}");
}

#[test]
fn a_check_with_little_memory_finds_the_same_within_it() {
    let fixture = Fixture::new();
    let dirs: Vec<Ino> = (0..40).map(|number| fixture.dir(&format!("d{number}"))).collect();
    let mut files = Vec::new();
    for number in 0..8000 {
        // Neighbours in a directory are not neighbours in the table.
        let dir = dirs[number * 7 % dirs.len()];
        let name = format!("f{number}");
        let made = fixture.fs.create(&USER, dir, name.as_bytes(), 0o644, Default::default());
        files.push(made.unwrap().ino);
    }
    let mut rng = Rng::new(28);
    for round in 0..6 {
        let mut aru = Aru::new(View::HEAD);
        for _ in 0..8 {
            let any = files[rng.below(files.len() as u64) as usize];
            aru.delete_record(any.lid(), HEAD_INDEX);
        }
        let dir = dirs[round];
        let head = fixture.disk.record(View::HEAD, dir.lid(), HEAD_INDEX).unwrap().unwrap();
        let mut inode = Inode::decode(dir, &head).unwrap();
        inode.parent = dirs[round + 1].0;
        aru.put_record(dir.lid(), HEAD_INDEX, inode.encode());
        fixture.disk.commit(aru).unwrap();
        damage(&fixture.disk, View::HEAD, &mut rng);
        fixture.disk.snapshot(0, Some(&format!("s{round}"))).unwrap();
    }
    let views = all_views(&*fixture.disk);
    let run = |memory_bytes| {
        let options = CheckOptions::default().with_memory(memory_bytes);
        check(&*fixture.disk, &views, options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let (all, bounded) = (run(u64::MAX / 2), run(160 << 10));
    assert!(all.found.len() > 50, "{:?}", all.found.len());
    assert_eq!(bounded.found, all.found);
    assert_eq!(bounded.more, all.more);
    assert!(all.counts.memory_bytes > 320 << 10, "{:?}", all.counts);
    assert!(bounded.counts.memory_bytes <= 160 << 10, "{:?}", bounded.counts);
}

/// A disk on which scans fail where they like, and calls that read one list do not.
struct Stumbling {
    disk: ModelDisk,
    scan_count: AtomicU64,
    /// One scan of so many fails.
    one_of: u64,
}

impl LogicalDisk for Stumbling {
    fn allocate_list(&self) -> Result<Lid> {
        self.disk.allocate_list()
    }

    fn try_commit(&self, aru: &mut Aru<'_>) -> Result<CommitSeq> {
        self.disk.try_commit(aru)
    }

    fn last_commit(&self) -> CommitSeq {
        self.disk.last_commit()
    }

    fn when_durable(&self, up_to: CommitSeq, then: Completion) {
        self.disk.when_durable(up_to, then);
    }

    fn flush_list(&self, view: View, list: Lid) -> Result<()> {
        self.disk.flush_list(view, list)
    }

    fn flush(&self, up_to: CommitSeq) -> Result<()> {
        self.disk.flush(up_to)
    }

    fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        self.disk.reserve(len_bytes)
    }

    fn space(&self) -> Space {
        self.disk.space()
    }

    fn read_only_reason(&self) -> Option<String> {
        self.disk.read_only_reason()
    }

    fn shut_down(&self) -> Result<()> {
        self.disk.shut_down()
    }

    fn hints(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        self.disk.hints(view, list)
    }

    fn lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        // Few, so that scans go on soon.
        self.disk.lists(view, from, max.min(2))
    }

    fn record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        self.disk.record(view, list, index)
    }

    fn records(&self, view: View, list: Lid, from: u64, max: usize) -> Result<Vec<(u64, Record)>> {
        self.disk.records(view, list, from, max)
    }

    fn read_pages(&self, view: View, list: Lid, first_page: u64, buf: &mut [u8]) -> Result<()> {
        self.disk.read_pages(view, list, first_page, buf)
    }

    fn next_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>> {
        self.disk.next_data(view, list, from)
    }

    fn next_hole(&self, view: View, list: Lid, from: u64) -> Result<u64> {
        self.disk.next_hole(view, list, from)
    }

    fn count_pages(&self, view: View, list: Lid, range: Range<u64>) -> Result<u64> {
        self.disk.count_pages(view, list, range)
    }

    fn scan(
        &self,
        view: View,
        from: ScanPoint,
        _: usize,
    ) -> Result<(Vec<Scanned>, Option<ScanPoint>)> {
        let count = self.scan_count.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(self.one_of) {
            return Err(Error::Io("the scan has no more".into()));
        }
        self.disk.scan(view, from, 1 + count as usize % 5)
    }
}

#[test]
fn a_scan_that_fails_anywhere_goes_on_list_by_list() {
    let mut damaged_count = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let fixture = sample();
        let disk = Arc::new(ModelDisk::from_state(fixture.disk.state(), None));
        work(&disk, View::HEAD, seed, 60);
        if seed % 2 == 0 {
            damage(&disk, View::HEAD, &mut rng);
        }
        let whole = verify(&*disk, View::HEAD).unwrap();
        damaged_count += usize::from(!whole.is_empty());
        for one_of in 1..=6 {
            let disk = ModelDisk::from_state(disk.state(), None);
            let stumbling = Stumbling { disk, scan_count: AtomicU64::new(0), one_of };
            assert_eq!(verify(&stumbling, View::HEAD).unwrap(), whole, "seed {seed}, {one_of}");
        }
    }
    assert!(damaged_count > 5, "nothing was damaged");
}
