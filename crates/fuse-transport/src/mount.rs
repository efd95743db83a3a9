//! Mounting and unmounting, with the rights there are.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::device::{self, DEVICE};
use crate::helper;

/// What mounting answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file system is not mounted, or not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no FUSE, or keeps it from this user.
    #[error("{DEVICE} cannot be opened: {0}; {advice}", advice = advice(.0))]
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
        "{path} is busy: a process has a file open there or works in that directory",
        path = .0.display()
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

/// What to do where [`DEVICE`] cannot be opened.
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

/// What to mount, and how the kernel is to treat it.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// What the table of mounts shows as the source.
    pub source: String,
    /// The type there is `fuse.` and this.
    pub subtype: String,
    /// The kernel refuses changes.
    pub read_only: bool,
    /// Whose requests are passed on. [`crate::Options::only_user`] has to tell root's and the
    /// owner's from others'.
    pub access: Access,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Device files work. Users who are not root cannot have this.
    pub dev: bool,
    /// Set-id bits work. Users who are not root cannot have this.
    pub suid: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Symbolic links are not followed. Users who are not root cannot have this.
    pub nosymfollow: bool,
    /// Each write is durable before it returns.
    pub sync: bool,
    /// The table of mounts shows that changes of names are durable before they return, which is up to
    /// the file system.
    pub dirsync: bool,
    /// The table of mounts shows that access times are not kept.
    pub noatime: bool,
    /// The source is a block device, which the kernel claims for the mount: of the type `fuseblk.` and
    /// the subtype then. sync(2) and syncfs(2) are passed on, and umount(2) waits until
    /// [`crate::FileSystem::destroy`] has returned. Root alone can have this.
    pub block_device: bool,
}

/// A mount that nobody serves yet.
#[derive(Debug)]
pub struct Mounted {
    device: Arc<OwnedFd>,
    mount_point: PathBuf,
    /// The file system's device number, major and minor.
    number: Option<(u32, u32)>,
    /// The mount point names something else in this process's mount namespace.
    is_elsewhere: bool,
}

impl AsFd for Mounted {
    /// The connection, for another process that shall serve the mount: it lasts as long as any of
    /// them has it open.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Mounted {
    /// A mount that another process has made and passed on, and that nobody has served yet.
    /// `is_elsewhere`: it was made in another mount namespace. `number` is its device's minor number.
    ///
    /// # Errors
    /// `InvalidInput` when the descriptor is none of `/dev/fuse`.
    pub fn received(
        device: OwnedFd,
        mount_point: &Path,
        number: Option<u32>,
        is_elsewhere: bool,
    ) -> io::Result<Self> {
        let [received, known] = [rustix::fs::fstat(&device)?, rustix::fs::stat(DEVICE)?];
        let kind = |stat: &rustix::fs::Stat| (stat.st_mode & libc::S_IFMT, stat.st_rdev);
        if kind(&received) != kind(&known) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the descriptor is not of {DEVICE}"),
            ));
        }
        let mount_point = mount_point.to_path_buf();
        let number = number.map(|minor| (0, minor));
        Ok(Self { device: Arc::new(device), mount_point, number, is_elsewhere })
    }

    /// One that this process has made without putting it anywhere.
    pub(crate) fn made(
        device: OwnedFd,
        mount_point: &Path,
        number: (u32, u32),
        is_elsewhere: bool,
    ) -> Self {
        let mount_point = mount_point.to_path_buf();
        Self { device: Arc::new(device), mount_point, number: Some(number), is_elsewhere }
    }

    /// Whether the mount point names something else in this process's mount namespace.
    #[must_use]
    pub const fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// The directory, as an absolute path without symbolic links.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    pub(crate) const fn device(&self) -> &Arc<OwnedFd> {
        &self.device
    }

    /// Lets the kernel read ahead so far, which root alone can. It says at most 128 KiB itself.
    pub(crate) fn set_read_ahead(&self, bytes: usize) -> io::Result<()> {
        let (major, minor) = self.number.ok_or(io::ErrorKind::NotFound)?;
        // A mount of a block device has a place of its own beside the device's.
        let suffix = if major == 0 { "" } else { "-fuseblk" };
        let path = format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb");
        fs::write(path, (bytes >> 10).to_string())
    }

    /// Cuts the connection off: who uses the mount, and who serves it, gets errors from now on.
    pub(crate) fn abort(&self) {
        let aborted = self.number.is_some_and(|(major, minor)| {
            let connection = major << MINOR_BITS | minor;
            fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1").is_ok()
        });
        if !aborted && !self.is_elsewhere {
            let _ = unmount_once(&self.mount_point, UnmountMode::Abort);
        }
    }
}

