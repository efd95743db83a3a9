//! What to mount and how, and why that fails.

use std::io;
use std::path::PathBuf;

use crate::dev_fuse::DEVICE;

/// The result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file system could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no FUSE, or does not let this user have it.
    #[error("{DEVICE} cannot be opened: {0}; {advice}", advice = advice(.0))]
    NoFuse(io::Error),
    /// The mount point cannot be used.
    #[error("{path}: {source}", path = .path.display())]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Mounting failed.
    #[error("cannot mount on {path}: {source}", path = .path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// The error of the system, or of the helper that mounts for users.
        source: io::Error,
    },
    /// The mount is in use.
    #[error(
        "{path} is busy: a process has a file open there or works in that directory",
        path = .0.display()
    )]
    Busy(PathBuf),
    /// Unmounting failed.
    #[error("cannot unmount {path}: {source}", path = .path.display())]
    Unmount {
        /// The directory.
        path: PathBuf,
        /// The error of the system, or of the helper that unmounts for users.
        source: io::Error,
    },
}

/// What to do if [`DEVICE`] cannot be opened.
fn advice(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("it lets only some users in: root can change that, with `chmod 666 {DEVICE}`")
        }
        _ => format!(
            "load the module with `modprobe fuse`, or in a container pass the device in (--device \
             {DEVICE} --cap-add SYS_ADMIN)"
        ),
    }
}

/// The users whose requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The user who mounts.
    #[default]
    Owner,
    /// That user and root.
    OwnerAndRoot,
    /// All users, as permissions allow.
    All,
}

/// What to mount, and with which options.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// The source in the table of mounts.
    pub source: String,
    /// The type in the table of mounts is `fuse.` followed by this.
    pub subtype: String,
    /// The kernel refuses changes.
    pub read_only: bool,
    /// The users whose requests the kernel passes on. It passes on all users' for
    /// [`Access::OwnerAndRoot`]: then [`crate::Options::only_user`] must refuse the others.
    pub access: Access,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Device files work. Only root can have this.
    pub dev: bool,
    /// Set-id bits work. Only root can have this.
    pub suid: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Symbolic links are not followed. Only root can have this.
    pub nosymfollow: bool,
    /// Each write is durable before it returns.
    pub sync: bool,
    /// The table of mounts shows that changes of names are durable before they return. The file
    /// system must do that.
    pub dirsync: bool,
    /// The table of mounts shows that access times are not kept.
    pub noatime: bool,
    /// The source is a block device, which the kernel claims for the mount. The type is `fuseblk.`
    /// followed by the subtype. sync(2) and syncfs(2) are passed on, and umount(2) waits until
    /// [`crate::FileSystem::destroy`] has returned. Only root can have this.
    pub block_device: bool,
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountMode {
    /// Only if it is not in use.
    Idle,
    /// Remove it from the tree of directories now. Programs that use it go on, and the file system
    /// is served until the last of them has finished.
    Detach,
    /// Now: programs that use it get errors. Only root can do this.
    Abort,
}
