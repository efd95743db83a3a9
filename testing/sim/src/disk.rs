//! A logical disk as a system: random units, flushes, background work and reopenings, compared with
//! the model.

mod session;
pub mod threads;
mod versions;

use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::model::{ModelState, ModelVersions};
use dendro_disk::testgen::Profile;
use dendro_disk::{Lid, LogicalDisk, Versions};

use crate::system::{Outcome, System};
use crate::trace::Trace;

/// The time at which everything happens.
pub(crate) const NOW: Timestamp = Timestamp(1_767_225_600_000_000_000);

/// How a kind of logical disk is made, opened and driven.
pub trait Engine: Sync {
    /// The disk.
    type Disk: LogicalDisk + 'static;

    /// Makes an empty one, durable.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn format(&self, device: Arc<dyn Device>) -> Outcome<()>;

    /// Opens one, recovering it if need be.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn open(&self, device: Arc<dyn Device>) -> Outcome<Self::Disk>;

    /// Does a piece of background work, chosen by `rng`.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn background(&self, disk: &Self::Disk, rng: &mut Rng) -> Outcome<()>;

    /// In what it cuts its device.
    fn segment_len_bytes(&self) -> u64 {
        0
    }

    /// Does a piece, chosen by `rng`, of what makes room, as one of several threads that do nothing
    /// else.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn clean(&self, disk: &Self::Disk, rng: &mut Rng) -> Outcome<()> {
        self.background(disk, rng)
    }

    /// Checks what lies on the device after a disk was opened, or shut down, there.
    ///
    /// # Errors
    /// What is wrong.
    fn verify(&self, _device: &dyn Device) -> Outcome<()> {
        Ok(())
    }

    /// The disk as one with versions, if it is.
    fn versions<'d>(&self, _disk: &'d Self::Disk) -> Option<&'d dyn Versions> {
        None
    }

    /// Figures of the disk, for the message of a failure.
    fn describe(&self, _disk: &Self::Disk) -> String {
        String::new()
    }

    /// Opens a disk for reading only; `None` when this kind cannot be.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn open_read_only(&self, _device: Arc<dyn Device>) -> Outcome<Option<Self::Disk>> {
        Ok(None)
    }
}

/// A moment of the work on a disk.
#[derive(Clone, Debug)]
pub struct DiskState {
    /// What it holds.
    pub contents: ModelVersions,
    /// The highest list that was ever created; numbers up to it must not be given out again.
    pub highest_list: Lid,
}

/// What is found on a disk.
#[derive(Clone, Debug)]
pub struct FoundDisk {
    /// What it holds.
    pub contents: ModelVersions,
    /// The number it gives to a new list.
    pub next_list: Lid,
}

/// A logical disk with the work that is done on it.
#[derive(Clone, Debug)]
pub struct DiskSystem<E> {
    /// The disk.
    pub engine: E,
    /// What the units are like.
    pub profile: Profile,
    /// How many units in a hundred change hundreds of records, so that the map has many nodes.
    pub bulk_percent: u64,
    /// How many steps in a hundred make, change or delete versions.
    pub versions_percent: u64,
    /// Bytes that are written to an empty disk before the work begins.
    pub ballast_bytes: u64,
    /// The device forgets to flush, while it is worked on: the promise that all else stands on is
    /// broken, which must be noticed.
    pub loses_flushes: bool,
}

impl<E: Engine> DiskSystem<E> {
    /// A disk with units like `profile` and nothing else: no bulk, versions, ballast or broken promises.
    pub const fn new(engine: E, profile: Profile) -> Self {
        Self {
            engine,
            profile,
            bulk_percent: 0,
            versions_percent: 0,
            ballast_bytes: 0,
            loses_flushes: false,
        }
    }

    /// The device as the work finds it, without faults other than those of its kind.
    fn restore_faults(&self, device: &SimDevice) {
        device.clear_faults();
        if self.loses_flushes {
            device.inject(Fault::lose(Call::Flush).forever());
        }
    }

    /// All that the disk holds, in all versions.
    fn read(&self, disk: &E::Disk) -> dendro_disk::Result<ModelVersions> {
        match self.engine.versions(disk) {
            Some(versions) => ModelVersions::read_from(versions),
            None => Ok(ModelVersions::new(ModelState::read_from(disk)?, NOW)),
        }
    }

    /// Looks at everything.
    fn examine(&self, disk: &E::Disk, device: &dyn Device) -> Outcome<FoundDisk> {
        self.engine.verify(device).map_err(|error| format!("it is inconsistent: {error}"))?;
        let contents = self.read(disk).map_err(|error| format!("reading failed: {error}"))?;
        let next_list =
            disk.allocate_list().map_err(|error| format!("no list can be allocated: {error}"))?;
        Ok(FoundDisk { contents, next_list })
    }
}

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
        let read_only = if rng.chance(10) {
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
        }
        let disk = self.engine.open(Arc::clone(device) as Arc<dyn Device>)?;
        let found = self.examine(&disk, &**device)?;
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
