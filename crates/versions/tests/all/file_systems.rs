//! File systems in many versions of one log-structured disk, each beside a model of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use dendro_base::{Clock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{LogicalDisk, Versions, View};
use dendro_fs::testing::{Driver, Generator, Model, Profile, StepClock, Tree};
use dendro_fs::versions::diff;
use dendro_fs::{AtimePolicy, FileSystem, FormatOptions, Options, verify};
use dendro_logdisk::{FormatOptions as DiskFormat, LogDisk, OpenOptions, format};

const MAX_HEADS: usize = 5;
const MAX_SNAPSHOTS: usize = 12;

/// A head that is mounted.
struct Head {
    driver: Driver,
    model: Model,
}

struct World {
    seed: u64,
    rng: Rng,
    generator: Generator,
    device: Arc<dyn Device>,
    clock: Arc<StepClock>,
    disk: Arc<LogDisk>,
    heads: BTreeMap<u32, Head>,
    /// What each snapshot holds, by branch and epoch.
    snapshots: BTreeMap<(u32, u64), Model>,
    step: u64,
}

fn open(device: &Arc<dyn Device>, clock: &Arc<StepClock>) -> Arc<LogDisk> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Arc::new(LogDisk::open(Arc::clone(device), OpenOptions::default(), clock).unwrap())
}

