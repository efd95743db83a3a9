//! The file system on the model of the logical disk, in a real mount.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use dendro_base::{Clock, SystemClock};
use dendro_disk::LogicalDisk;
use dendro_disk::model::ModelDisk;
use dendro_fs::{FileSystem, FormatOptions, Options};
use dendro_fuse::{Access, Mount, MountOptions, UnmountMode, unmount};

pub(crate) const CAPACITY_BYTES: u64 = 1 << 30;

/// A mounted file system, which is unmounted when this is dropped, also after a panic.
pub(crate) struct Mounted {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) server: Option<JoinHandle<io::Result<()>>>,
}

/// Mounts a new file system, unless mounts are to be skipped.
pub(crate) fn mounted() -> Option<Mounted> {
    mounted_with(&new_disk(), MountOptions { access: Access::All, ..MountOptions::default() })
}

pub(crate) fn new_disk() -> Arc<ModelDisk> {
    let disk = Arc::new(ModelDisk::new(Some(CAPACITY_BYTES)));
    let options = FormatOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o755,
        label: "test".into(),
        hash_key: *b"sixteen bytes...",
    };
    FileSystem::create_on(&*disk, &options, &SystemClock).unwrap();
    disk
}

#[allow(clippy::disallowed_methods, reason = "this is the daemon's part")]
pub(crate) fn mounted_with(disk: &Arc<ModelDisk>, options: MountOptions) -> Option<Mounted> {
    if std::env::var_os("DENDRO_SKIP_MOUNT").is_some() {
        eprintln!("left out, as DENDRO_SKIP_MOUNT is set");
        return None;
    }
    let is_root = rustix::process::geteuid().is_root();
    let options = MountOptions {
        access: if is_root { options.access } else { Access::Owner },
        source: "model, with a comma".into(),
        threads: Some(3),
        ..options
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let disk: Arc<dyn LogicalDisk> = Arc::clone(disk) as _;
    let fs_options =
        Options { lookups_keep_files: true, read_only: options.read_only, ..Options::default() };
    let fs = Arc::new(FileSystem::mount(disk, fs_options, clock).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let report = |operation: &str, error: &_| panic!("{operation}: {error}");
    let mount = Mount::new(Arc::clone(&fs), directory.path(), &options, Arc::new(report))
        .unwrap_or_else(|error| panic!("{error}\nDENDRO_SKIP_MOUNT=1 leaves such tests out"));
    let server = Some(thread::spawn(move || mount.serve()));
    Some(Mounted { directory, fs, server })
}

impl Mounted {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Unmounts, and shuts the file system down.
    pub(crate) fn finish(mut self) {
        unmount(self.root(), UnmountMode::Idle).unwrap();
        self.server.take().unwrap().join().unwrap().unwrap();
        self.fs.shut_down().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = unmount(self.root(), UnmountMode::Abort);
            let _ = server.join();
        }
    }
}
