//! The file system over the model disk, against the reference model.

mod attributes;
mod check;
mod damage;
mod data;
mod differential;
mod names;
mod paths;
mod quota;
mod repair;
mod threads;

use dendro_base::sync::Arc;
use dendro_disk::LogicalDisk;
use dendro_disk::View;
use dendro_disk::model::ModelDisk;

use crate::check::verify_with;
use crate::testing::StepClock;
use crate::{
    AtimePolicy, Attr, Caller, CheckOptions, FileSystem, FormatOptions, Ino, OpenOptions, Options,
    SetAttr,
};

/// The default owner of files in tests.
pub(crate) const USER: Caller<'_> = Caller { uid: 1000, gid: 100, umask: 0, security_context: &[] };

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
        FileSystem::create_on(&disk, &format_options(), &StepClock::default()).unwrap();
        Self::over(disk, options, hash_mask)
    }

    /// A fixture over a disk that has a file system already.
    pub(crate) fn over(disk: ModelDisk, options: Options, hash_mask: u64) -> Self {
        let (disk, clock) = (Arc::new(disk), Arc::new(StepClock::default()));
        let fs = mount(&disk, &clock, &options, hash_mask);
        Self { disk, clock, fs, options, hash_mask }
    }

    /// Drops the file system without closing it, as a crash of the process does, and mounts it
    /// again.
    pub(crate) fn remount(&mut self) {
        self.fs = mount(&self.disk, &self.clock, &self.options, self.hash_mask);
    }

    /// Creates a file in the root directory, which is not open.
    pub(crate) fn file(&self, name: &str) -> Ino {
        let attr = self
            .fs
            .create(&USER, Ino::ROOT, name.as_bytes(), 0o644, OpenOptions::default())
            .unwrap();
        self.fs.release(attr.ino);
        attr.ino
    }

    /// Creates a file with contents in the root directory.
    pub(crate) fn file_with(&self, name: &str, data: &[u8]) -> Ino {
        let ino = self.file(name);
        assert_eq!(self.fs.write(ino, 0, data, false), Ok(data.len()));
        ino
    }

    /// Creates a directory in the root directory.
    pub(crate) fn dir(&self, name: &str) -> Ino {
        self.fs.mkdir(&USER, Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino
    }

    pub(crate) fn attr(&self, ino: Ino) -> Attr {
        self.fs.getattr(ino).unwrap()
    }

    pub(crate) fn set(&self, ino: Ino, changes: SetAttr) -> Attr {
        self.fs.setattr(&Caller::default(), ino, &changes).unwrap()
    }

    pub(crate) fn truncate(&self, ino: Ino, size: u64) {
        self.set(ino, SetAttr { size_bytes: Some(size), ..SetAttr::default() });
    }

    /// The contents of a file.
    pub(crate) fn contents(&self, ino: Ino) -> Vec<u8> {
        let mut bytes = vec![0xee; self.attr(ino).size_bytes as usize];
        assert_eq!(self.fs.read(ino, 0, &mut bytes), Ok(bytes.len()));
        bytes
    }

    /// The names in a directory without `.` and `..`, in the order of the listing.
    pub(crate) fn list(&self, ino: Ino) -> Vec<String> {
        let mut names = Vec::new();
        let sink = &mut |entry: crate::DirEntry<'_>| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        };
        self.fs.readdir(ino, 0, sink).unwrap();
        assert_eq!(names[..2], [".", ".."]);
        names.split_off(2)
    }

    pub(crate) fn assert_sound(&self) {
        let options = CheckOptions::default().with_hash_mask(self.hash_mask);
        let findings = verify_with(&*self.disk, View::HEAD, options).unwrap();
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

/// The number of the error.
pub(crate) fn errno<T: std::fmt::Debug>(result: crate::Result<T>) -> i32 {
    result.unwrap_err().errno()
}
