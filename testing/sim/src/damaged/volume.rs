//! Work on the files of a volume with snapshots and branches, recorded: images at each of its
//! moments, and what every version was then.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::{Recording, SimDevice};
use dendro_disk::{Error, LogicalDisk, VersionTable, Versions, View};
use dendro_fs::testing::{Driver, Generator, Model, Profile, StepClock, Tree};
use dendro_fs::{AtimePolicy, FileSystem, Options};
use dendro_logdisk::LogDisk;

use crate::disk::Engine;
use crate::files::{NO_SPACE, ROOT_MODE, create_on};
use crate::log::LogEngine;
use crate::system::Outcome;

/// The smallest segments.
const MAX_SEGMENT_SIZE_LOG2: u8 = 17;
const MIN_SEGMENT_COUNT: u64 = 36;
const MAX_SNAPSHOTS: usize = 3;
/// The main branch is one of them.
const MAX_BRANCHES: usize = 3;

/// What every version was at a moment of the work.
#[derive(Clone)]
pub(super) struct Moment {
    pub(super) table: VersionTable,
    pub(super) trees: Vec<(View, Arc<Tree>)>,
}

/// Work that was done and recorded.
pub(super) struct Work {
    pub(super) engine: LogEngine,
    pub(super) recording: Recording,
    /// The oldest first.
    pub(super) moments: Vec<Moment>,
}

/// How files are looked at and changed: reading changes nothing.
pub(super) fn options(view: View, read_only: bool) -> Options {
    Options {
        view,
        read_only,
        atime: AtimePolicy::Noatime,
        inode_cache_len: 16,
        ..Options::default()
    }
}

/// The head of a branch, with its files as they are and as they should be.
struct Branch {
    view: View,
    driver: Driver,
    model: Model,
}

struct Session<'r> {
    engine: LogEngine,
    disk: Arc<LogDisk>,
    clock: Arc<StepClock>,
    rng: &'r mut Rng,
    generator: Generator,
    /// The number of the last step.
    number: u64,
    /// The main branch is the first.
    branches: Vec<Branch>,
    snapshots: Vec<(View, Model)>,
    moments: Vec<Moment>,
    is_full: bool,
}