/// How the kernel packs a device number, by which it names connections.
const MINOR_BITS: u32 = 20;

/// Mounts on the directory `mount_point`: by mount(2) if this process may, otherwise through
/// fusermount3.
///
/// # Errors
/// [`Error::NoFuse`], [`Error::MountPoint`], [`Error::Mount`].
pub fn mount(mount_point: &Path, request: &MountRequest) -> Result<Mounted> {
    let mount_point = checked_mount_point(mount_point)?;
    let device = device::open().map_err(Error::NoFuse)?;
    let fail = |source| Error::Mount { path: mount_point.clone(), source };
    let device = match mount_directly(&device, &mount_point, request) {
        Ok(()) => device,
        Err(Errno::PERM) if !request.block_device => {
            drop(device);
            helper::mount(&mount_point, request).map_err(fail)?
        }
        Err(errno) => return Err(fail(errno.into())),
    };
    let number = device_number(&mount_point);
    Ok(Mounted { device: Arc::new(device), mount_point, number, is_elsewhere: false })
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
        Err(Errno::PERM) => helper::unmount(mount_point, mode),
        Err(errno) => Err(fail(errno.into())),
    }
}

fn checked_mount_point(mount_point: &Path) -> Result<PathBuf> {
    let fail = |source| Error::MountPoint { path: mount_point.to_path_buf(), source };
    let absolute = mount_point.canonicalize().map_err(fail)?;
    if !fs::metadata(&absolute).map_err(fail)?.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    Ok(absolute)
}

fn mount_directly(
    device: &OwnedFd,
    mount_point: &Path,
    request: &MountRequest,
) -> rustix::io::Result<()> {
    let root = fs::metadata(mount_point)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        root.mode(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if request.default_permissions {
        data.push_str(",default_permissions");
    }
    if request.access != Access::Owner {
        data.push_str(",allow_other");
    }
    if request.block_device {
        // What the device has already: with another, its cached pages would be dropped.
        data.push_str(",blksize=4096");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, request.read_only);
    flags.set(MountFlags::NODEV, !request.dev);
    flags.set(MountFlags::NOSUID, !request.suid);
    flags.set(MountFlags::NOEXEC, !request.exec);
    flags.set(MountFlags::SYNCHRONOUS, request.sync);
    flags.set(MountFlags::DIRSYNC, request.dirsync);
    flags.set(MountFlags::NOATIME, request.noatime);
    flags.set(MountFlags::NOSYMFOLLOW, request.nosymfollow);
    let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
    let kind = if request.block_device { "fuseblk" } else { "fuse" };
    let fs_type = format!("{kind}.{}", request.subtype);
    rustix::mount::mount(request.source.as_str(), mount_point, fs_type, flags, &*data)
}

/// The device number of what is mounted on `mount_point`, which stat(2) would have to ask the server
/// for.
fn device_number(mount_point: &Path) -> Option<(u32, u32)> {
    device_number_in(&fs::read("/proc/self/mountinfo").ok()?, mount_point)
}

fn device_number_in(table: &[u8], mount_point: &Path) -> Option<(u32, u32)> {
    use std::os::unix::ffi::OsStrExt;
    let line = table.split(|&byte| byte == b'\n').rfind(|line| {
        let path = line.split(|&byte| byte == b' ').nth(4);
        path.is_some_and(|path| unescape(path) == mount_point.as_os_str().as_bytes())
    })?;
    let number = std::str::from_utf8(line.split(|&byte| byte == b' ').nth(2)?).ok()?;
    let (major, minor) = number.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Blanks and the like are `\040` in the table of mounts.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        plain.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &behind[3..] } else { behind };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_number_is_found_under_names_with_blanks_and_the_topmost_counts() {
        let table = b"30 1 0:25 / /mnt/a\\040b rw - fuse.x src rw\n\
                      31 1 7:26 / /mnt/c rw - fuse.x src rw\n\
                      32 30 0:27 / /mnt/a\\040b rw - fuse.x src rw\n";
        assert_eq!(device_number_in(table, Path::new("/mnt/a b")), Some((0, 27)));
        assert_eq!(device_number_in(table, Path::new("/mnt/c")), Some((7, 26)));
        assert_eq!(device_number_in(table, Path::new("/mnt")), None);
        assert_eq!(device_number_in(b"no table \\9", Path::new("/mnt")), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(b"a\\134b\\"), b"a\\b\\");
        assert_eq!(unescape(b"\\0"), b"\\0");
        assert_eq!(unescape(b"\\777x"), b"\\777x");
    }
}
