//! A mount, by its connection to the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::request::UnmountMode;
use super::unmount::unmount_once;
use crate::dev_fuse::DEVICE;

/// A mount that is not served yet.
#[derive(Debug)]
pub struct Mounted {
    device: Arc<OwnedFd>,
    mount_point: PathBuf,
    /// The file system's device number, major and minor.
    number: Option<(u32, u32)>,
    /// The mount is in another mount namespace, so its path names something else in this process.
    is_elsewhere: bool,
}

impl AsFd for Mounted {
    /// The connection, to pass it to another process that is to serve the mount. It exists as long
    /// as any process has it open.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Mounted {
    /// A mount that another process has created and passed on, and that was not served yet.
    /// `number` is the minor number of its device. `is_elsewhere`: it is in another mount
    /// namespace.
    ///
    /// # Errors
    /// `InvalidInput` if the descriptor is not one of `/dev/fuse`.
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

    /// A mount that this process has created. `number` is its device's number, major and minor.
    pub(super) fn new(
        device: OwnedFd,
        mount_point: &Path,
        number: Option<(u32, u32)>,
        is_elsewhere: bool,
    ) -> Self {
        let mount_point = mount_point.to_path_buf();
        Self { device: Arc::new(device), mount_point, number, is_elsewhere }
    }

    /// Whether the mount is in another mount namespace, so that its path names something else in
    /// this process.
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

    /// Sets how far the kernel reads ahead. Only root can do this. The handshake allows at most
    /// 128 KiB.
    pub(crate) fn set_read_ahead(&self, bytes: usize) -> io::Result<()> {
        self.set_of_kernel("read_ahead_kb", &(bytes >> 10).to_string())
    }

    /// Lets the kernel collect as many written pages as of any other file system. At first it stops
    /// programs at a hundredth of that. Only root can do this.
    pub(crate) fn lift_dirty_limits(&self) -> io::Result<()> {
        self.set_of_kernel("max_ratio", "100")?;
        self.set_of_kernel("strict_limit", "0")
    }

    /// Sets what the kernel does for the mount as for a device.
    fn set_of_kernel(&self, name: &str, value: &str) -> io::Result<()> {
        let (major, minor) = self.number.ok_or(io::ErrorKind::NotFound)?;
        // A mount of a block device has a directory of its own beside the device's.
        let suffix = if major == 0 { "" } else { "-fuseblk" };
        fs::write(format!("/sys/class/bdi/{major}:{minor}{suffix}/{name}"), value)
    }

    /// Aborts the connection: programs that use the mount, and threads that serve it, get errors
    /// from now on.
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

/// The bits of a minor number in the numbers by which the kernel names connections.
const MINOR_BITS: u32 = 20;
