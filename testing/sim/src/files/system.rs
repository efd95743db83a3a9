//! A file system as a system whose crashes are simulated.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::LogicalDisk;
use dendro_fs::testing::{StepClock, Tree};
use dendro_fs::{FileSystem, FormatOptions};

use super::script::{ROOT_MODE, Script};
use super::session;
use super::state::{FsState, FsSystem, tree_of, verify};
use crate::disk::Engine;
use crate::system::{Outcome, System};
use crate::trace::Trace;

/// Makes an empty file system on a disk.
pub(crate) fn create_on(disk: &dyn LogicalDisk, clock: &StepClock) -> Outcome<()> {
    let options = FormatOptions {
        uid: 0,
        gid: 0,
        mode: ROOT_MODE,
        label: "simulated".into(),
        hash_key: [7; 16],
    };
    FileSystem::create_on(disk, &options, clock).map_err(|error| error.to_string())?;
    Ok(())
}

impl<E: Engine> System for FsSystem<E> {
    type State = FsState;
    type Found = Tree;

    fn format(&self, device: &Arc<SimDevice>) -> Outcome<FsState> {
        self.engine.format(Arc::clone(device) as Arc<dyn Device>)?;
        let disk = self.engine.open(Arc::clone(device) as Arc<dyn Device>)?;
        let clock = StepClock::default();
        clock.set_step(0);
        create_on(&disk, &clock)?;
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
