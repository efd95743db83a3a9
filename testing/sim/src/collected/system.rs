//! The file system below a kernel that collects as a system whose crashes are simulated.

use std::collections::BTreeMap;

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::sim::SimDevice;
use dendro_disk::LogicalDisk;
use dendro_fs::testing::StepClock;
use dendro_fs::{AtimePolicy, FileSystem, Options};

use super::session;
use super::state::{CollectedState, CollectedSystem, Found};
use crate::disk::Engine;
use crate::files::{Mounted, tree_of, verify};
use crate::system::{Outcome, System};
use crate::trace::Trace;

impl<E: Engine> CollectedSystem<E> {
    /// Everything that is there.
    pub(super) fn look(&self, mounted: &Mounted<E::Disk>) -> Outcome<Found> {
        let tree = tree_of(&mounted.fs)?;
        let mut snapshots = BTreeMap::new();
        if let Some(versions) = self.files.engine.versions(&mounted.disk) {
            for snapshot in versions.versions().snapshots() {
                let options = Options {
                    view: snapshot.view(),
                    atime: AtimePolicy::Noatime,
                    ..Options::default()
                };
                let disk = Arc::clone(&mounted.disk) as Arc<dyn LogicalDisk>;
                let past = FileSystem::mount(disk, options, Arc::new(StepClock::default()))
                    .map_err(|error| format!("a snapshot: {error}"))?;
                snapshots.insert(snapshot.epoch, tree_of(&past)?);
            }
        }
        Ok(Found { tree, snapshots })
    }
}

impl<E: Engine> System for CollectedSystem<E> {
    type State = CollectedState;
    type Found = Found;

    fn format(&self, device: &Arc<SimDevice>) -> Outcome<CollectedState> {
        let seen = self.files.format(device)?;
        Ok(CollectedState { seen, collected: BTreeMap::new(), snapshots: BTreeMap::new() })
    }

    fn work(
        &self,
        device: &Arc<SimDevice>,
        rng: &mut Rng,
        step_count: usize,
        trace: &mut Trace<CollectedState>,
    ) -> Outcome<()> {
        session::run(self, device, rng, step_count, trace)
    }

    fn inspect(&self, device: &Arc<SimDevice>, _: &mut Rng) -> Outcome<Found> {
        let mounted = self.files.mount(device)?;
        verify(&*mounted.disk).map_err(|error| format!("mounted: {error}"))?;
        self.look(&mounted)
    }

    fn is_state(&self, found: &Found, state: &CollectedState) -> bool {
        state.difference(found).is_none()
    }

    fn explain(&self, found: &Found, state: &CollectedState) -> String {
        let difference = state.difference(found);
        difference.map_or_else(
            || "no difference".into(),
            |text| format!("{text} (found first, expected second)"),
        )
    }
}
