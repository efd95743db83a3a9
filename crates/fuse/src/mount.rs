//! Mounting, serving, unmounting.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dendro_fs::FileSystem;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::adapter::{Adapter, Report};

const DEVICE: &str = "/dev/fuse";
const SUBTYPE: &str = "dendro";
const HELPER: &str = "fusermount3";

/// What mounting answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file system is not mounted, or not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no FUSE, or keeps it from this user.
    #[error(
        "{DEVICE} cannot be opened: {0}; load the module with `modprobe fuse`, or in a container \
         pass the device in (--device {DEVICE} --cap-add SYS_ADMIN)"
    )]
    NoFuse(io::Error),
    /// The mount point is of no use.
    #[error("{path}: {source}", path = .path.display())]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system did not mount.
    #[error("cannot mount on {path}: {source}", path = .path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// What the system, or the helper that mounts for users, said.
        source: io::Error,
    },
    /// Someone uses the mount.
    #[error(
        "{path} is busy: a process has a file open there or works in that directory (`fuser -vm \
         {path}` lists them)", path = .0.display()
    )]
    Busy(PathBuf),
    /// The system did not unmount.
    #[error("cannot unmount {path}: {source}", path = .path.display())]
    Unmount {
        /// The directory.
        path: PathBuf,
        /// What the system, or the helper that unmounts for users, said.
        source: io::Error,
    },
}

/// Whose requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The user's who mounts.
    #[default]
    Owner,
    /// That user's and root's.
    OwnerAndRoot,
    /// Everyone's, as permissions allow.
    All,
}

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
    /// Make each write durable before it returns.
    pub sync: bool,
    /// Show in the table of mounts that access times are not kept.
    pub noatime: bool,
    /// How many requests can be served at a time.
    pub threads: usize,
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
            noatime: false,
            threads: 1,
        }
    }
}

/// A file system that is mounted, and served by [`Self::serve`]. Dropping it unserved leaves a
/// dead mount behind; [`unmount`] it.
pub struct Mount {
    session: Session<Adapter>,
    mount_point: PathBuf,
}

impl Mount {
    /// Mounts `fs` on the directory `mount_point`. Root's mounts are made by mount(2); others go
    /// through fusermount3.
    ///
    /// `report` is told of damage and failed I/O, which the caller of the system call sees as a
    /// bare `EIO`.
    ///
    /// # Errors
    /// [`Error::NoFuse`], [`Error::MountPoint`], [`Error::Mount`].
    pub fn new(
        fs: Arc<FileSystem>,
        mount_point: &Path,
        options: &MountOptions,
        report: Arc<Report>,
    ) -> Result<Self> {
        let mount_point = checked_mount_point(mount_point)?;
        let adapter = Adapter::new(fs, report);
        let device = File::options().read(true).write(true).open(DEVICE).map_err(Error::NoFuse)?;
        let fail = |source| Error::Mount { path: mount_point.clone(), source };
        let session = match mount_directly(&device, &mount_point, options) {
            Ok(()) => {
                let session =
                    Session::from_fd(adapter, OwnedFd::from(device), acl(options), config(options));
                session.inspect_err(|_| {
                    // The handshake failed; the error that matters is that one.
                    let _ = unmount(&mount_point, UnmountMode::Detach);
                })
            }
            Err(Errno::PERM) => {
                drop(device);
                Session::new(adapter, &mount_point, &config(options)).map_err(explain_helper)
            }
            Err(errno) => Err(errno.into()),
        };
        Ok(Self { session: session.map_err(fail)?, mount_point })
    }

