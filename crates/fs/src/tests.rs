//! The file system over the model disk, against the reference model.

mod differential;

use dendro_base::sync::Arc;
use dendro_disk::LogicalDisk;
use dendro_disk::View;
use dendro_disk::model::ModelDisk;

use crate::testing::StepClock;
use crate::{AtimePolicy, FileSystem, FormatOptions, Options, verify};

/// A file system on a model disk.
pub(crate) struct Fixture {
    pub(crate) disk: Arc<ModelDisk>,
    pub(crate) clock: Arc<StepClock>,
    pub(crate) fs: Arc<FileSystem>,
    options: Options,
    hash_mask: u64,
}

pub(crate) fn format_options() -> FormatOptions {
    FormatOptions { uid: 0, gid: 0, mode: 0o755, label: "test".into(), hash_key: [7; 16] }
}

pub(crate) fn noatime() -> Options {
    Options { atime: AtimePolicy::Noatime, ..Options::default() }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(ModelDisk::new(None), noatime(), u64::MAX)
    }

    pub(crate) fn with(disk: ModelDisk, options: Options, hash_mask: u64) -> Self {
        let (disk, clock) = (Arc::new(disk), Arc::new(StepClock::default()));
        FileSystem::create_on(&*disk, &format_options(), &*clock).unwrap();
        let fs = mount(&disk, &clock, &options, hash_mask);
        Self { disk, clock, fs, options, hash_mask }
    }

    /// Drops the file system without a word, as a crash of the process does, and mounts anew.
    pub(crate) fn remount(&mut self) {
        self.fs = mount(&self.disk, &self.clock, &self.options, self.hash_mask);
    }

    pub(crate) fn assert_sound(&self) {
        let findings =
            verify::verify_with_hash_mask(&*self.disk, View::HEAD, self.hash_mask).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

fn mount(
    disk: &Arc<ModelDisk>,
    clock: &Arc<StepClock>,
    options: &Options,
    hash_mask: u64,
) -> Arc<FileSystem> {
    let disk = Arc::clone(disk) as Arc<dyn LogicalDisk>;
    let clock = Arc::clone(clock) as Arc<dyn dendro_base::Clock>;
    let fs = FileSystem::mount_with_hash_mask(disk, options.clone(), clock, hash_mask);
    Arc::new(fs.unwrap())
}
