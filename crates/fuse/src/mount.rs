//! Mounting and serving.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_fs::FileSystem;
use dendro_fuse_transport::{
    Access, Choice, Error, InitFlags, MountRequest, MountResult as Result, Mounted, Options,
    Session, Timings, Transport, UnmountMode, enable_uring, mount, mount_detached, unmount,
};

use crate::adapter::{Adapter, AtOnce, Report, wishes};
use crate::hidden::Hidden;
use crate::layer::Layer;
use crate::live::Live;
use crate::past::Past;
use crate::switch::Switch;

const SUBTYPE: &str = "dendro";

/// How many requests can be served at a time, unless it is said: on `/dev/fuse` so many more than
/// there are cores, as requests wait for the device, and those that could share one flush wait
/// together …
const SPARE_THREADS: usize = 2;
/// … and over io_uring, where a request waits for a thread of its own core, so many in all, …
const RING_THREADS: usize = 16;
/// … but for each core no fewer and no more than these.
const RING_THREADS_PER_CORE: std::ops::RangeInclusive<usize> = 2..=8;

/// How far the kernel reads ahead of programs that read in order: so far that several requests of the
/// largest size are under way while the answers to as many more are being used. With half of it the
/// device rests now and then.
const READ_AHEAD_BYTES: usize = 8 << 20;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the table of mounts shows as the source: the image's or device's path.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
    /// Whose requests are served.
    pub access: Access,
    /// Let device files work. Users who are not root cannot have this.
    pub dev: bool,
    /// Let set-id bits work. Users who are not root cannot have this.
    pub suid: bool,
    /// Let programs be run.
    pub exec: bool,
    /// Make each change durable before it returns.
    pub sync: bool,
    /// Make each change of names durable before it returns, as `sync` does too.
    pub dirsync: bool,
    /// Show in the table of mounts that access times are not kept.
    pub noatime: bool,
    /// Do not follow symbolic links. Users who are not root cannot have this.
    pub nosymfollow: bool,
    /// The source is a block device, which the kernel claims for the mount, so that sync(2) and
    /// syncfs(2) reach the file system and umount(2)
    /// waits for [`Mount::set_end`]'s work. Root alone can have this.
    pub block_device: bool,
    /// How many requests can be served at a time; over io_uring, in equal parts on all cores.
    /// `None`: as befits the machine.
    pub threads: Option<usize>,
    /// Which way requests shall come.
    pub transport: Choice,
    /// Allow FUSE over io_uring on this machine first, which root alone can.
    pub enable_uring: bool,
    /// What the hidden directory `.dendro` in the root shows; `None`: there is none.
    pub past: Option<Arc<dyn Past>>,
    /// Where requests are counted; `None`: nowhere.
    pub timings: Option<Arc<Timings>>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: SUBTYPE.into(),
            read_only: false,
            access: Access::Owner,
            dev: true,
            suid: true,
            exec: true,
            sync: false,
            dirsync: false,
            noatime: false,
            nosymfollow: false,
            block_device: false,
            threads: None,
            transport: Choice::Auto,
            enable_uring: false,
            past: None,
            timings: None,
        }
    }
}

/// A file system that is mounted, and served by [`Self::serve`]. Dropping it unserved leaves a
/// dead mount behind; [`unmount`] it.
#[derive(Debug)]
pub struct Mount {
    session: Session<Layer>,
    live: Arc<Live>,
    mount_point: PathBuf,
    is_elsewhere: bool,
}

impl Mount {
    /// Mounts `fs` on the directory `mount_point`. Root's mounts are made by mount(2); others go
    /// through fusermount3.
    ///
    /// `report` is told of damage and failed I/O, which the caller of the system call sees as a
    /// bare `EIO`.
    ///
    /// # Errors
    /// [`Error::NoFuse`], [`Error::MountPoint`], [`Error::Mount`]; the last also when io_uring is
    /// asked for and not to be had.
    pub fn new(
        fs: Arc<FileSystem>,
        mount_point: &Path,
        options: &MountOptions,
        report: Arc<Report>,
    ) -> Result<Self> {
        let mounted = mount_for_others(mount_point, options)?;
        let mount_point = mounted.mount_point().to_path_buf();
        Self::serving(mounted, fs, options, report).inspect_err(|_| {
            // The handshake failed; the error that matters is that one.
            let _ = unmount(&mount_point, UnmountMode::Detach);
        })
    }