    /// The directory, as an absolute path without symbolic links.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Serves requests, on as many threads as were asked for, until the file system is unmounted
    /// by anyone.
    ///
    /// # Errors
    /// When the connection to the kernel fails; the mount is gone then too.
    pub fn serve(self) -> io::Result<()> {
        let Self { session, mount_point } = self;
        session.run().inspect_err(|_| {
            let _ = unmount(&mount_point, UnmountMode::Detach);
        })
    }
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountMode {
    /// Unless someone uses it.
    Idle,
    /// Out of the tree of directories now; those who use it go on, and the file system is served
    /// until the last of them is done.
    Detach,
    /// Now: those who use it get errors. Root alone can do this.
    Abort,
}

/// How often and after what pause a busy mount is tried again: the kernel holds a file for a moment
/// longer than its last user, while it reads ahead or gives the file back.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Takes away what is mounted on `mount_point`. One that is in use is tried again for a second.
///
/// # Errors
/// [`Error::Busy`], [`Error::Unmount`].
pub fn unmount(mount_point: &Path, mode: UnmountMode) -> Result<()> {
    for _ in 1..BUSY_TRIES {
        match unmount_once(mount_point, mode) {
            Err(Error::Busy(_)) => std::thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
    unmount_once(mount_point, mode)
}

fn unmount_once(mount_point: &Path, mode: UnmountMode) -> Result<()> {
    let fail = |source| Error::Unmount { path: mount_point.to_path_buf(), source };
    let flags = UnmountFlags::NOFOLLOW
        | match mode {
            UnmountMode::Idle => UnmountFlags::empty(),
            UnmountMode::Detach => UnmountFlags::DETACH,
            UnmountMode::Abort => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
    match rustix::mount::unmount(mount_point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Error::Busy(mount_point.to_path_buf())),
        Err(Errno::PERM) => unmount_by_helper(mount_point, mode),
        Err(errno) => Err(fail(errno.into())),
    }
}

fn unmount_by_helper(mount_point: &Path, mode: UnmountMode) -> Result<()> {
    let fail = |source| Error::Unmount { path: mount_point.to_path_buf(), source };
    let lazily: &[&str] = if mode == UnmountMode::Idle { &[] } else { &["-z"] };
    let output = Command::new(HELPER)
        .arg("-u")
        .args(lazily)
        .arg("--")
        .arg(mount_point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| fail(io::Error::new(error.kind(), format!("{HELPER}: {error}"))))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("busy") {
        return Err(Error::Busy(mount_point.to_path_buf()));
    }
    Err(fail(io::Error::other(message.trim().to_owned())))
}

fn checked_mount_point(mount_point: &Path) -> Result<PathBuf> {
    let fail = |source| Error::MountPoint { path: mount_point.to_path_buf(), source };
    let absolute = mount_point.canonicalize().map_err(fail)?;
    if !fs::metadata(&absolute).map_err(fail)?.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    Ok(absolute)
}

/// mount(2), with the type fuse.dendro, which `fuser` does not set.
fn mount_directly(
    device: &File,
    mount_point: &Path,
    options: &MountOptions,
) -> rustix::io::Result<()> {
    let root = fs::metadata(mount_point)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        root.mode(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.access != Access::Owner {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::NOATIME, options.noatime);
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let fs_type = format!("fuse.{SUBTYPE}");
    rustix::mount::mount(options.source.as_str(), mount_point, fs_type, flags, &*data)
}

fn acl(options: &MountOptions) -> SessionACL {
    match options.access {
        Access::Owner => SessionACL::Owner,
        Access::OwnerAndRoot => SessionACL::RootAndOwner,
        Access::All => SessionACL::All,
    }
}

/// What `fuser` and fusermount3 are told.
fn config(options: &MountOptions) -> Config {
    let choose = |yes, if_yes, if_no| if yes { if_yes } else { if_no };
    let mut config = Config::default();
    config.acl = acl(options);
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config.mount_options = vec![
        // fusermount3 splits its options at commas that no backslash precedes.
        MountOption::FSName(options.source.replace('\\', "\\\\").replace(',', "\\,")),
        MountOption::Subtype(SUBTYPE.into()),
        MountOption::DefaultPermissions,
        choose(options.read_only, MountOption::RO, MountOption::RW),
        choose(options.exec, MountOption::Exec, MountOption::NoExec),
        choose(options.sync, MountOption::Sync, MountOption::Async),
    ];
    if options.noatime {
        config.mount_options.push(MountOption::NoAtime);
    }
    config
}

/// Says what to do about the ways in which mounting as a user fails most.
fn explain_helper(error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            "users other than root need fusermount3 (Debian: apt install fuse3)"
        }
        io::ErrorKind::PermissionDenied => {
            "leave allow_other out, or let root put user_allow_other into /etc/fuse.conf"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}", error = error.to_string().trim()))
}
