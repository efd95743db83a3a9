//! Mounting a file system and serving it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_fs::FileSystem;
use dendro_fuse_transport::{
    Access, Choice, Error, InitFlags, MountRequest, MountResult as Result, Mounted, Options,
    Session, Timings, Transport, UnmountMode, enable_uring, mount, mount_detached, unmount,
};

use crate::adapter::{Adapter, Report, wishes};
use crate::current_fs::CurrentFs;
use crate::handed_over::BlockCounts;
use crate::past::Past;
use crate::router::Router;
use crate::snapshot_dir::SnapshotDir;
use crate::switch::Switch;
use crate::sync_mode::SyncSwitch;

const SUBTYPE: &str = "dendro";

/// The default number of threads. Over `/dev/fuse`: this many more than there are cores, since
/// requests wait for the device, and those that can share one flush wait together …
const SPARE_THREADS: usize = 2;
/// … Over io_uring, where a request waits for a thread of its own core: this many in all, …
const RING_THREADS: usize = 16;
/// … but for each core within these bounds.
const RING_THREADS_PER_CORE: std::ops::RangeInclusive<usize> = 2..=8;

/// How far the kernel reads ahead of programs that read sequentially. Several requests of the
/// largest size are in progress then, while the program uses the replies to as many more. With half
/// of this the device is idle now and then.
const READ_AHEAD_BYTES: usize = 8 << 20;

/// When the kernel hands over what programs write to files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Before write(2) returns, so that all operations come in their order.
    #[default]
    Strict,
    /// It collects what is written until the file is closed or synced, it needs the memory, or
    /// somebody calls syncfs(2).
    Close,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in the table of mounts: the path of the image or device.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
    /// The users whose requests are served.
    pub access: Access,
    /// Let device files work. Only root can have this.
    pub dev: bool,
    /// Let set-id bits work. Only root can have this.
    pub suid: bool,
    /// Let programs be run.
    pub exec: bool,
    /// Make each change durable before it returns.
    pub sync: bool,
    /// Make each change of names durable before it returns, as `sync` does too.
    pub dirsync: bool,
    /// Show in the table of mounts that access times are not kept.
    pub noatime: bool,
    /// Do not follow symbolic links. Only root can have this.
    pub nosymfollow: bool,
    /// When the kernel hands over what programs write.
    pub order: Order,
    /// Whether programs have extended attributes and access control lists. Without them the kernel
    /// asks for none, which saves a round trip where a file is first written, and others where
    /// files are copied.
    pub xattr: bool,
    /// The source is a block device, which the kernel claims for the mount. Then sync(2) and
    /// syncfs(2) reach the file system, and umount(2) waits for the work of
    /// [`Mount::set_on_unmount`]. Only root can have this.
    pub block_device: bool,
    /// How many requests can be served at the same time. Over io_uring the threads are distributed
    /// equally to all cores. `None`: a default that depends on the number of cores.
    pub threads: Option<usize>,
    /// How requests are to come.
    pub transport: Choice,
    /// Allow FUSE over io_uring on this machine first. Only root can do this.
    pub enable_uring: bool,
    /// The snapshots that the hidden directory `.dendro` in the root shows; `None`: there is no
    /// such directory.
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
            order: Order::Strict,
            xattr: true,
            block_device: false,
            threads: None,
            transport: Choice::Auto,
            enable_uring: false,
            past: None,
            timings: None,
        }
    }
}

/// A mounted file system, which [`Self::serve`] serves. If it is dropped without being served, a
/// dead mount remains; [`unmount`] it.
#[derive(Debug)]
pub struct Mount {
    session: Session<Router>,
    current: Arc<CurrentFs>,
    sync: SyncSwitch,
    mount_point: PathBuf,
    is_elsewhere: bool,
}

