//! A file system with the work that is done on it, and its states.

use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::SimDevice;
use dendro_disk::{LogicalDisk, View};
use dendro_fs::testing::{Profile, StepClock, Tree};
use dendro_fs::{AtimePolicy, FileSystem, FreeingLimits, Options};

use super::script::Script;
use crate::disk::Engine;
use crate::system::Outcome;

/// A file system with the work that is done on it.
#[derive(Clone, Debug)]
pub struct FsSystem<E> {
    /// What makes the disk below it.
    pub engine: E,
    /// What the calls are like. Each must be one atomic recovery unit so far as can be seen.
    pub profile: Profile,
    /// How many i-nodes are kept in memory.
    pub inode_cache_len: usize,
    /// How the pages are freed that are cut off or punched.
    pub freeing: FreeingLimits,
}

/// A moment of the work on a file system.
#[derive(Clone, Debug)]
pub struct FsState {
    pub(crate) tree: Arc<Tree>,
    /// The acts that led to it, from which its model can be made again.
    pub(crate) script: Script,
}

/// A mounted file system with what it stands on.
pub(crate) struct Mounted<D> {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) disk: Arc<D>,
    pub(crate) clock: Arc<StepClock>,
}

impl<E: Engine> FsSystem<E> {
    /// Opens the disk, sees that it holds a file system without faults, and mounts that.
    pub(crate) fn mount(&self, device: &Arc<SimDevice>) -> Outcome<Mounted<E::Disk>> {
        let disk = Arc::new(self.engine.open(Arc::clone(device) as Arc<dyn Device>)?);
        self.engine.verify(&**device).map_err(|error| format!("it is inconsistent: {error}"))?;
        verify(&*disk).map_err(|error| format!("before it is mounted: {error}"))?;
        let clock = Arc::new(StepClock::default());
        let options = Options {
            atime: AtimePolicy::Noatime,
            inode_cache_len: self.inode_cache_len,
            freeing: self.freeing,
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
pub(crate) fn verify(disk: &dyn LogicalDisk) -> Outcome<()> {
    let findings = dendro_fs::verify(disk, View::HEAD).map_err(|error| error.to_string())?;
    match findings.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} findings, the first: {first}", findings.len())),
    }
}

pub(crate) fn tree_of(fs: &FileSystem) -> Outcome<Tree> {
    Tree::of_fs(fs).map_err(|error| format!("reading failed: {error}"))
}
