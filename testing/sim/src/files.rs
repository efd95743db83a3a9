//! The file system over a logical disk as a system: random calls, syncs, background work and
//! mounts, compared with the model of a file system.

mod session;

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::{LogicalDisk, View};
use dendro_fs::testing::{Model, Profile, Step, StepClock, Tree};
use dendro_fs::{AtimePolicy, FileSystem, FormatOptions, Options};

use crate::disk::Engine;
use crate::system::{Outcome, System};
use crate::trace::Trace;

/// The permission bits of the root directory.
const ROOT_MODE: u32 = 0o755;

/// A file system with the work that is done on it.
#[derive(Clone, Debug)]
pub struct FsSystem<E> {
    /// What makes the disk below it.
    pub engine: E,
    /// What the calls are like. Each must be one atomic recovery unit so far as can be seen.
    pub profile: Profile,
    /// How many i-nodes are kept in memory.
    pub inode_cache_len: usize,
}

/// A moment of the work on a file system.
#[derive(Clone, Debug)]
pub struct FsState {
    tree: Arc<Tree>,
    /// What led to it; the model is had again by doing it again.
    script: Script,
}

/// What was done, the last first.
#[derive(Clone, Debug, Default)]
struct Script(Option<Arc<Scene>>);

#[derive(Debug)]
struct Scene {
    before: Script,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    /// A step and its number, which is its time.
    Step(u64, Step),
    /// All open files were let go of.
    CloseAll,
}

impl Script {
    fn then(&self, act: Act) -> Self {
        Self(Some(Arc::new(Scene { before: self.clone(), act })))
    }

    /// The model after it.
    fn perform(&self) -> Model {
        let mut acts = Vec::new();
        let mut at = self;
        while let Some(scene) = &at.0 {
            acts.push(&scene.act);
            at = &scene.before;
        }
        let clock = StepClock::default();
        let mut model = Model::new(clock.set_step(0), 0, 0, ROOT_MODE);
        for act in acts.into_iter().rev() {
            match act {
                Act::Step(number, step) => drop(model.run(step, clock.set_step(*number))),
                Act::CloseAll => model.close_all(),
            }
        }
        model
    }
}

/// A mounted file system with what it stands on.
struct Mounted<D> {
    fs: Arc<FileSystem>,
    disk: Arc<D>,
    clock: Arc<StepClock>,
}

impl<E: Engine> FsSystem<E> {
    /// Opens the disk, sees that it holds a file system without faults, and mounts that.
    fn mount(&self, device: &Arc<SimDevice>) -> Outcome<Mounted<E::Disk>> {
        let disk = Arc::new(self.engine.open(Arc::clone(device) as Arc<dyn Device>)?);
        self.engine.verify(&**device).map_err(|error| format!("it is inconsistent: {error}"))?;
        verify(&*disk).map_err(|error| format!("before it is mounted: {error}"))?;
        let clock = Arc::new(StepClock::default());
        let options = Options {
            atime: AtimePolicy::Noatime,
            inode_cache_len: self.inode_cache_len,
            ..Options::default()
        };
        let fs = FileSystem::mount(
            Arc::clone(&disk) as Arc<dyn LogicalDisk>,
            options,
            Arc::clone(&clock) as Arc<dyn dendro_base::Clock>,
        )
        .map_err(|error| format!("mounting failed: {error}"))?;
        Ok(Mounted { fs: Arc::new(fs), disk, clock })
    }
}

/// Whether what the disk holds is a file system.
fn verify(disk: &dyn LogicalDisk) -> Outcome<()> {
    let findings = dendro_fs::verify(disk, View::HEAD).map_err(|error| error.to_string())?;
    match findings.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} findings, the first: {first}", findings.len())),
    }
}

fn tree_of(fs: &FileSystem) -> Outcome<Tree> {
    Tree::of_fs(fs).map_err(|error| format!("reading failed: {error}"))
}

impl<E: Engine> System for FsSystem<E> {
    type State = FsState;
    type Found = Tree;

    fn format(&self, device: &Arc<SimDevice>) -> Outcome<FsState> {
        self.engine.format(Arc::clone(device) as Arc<dyn Device>)?;
        let disk = self.engine.open(Arc::clone(device) as Arc<dyn Device>)?;
        let options = FormatOptions {
            uid: 0,
            gid: 0,
            mode: ROOT_MODE,
            label: "simulated".into(),
            hash_key: [7; 16],
        };
        let clock = StepClock::default();
        clock.set_step(0);
        FileSystem::create_on(&disk, &options, &clock).map_err(|error| error.to_string())?;
        disk.shut_down().map_err(|error| error.to_string())?;
        let script = Script::default();
        Ok(FsState { tree: Arc::new(script.perform().tree()), script })
    }

    fn work(
        &self,
        device: &Arc<SimDevice>,
        rng: &mut Rng,
        step_count: usize,
        trace: &mut Trace<FsState>,
    ) -> Outcome<()> {
        session::run(self, device, rng, step_count, trace)
    }

    fn inspect(&self, device: &Arc<SimDevice>, rng: &mut Rng) -> Outcome<Tree> {
        if rng.chance(5) {
            device.inject(Fault::fail(Call::Read).nth(1 + rng.below(40)));
            drop(self.mount(device));
            device.clear_faults();
        }
        let mounted = self.mount(device)?;
        verify(&*mounted.disk).map_err(|error| format!("mounted: {error}"))?;
        tree_of(&mounted.fs)
    }

    fn is_state(&self, found: &Tree, state: &FsState) -> bool {
        *found == *state.tree
    }

    fn explain(&self, found: &Tree, state: &FsState) -> String {
        let difference = found.difference(&state.tree);
        difference.map_or_else(
            || "no difference".into(),
            |text| format!("{text} (found first, expected second)"),
        )
    }
}
