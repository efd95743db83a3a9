//! A logical disk with the work that is done on it, and its states.

use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::model::{ModelState, ModelVersions};
use dendro_disk::testgen::Profile;
use dendro_disk::{Lid, LogicalDisk};

use super::engine::{Engine, NOW};
use crate::system::Outcome;

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
    /// How many of these in a hundred give a client a quota, or none.
    pub quotas_percent: u64,
    /// Bytes that are written to an empty disk before the work begins.
    pub ballast_bytes: u64,
    /// The device forgets to flush, while it is worked on: the promise that all else stands on is
    /// broken, which must be noticed.
    pub loses_flushes: bool,
}

impl<E: Engine> DiskSystem<E> {
    /// A disk with units like `profile` and nothing else: no bulk, versions, quotas, ballast or
    /// broken promises.
    pub const fn new(engine: E, profile: Profile) -> Self {
        Self {
            engine,
            profile,
            bulk_percent: 0,
            versions_percent: 0,
            quotas_percent: 0,
            ballast_bytes: 0,
            loses_flushes: false,
        }
    }

    /// The device as the work finds it, without faults other than those of its kind.
    pub(super) fn restore_faults(&self, device: &SimDevice) {
        device.clear_faults();
        if self.loses_flushes {
            device.inject(Fault::lose(Call::Flush).forever());
        }
    }

    /// All that the disk holds, in all versions.
    pub(crate) fn read(&self, disk: &E::Disk) -> dendro_disk::Result<ModelVersions> {
        // A disk may end epochs of its own accord, which does not count where there is one version.
        match self.engine.versions(disk).filter(|_| self.versions_percent > 0) {
            Some(versions) => ModelVersions::read_from(versions),
            None => Ok(ModelVersions::new(ModelState::read_from(disk)?, NOW)),
        }
    }

    /// Looks at everything.
    pub(super) fn examine(&self, disk: &E::Disk, device: &dyn Device) -> Outcome<FoundDisk> {
        self.engine.verify(device).map_err(|error| format!("it is inconsistent: {error}"))?;
        let contents = self.read(disk).map_err(|error| format!("reading failed: {error}"))?;
        let next_list =
            disk.allocate_list().map_err(|error| format!("no list can be allocated: {error}"))?;
        Ok(FoundDisk { contents, next_list })
    }
}
