//! A logical disk as a system whose crashes are simulated.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::Lid;
use dendro_disk::model::{ModelState, ModelVersions};

use super::engine::{Engine, NOW};
use super::session;
use super::state::{DiskState, DiskSystem, FoundDisk};
use crate::system::{Outcome, System};
use crate::trace::Trace;

impl<E: Engine> System for DiskSystem<E> {
    type State = DiskState;
    type Found = FoundDisk;

    fn format(&self, device: &Arc<SimDevice>) -> Outcome<DiskState> {
        self.engine.format(Arc::clone(device) as Arc<dyn Device>)?;
        let contents = ModelVersions::new(ModelState::default(), NOW);
        Ok(DiskState { contents, highest_list: Lid(0) })
    }

    fn work(
        &self,
        device: &Arc<SimDevice>,
        rng: &mut Rng,
        step_count: usize,
        trace: &mut Trace<DiskState>,
    ) -> Outcome<()> {
        session::run(self, device, rng, step_count, trace)
    }

    fn inspect(&self, device: &Arc<SimDevice>, rng: &mut Rng) -> Outcome<FoundDisk> {
        let mut read_only = if rng.chance(10) {
            let disk = self.engine.open_read_only(Arc::clone(device) as Arc<dyn Device>)?;
            disk.map(|disk| self.read(&disk)).transpose().map_err(|e| e.to_string())?
        } else {
            None
        };
        if rng.chance(5) {
            // A device that cannot be read for a moment must not be taken for an empty one.
            device.inject(Fault::fail(Call::Read).nth(1 + rng.below(20)));
            drop(self.engine.open(Arc::clone(device) as Arc<dyn Device>));
            device.clear_faults();
            if self.engine.decides_when_open() {
                // It may have decided for another state than the opening before it found.
                read_only = None;
            }
        }
        let disk = self.engine.open(Arc::clone(device) as Arc<dyn Device>)?;
        let found = self.examine(&disk, &**device)?;
        self.engine.recount(&disk, &**device)?;
        match read_only.and_then(|contents| contents.diff(&found.contents)) {
            None => Ok(found),
            Some(difference) => Err(format!("opened for reading only (left): {difference}")),
        }
    }

    fn is_state(&self, found: &FoundDisk, state: &DiskState) -> bool {
        found.contents == state.contents && found.next_list > state.highest_list
    }

    fn explain(&self, found: &FoundDisk, state: &DiskState) -> String {
        found.contents.diff(&state.contents).map_or_else(
            || {
                let (next, highest) = (found.next_list, state.highest_list);
                format!("list {next} is given out though there was {highest}")
            },
            |difference| format!("{difference} (found left, expected right)"),
        )
    }
}