fn moment((branch, epoch): (u32, u64)) -> View {
    View { branch, epoch: Some(epoch) }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let profile = Profile { target_files: 25, max_write_len: 20_000, ..Profile::default() };
        let generator = Generator::new(rng.next_u64(), profile);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
        let clock = Arc::new(StepClock::default());
        let now = clock.set_step(0);
        let disk_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        format(&device, &DiskFormat::default(), &disk_clock).unwrap();
        let disk = open(&device, &clock);
        let options =
            FormatOptions { uid: 0, gid: 0, mode: 0o755, label: String::new(), hash_key: [3; 16] };
        FileSystem::create_on(&*disk, &options, &*clock).unwrap();
        let (heads, snapshots) = (BTreeMap::new(), BTreeMap::new());
        let mut world =
            Self { seed, rng, generator, device, clock, disk, heads, snapshots, step: 0 };
        world.mount_head(0, Model::new(now, 0, 0, 0o755));
        world
    }

    fn mount(&self, view: View) -> FileSystem {
        let options = Options { view, atime: AtimePolicy::Noatime, ..Options::default() };
        let disk = Arc::clone(&self.disk) as Arc<dyn LogicalDisk>;
        FileSystem::mount(disk, options, Arc::clone(&self.clock) as Arc<dyn Clock>).unwrap()
    }

    fn mount_head(&mut self, branch: u32, mut model: Model) {
        model.close_all();
        let driver = Driver::new(Arc::new(self.mount(View { branch, epoch: None })));
        self.heads.insert(branch, Head { driver, model });
    }

    fn any_head(&mut self) -> u32 {
        let place = self.rng.below(self.heads.len() as u64) as usize;
        *self.heads.keys().nth(place).unwrap()
    }

    fn any_snapshot(&mut self) -> Option<(u32, u64)> {
        let count = self.snapshots.len() as u64;
        let place = self.rng.below(count.max(1)) as usize;
        self.snapshots.keys().nth(place).copied()
    }

    fn run(&mut self, step_count: u64) {
        for _ in 0..step_count {
            match self.rng.below(200) {
                0..5 => self.make_snapshot(),
                5..7 => self.make_branch(),
                7..9 => self.delete(),
                9 => self.roll_back(),
                10 => self.reopen(),
                11..13 => self.check(),
                _ => self.work(),
            }
            while self.rng.chance(30) && self.disk.background_step().unwrap() {}
        }
        self.check();
    }

    fn work(&mut self) {
        self.step += 1;
        let branch = self.any_head();
        let head = self.heads.get_mut(&branch).unwrap();
        let step = self.generator.next(&head.model);
        let now = self.clock.set_step(self.step);
        let expected = head.model.run(&step, now);
        let (seed, number) = (self.seed, self.step);
        assert_eq!(head.driver.run(&step), expected, "seed {seed}, {number}, {branch}: {step:?}");
    }

    fn make_snapshot(&mut self) {
        if self.snapshots.len() >= MAX_SNAPSHOTS {
            return;
        }
        let branch = self.any_head();
        let made = self.disk.snapshot(branch, None).unwrap();
        let mut model = self.heads[&branch].model.clone();
        model.close_all();
        self.snapshots.insert((branch, made.epoch), model);
    }

    fn make_branch(&mut self) {
        if self.heads.len() >= MAX_HEADS {
            return;
        }
        let (from, model) = match self.any_snapshot() {
            Some(snapshot) if self.rng.chance(60) => {
                (moment(snapshot), self.snapshots[&snapshot].clone())
            }
            _ => {
                let branch = self.any_head();
                (View { branch, epoch: None }, self.heads[&branch].model.clone())
            }
        };
        let made = self.disk.branch_off(from, &format!("b{}", self.rng.next_u64())).unwrap();
        self.mount_head(made.branch, model);
    }

    fn delete(&mut self) {
        let head = self.any_head();
        if self.rng.chance(30) && head != self.disk.versions().main {
            self.heads.remove(&head);
            self.disk.delete(View { branch: head, epoch: None }).unwrap();
        } else if let Some(snapshot) = self.any_snapshot() {
            self.snapshots.remove(&snapshot);
            self.disk.delete(moment(snapshot)).unwrap();
        }
    }

    fn roll_back(&mut self) {
        // To the past, and to what was rolled back before.
        let branch = self.any_head();
        let Some(to) = self.any_snapshot() else { return };
        self.heads.remove(&branch);
        let made = self.disk.roll_back(branch, moment(to)).unwrap();
        self.mount_head(made.branch, self.snapshots[&to].clone());
    }

    /// Unmounts everything, well or as a crash after a flush does, and mounts it again.
    fn reopen(&mut self) {
        let heads = std::mem::take(&mut self.heads);
        if self.rng.chance(50) {
            for head in heads.values() {
                head.driver.fs().close().unwrap();
            }
            self.disk.shut_down().unwrap();
        } else {
            self.disk.flush(dendro_disk::CommitSeq::LATEST).unwrap();
        }
        let models: Vec<_> = heads.into_iter().map(|(branch, head)| (branch, head.model)).collect();
        self.disk = open(&self.device, &self.clock);
        for (branch, model) in models {
            self.mount_head(branch, model);
        }
    }

    /// Compares every version with its model, and what is said to differ between two.
    fn check(&mut self) {
        let seed = self.seed;
        for (&branch, head) in &self.heads {
            let tree = Tree::of_fs(head.driver.fs()).unwrap();
            let difference = tree.difference(&head.model.tree());
            assert_eq!(difference, None, "seed {seed}, step {}: branch {branch}", self.step);
            let findings = verify(&*self.disk, View { branch, epoch: None }).unwrap();
            assert_eq!(findings, [], "seed {seed}: branch {branch}");
        }
        let mut trees = Vec::new();
        for (&snapshot, model) in &self.snapshots {
            let view = moment(snapshot);
            let tree = Tree::of_fs(&self.mount(view)).unwrap();
            assert_eq!(tree.difference(&model.tree()), None, "seed {seed}: {view}");
            trees.push((view, tree));
        }
        let any = |rng: &mut Rng| rng.below(trees.len().max(1) as u64) as usize;
        let (one, other) = (any(&mut self.rng), any(&mut self.rng));
        if let (Some((one, tree)), Some((other, other_tree))) = (trees.get(one), trees.get(other)) {
            let changes = diff(&*self.disk, *one, *other).unwrap();
            if changes.is_empty() {
                assert_eq!(tree.difference(other_tree), None, "seed {seed}: {one} to {other}");
            }
            for change in changes {
                let path = String::from_utf8(change.path()[1..].to_vec()).unwrap();
                let is_there = |tree: &Tree| tree.nodes.contains_key(&path);
                let expected = change.sign() == '-' || is_there(other_tree);
                let removed = change.sign() != '-' || is_there(tree);
                assert!(expected && removed, "seed {seed}: {change:?} from {one} to {other}");
            }
        }
    }
}

#[test]
fn every_version_of_a_file_system_is_as_its_model() {
    for seed in 0..24 {
        World::new(seed).run(1500);
    }
}

/// Takes minutes: `cargo test -p dendro-versions --release -- --ignored soak`.
#[test]
#[ignore = "it takes minutes"]
fn soak_every_version_of_a_file_system_is_as_its_model() {
    for seed in 1000..1200 {
        World::new(seed).run(4000);
    }
}