/// Makes a volume, and works on its files.
pub(super) fn record(seed: u64) -> Outcome<Work> {
    let mut rng = Rng::new(seed.rotate_left(17));
    let engine = LogEngine::draw(&mut rng, MAX_SEGMENT_SIZE_LOG2);
    let len_bytes = engine.format.segment_size_bytes * (MIN_SEGMENT_COUNT + rng.below(12));
    let device = Arc::new(SimDevice::new(len_bytes, rng.next_u64()));
    let profile = Profile {
        target_files: 6 + rng.below(30) as usize,
        max_write_len: [500, 9000, 30_000][rng.below(3) as usize],
        max_offset: [5000, 60_000][rng.below(2) as usize],
        far_percent: 0,
        max_xattr_len: [60, 3000][rng.below(2) as usize],
        sync_percent: [3, 10][rng.below(2) as usize],
        one_unit_only: true,
    };
    engine.format(Arc::clone(&device) as Arc<dyn Device>)?;
    let disk = Arc::new(engine.open(Arc::clone(&device) as Arc<dyn Device>)?);
    let clock = Arc::new(StepClock::default());
    let now = clock.set_step(0);
    create_on(&*disk, &clock)?;
    device.start_recording();
    let generator = Generator::new(rng.next_u64(), profile);
    let step_count = 100 << rng.below(3);
    let mut session = Session {
        engine,
        disk,
        clock,
        rng: &mut rng,
        generator,
        number: 0,
        branches: Vec::new(),
        snapshots: Vec::new(),
        moments: Vec::new(),
        is_full: false,
    };
    session.add_branch(View::HEAD, Model::new(now, 0, 0, ROOT_MODE))?;
    session.note();
    for _ in 0..step_count {
        session.step()?;
        if session.is_full {
            break;
        }
    }
    session.finish()?;
    let Session { engine, moments, .. } = session;
    let recording = device.take_recording().ok_or("the recording was taken")?;
    Ok(Work { engine, recording, moments })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Session<'_> {
    fn add_branch(&mut self, view: View, model: Model) -> Outcome<()> {
        let disk = Arc::clone(&self.disk) as Arc<dyn LogicalDisk>;
        let clock = Arc::clone(&self.clock) as Arc<dyn dendro_base::Clock>;
        let fs = FileSystem::mount(disk, options(view, false), clock).map_err(text)?;
        self.branches.push(Branch { view, driver: Driver::new(Arc::new(fs)), model });
        Ok(())
    }

    /// Notes what is there now.
    fn note(&mut self) {
        let heads = self.branches.iter().map(|branch| (branch.view, &branch.model));
        let snapshots = self.snapshots.iter().map(|(view, model)| (*view, model));
        let known = self.moments.last().map_or(&[][..], |moment| &moment.trees);
        let tree = |(view, model): (View, &Model)| {
            let tree = model.tree();
            let same = known.iter().find(|(of, known)| *of == view && **known == tree);
            (view, same.map_or_else(|| Arc::new(tree), |(_, known)| Arc::clone(known)))
        };
        let trees = heads.chain(snapshots).map(tree).collect();
        self.moments.push(Moment { table: self.disk.versions(), trees });
    }

    fn step(&mut self) -> Outcome<()> {
        match self.rng.below(100) {
            0..70 => self.call(),
            70..88 => self.engine.background(&self.disk, self.rng),
            88..96 => {
                let done = self.change_versions();
                match done {
                    Err(Error::NoSpace { .. }) => self.is_full = true,
                    Err(error) => return Err(format!("the versions: {error}")),
                    Ok(()) => self.note(),
                }
                Ok(())
            }
            96..98 => self.disk.checkpoint().map_err(text),
            _ => self.branches[0].driver.fs().sync_all().map_err(text),
        }
    }

    /// Calls the file system of one of the branches, mostly of the main one.
    fn call(&mut self) -> Outcome<()> {
        let at = if self.rng.chance(75) { 0 } else { self.rng.below(self.branches.len() as u64) };
        let branch = &mut self.branches[at as usize];
        let step = self.generator.next(&branch.model);
        self.number += 1;
        let now = self.clock.set_step(self.number);
        let mut after = branch.model.clone();
        let expected = after.run(&step, now);
        let answer = branch.driver.run(&step);
        if answer == Err(NO_SPACE) && expected.is_ok() {
            self.is_full = true;
            return Ok(());
        }
        if answer != expected {
            return Err(format!("{step:?} answered {answer:?} rather than {expected:?}"));
        }
        branch.model = after;
        self.note();
        Ok(())
    }

    fn change_versions(&mut self) -> dendro_disk::Result<()> {
        let at = self.rng.below(self.branches.len() as u64) as usize;
        let name = format!("v{}", self.number);
        let snapshot = self.rng.below(self.snapshots.len().max(1) as u64) as usize;
        match self.rng.below(8) {
            0..4 if self.snapshots.len() < MAX_SNAPSHOTS => {
                let branch = &self.branches[at];
                let made = self.disk.snapshot(branch.view.branch, Some(&name));
                let made = match made {
                    Err(Error::NameTaken(_)) => return Ok(()),
                    made => made?,
                };
                let mut model = branch.model.clone();
                model.close_all();
                self.snapshots.push((made.view(), model));
            }
            4..6 if self.branches.len() < MAX_BRANCHES && !self.snapshots.is_empty() => {
                let (view, model) = self.snapshots[snapshot].clone();
                let made = match self.disk.branch_off(view, &name) {
                    Err(Error::NameTaken(_)) => return Ok(()),
                    made => made?,
                };
                // What was open when the snapshot was made is closed in the branch.
                self.add_branch(made.head(), model).map_err(Error::Corrupted)?;
            }
            6 if at > 0 => {
                let branch = self.branches.remove(at);
                let view = branch.view;
                drop(branch);
                self.disk.delete(view)?;
            }
            7 if !self.snapshots.is_empty() => {
                self.disk.delete(self.snapshots[snapshot].0)?;
                self.snapshots.remove(snapshot);
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends as a shutdown does, or as a crash.
    fn finish(&mut self) -> Outcome<()> {
        if self.is_full || self.rng.chance(40) {
            return Ok(());
        }
        for branch in &mut self.branches {
            branch.driver.fs().close().map_err(text)?;
            branch.model.close_all();
        }
        self.note();
        self.disk.shut_down().map_err(text)
    }
}