impl Mount {
    /// Mounts `fs` on the directory `mount_point`: for root by mount(2), for others through
    /// fusermount3.
    ///
    /// `report` is called for damage and failed I/O, of which the caller of the system call sees
    /// only `EIO`.
    ///
    /// # Errors
    /// [`Error::NoFuse`], [`Error::MountPoint`], [`Error::Mount`]; the last also if
    /// io_uring is required and not available.
    pub fn new(
        fs: Arc<FileSystem>,
        mount_point: &Path,
        options: &MountOptions,
        report: Arc<Report>,
    ) -> Result<Self> {
        let mounted = mount_for_others(mount_point, options)?;
        let mount_point = mounted.mount_point().to_path_buf();
        Self::serving(mounted, fs, options, report).inspect_err(|_| {
            // The error of the handshake is the one to return.
            let _ = unmount(&mount_point, UnmountMode::Detach);
        })
    }

    /// Takes over a mount that exists and was not served yet. Of `options` those count that say how
    /// to serve it. After an error the mount remains, dead; its creator must [`unmount`] it.
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
        let current = Arc::new(CurrentFs::new(fs));
        let sync = SyncSwitch::new(options.sync, options.dirsync);
        let adapter = Adapter::new(Arc::clone(&current), report, sync.clone(), options.xattr);
        let snapshots = options.past.clone().map(SnapshotDir::new);
        let router = Router::new(adapter, snapshots, options.timings.clone());
        let session = Session::start(mounted, router, serving(options))
            .map_err(|source| Error::Mount { path: mount_point.clone(), source })?;
        session.file_system().set_notifier(session.notifier());
        Ok(Self { session, current, sync, mount_point, is_elsewhere })
    }

    /// Sets what to do when a mount of a block device is unmounted; umount(2) waits for it. All
    /// requests were answered before, and none comes after it.
    pub fn set_on_unmount(&self, work: impl Fn() + Send + Sync + 'static) {
        self.session.file_system().set_on_unmount(Box::new(work));
    }

    /// The directory, as an absolute path without symbolic links.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The switch that makes this mount show another file system, also while it is being served.
    #[must_use]
    pub fn switch(&self) -> Switch {
        Switch::new(Arc::clone(&self.current), self.session.notifier())
    }

    /// The switch that changes which changes are durable before the reply, also while it is being
    /// served.
    #[must_use]
    pub fn sync_switch(&self) -> SyncSwitch {
        self.sync.clone()
    }

    /// What has the kernel ask for numbers of blocks that it does not know.
    #[must_use]
    pub fn block_counts(&self) -> BlockCounts {
        let handed_over = self.session.file_system().handed_over();
        BlockCounts::new(Arc::clone(handed_over), self.session.notifier())
    }

    /// How requests come.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.session.transport()
    }

    /// Why requests do not come over io_uring, if they do not.
    #[must_use]
    pub fn why_no_uring(&self) -> Option<&str> {
        self.session.why_no_uring()
    }

    /// Serves requests until the file system is unmounted.
    ///
    /// # Errors
    /// If the connection to the kernel fails. Then the file system is unmounted, too.
    pub fn serve(self) -> io::Result<()> {
        let Self { session, mount_point, is_elsewhere, .. } = self;
        session.run().inspect_err(|_| {
            if !is_elsewhere {
                let _ = unmount(&mount_point, UnmountMode::Detach);
            }
        })
    }
}

/// Mounts on the directory `mount_point` for another process, which gets the connection and serves
/// it by [`Mount::serving`].
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

/// Creates a mount for another user that is not attached to a directory yet, to be served by
/// [`Mount::serving`]. The descriptor is that of the mount. See [`mount_detached`].
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
    wishes.flags.set(InitFlags::WRITEBACK_CACHE, options.order == Order::Close);
    let only_user = match options.access {
        Access::OwnerAndRoot => Some(rustix::process::geteuid().as_raw()),
        Access::Owner | Access::All => {
            // Requests do not name their user then, so the server could not refuse other users.
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