    /// Takes over a mount that is there, and that nobody has served yet; of `options`, what says how
    /// to serve it. On failure it stays, dead, for the one who made it to [`unmount`].
    ///
    /// # Errors
    /// [`Error::Mount`].
    pub fn serving(
        mounted: Mounted,
        fs: Arc<FileSystem>,
        options: &MountOptions,
        report: Arc<Report>,
    ) -> Result<Self> {
        let (mount_point, is_elsewhere) =
            (mounted.mount_point().to_path_buf(), mounted.is_elsewhere());
        let live = Arc::new(Live::new(fs));
        let at_once = match options {
            MountOptions { sync: true, .. } => AtOnce::All,
            MountOptions { dirsync: true, .. } => AtOnce::Names,
            _ => AtOnce::Writes,
        };
        let adapter = Adapter::new(Arc::clone(&live), report, at_once);
        let layer =
            Layer::new(adapter, options.past.clone().map(Hidden::new), options.timings.clone());
        let session = Session::start(mounted, layer, serving(options))
            .map_err(|source| Error::Mount { path: mount_point.clone(), source })?;
        session.file_system().set_notifier(session.notifier());
        Ok(Self { session, live, mount_point, is_elsewhere })
    }

    /// Does `work` when the mount of a block device goes away; umount(2) waits for it. Before that, all
    /// requests have been answered, and none comes after it.
    pub fn set_end(&self, work: impl Fn() + Send + Sync + 'static) {
        self.session.file_system().set_end(Box::new(work));
    }

    /// The directory, as an absolute path without symbolic links.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Shows another file system in this mount, also while it is served.
    #[must_use]
    pub fn switch(&self) -> Switch {
        Switch::new(Arc::clone(&self.live), self.session.notifier())
    }

    /// Which way requests come.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.session.transport()
    }

    /// Why requests do not come over io_uring, if they do not.
    #[must_use]
    pub fn why_no_uring(&self) -> Option<&str> {
        self.session.why_no_uring()
    }

    /// Serves requests until the file system is unmounted by anyone.
    ///
    /// # Errors
    /// When the connection to the kernel fails; the mount is gone then too.
    pub fn serve(self) -> io::Result<()> {
        let Self { session, mount_point, is_elsewhere, .. } = self;
        session.run().inspect_err(|_| {
            if !is_elsewhere {
                let _ = unmount(&mount_point, UnmountMode::Detach);
            }
        })
    }
}

/// Mounts on the directory `mount_point` for another process, which is passed the connection and
/// serves it by [`Mount::serving`].
///
/// # Errors
/// As [`Mount::new`].
pub fn mount_for_others(mount_point: &Path, options: &MountOptions) -> Result<Mounted> {
    if options.enable_uring {
        enable_uring()
            .map_err(|source| Error::Mount { path: mount_point.to_path_buf(), source })?;
    }
    mount(mount_point, &request(options))
}

/// Mounts for another user, and puts it nowhere yet; to be served by [`Mount::serving`]. The descriptor is of
/// the mount. See [`mount_detached`].
///
/// # Errors
/// As [`Mount::new`].
pub fn mount_for_user(
    mount_point: &Path,
    is_elsewhere: bool,
    options: &MountOptions,
    owner: (u32, u32),
) -> Result<(Mounted, OwnedFd)> {
    mount_detached(mount_point, is_elsewhere, &request(options), owner)
}

fn request(options: &MountOptions) -> MountRequest {
    MountRequest {
        source: options.source.clone(),
        subtype: SUBTYPE.into(),
        read_only: options.read_only,
        access: options.access,
        default_permissions: true,
        dev: options.dev,
        suid: options.suid,
        exec: options.exec,
        sync: options.sync,
        dirsync: options.dirsync,
        noatime: options.noatime,
        nosymfollow: options.nosymfollow,
        block_device: options.block_device,
    }
}

fn serving(options: &MountOptions) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads_per_queue = match options.threads {
        Some(threads) => threads.div_ceil(cores),
        None => (RING_THREADS / cores)
            .clamp(*RING_THREADS_PER_CORE.start(), *RING_THREADS_PER_CORE.end()),
    };
    let mut wishes = wishes();
    let only_user = match options.access {
        Access::OwnerAndRoot => Some(rustix::process::geteuid().as_raw()),
        Access::Owner | Access::All => {
            // Requests then do not say whose they are, so nobody can be left out by that.
            wishes.flags |= InitFlags::ALLOW_IDMAP;
            None
        }
    };
    Options {
        wishes,
        choice: options.transport,
        device_threads: options.threads.unwrap_or(cores + SPARE_THREADS),
        threads_per_queue,
        read_ahead_bytes: READ_AHEAD_BYTES,
        only_user,
        ..Options::default()
    }
}
