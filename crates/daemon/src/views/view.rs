//! A view, mounted.

use std::path::PathBuf;
use std::sync::Arc;

use dendro_base::sync::Mutex;
use dendro_control::ViewInfo;
use dendro_disk::View;
use dendro_fs::FileSystem;
use dendro_fuse::{Switch, UnmountMode, unmount};

use super::automatic_snapshots::AutomaticSnapshots;
use super::closing::Closing;
use crate::mounts;
use crate::options::MountOptions;

/// A view, mounted.
pub(crate) struct MountedView {
    /// Which it is of all that the daemon has ever served.
    pub(crate) id: u64,
    /// Shows another file system in it.
    pub(crate) switch: Switch,
    /// How it was mounted, and has been changed since.
    pub(crate) options: Mutex<MountOptions>,
    /// What the kernel was told when it was remounted, as far as it was.
    pub(crate) told: Mutex<Vec<String>>,
    pub(crate) closing: Arc<Closing>,
    /// It is mounted as a block device, which the mount has claimed.
    pub(crate) is_fuseblk: bool,
    pub(crate) mount_point: PathBuf,
    /// The mounted file system's number, as the table of mounts has it.
    pub(crate) device: String,
    /// The mount's own number, which is never given again, where the kernel has those.
    pub(crate) mount_id: Option<u64>,
    /// The mount namespace in which it was mounted.
    pub(crate) namespace: String,
    /// That is another one than this process's, in which the mount point means something else.
    pub(crate) is_elsewhere: bool,
    pub(crate) since_unix_s: i64,
    /// Which way requests come.
    pub(crate) transport: String,
    /// The user for whom the daemon has mounted it.
    pub(crate) lent_to: Option<u32>,
    /// Keeps how it was.
    pub(crate) automatic: Mutex<Option<AutomaticSnapshots>>,
}

impl MountedView {
    /// What it shows.
    pub(crate) fn fs(&self) -> Arc<FileSystem> {
        self.switch.fs()
    }

    /// Which version of the disk that is.
    pub(crate) fn view(&self) -> View {
        self.fs().view()
    }

    /// Whether the kernel has unmounted it.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    /// Whether its mount point leads to it from here: not in another mount namespace, nor where a user may
    /// have put something else in the way.
    pub(crate) const fn is_at_hand(&self) -> bool {
        !self.is_elsewhere && self.lent_to.is_none()
    }

    /// Unmounts it, as far as that can be done from here.
    pub(crate) fn unmount(&self, mode: UnmountMode) -> Result<(), String> {
        let done = match self.lent_to {
            _ if self.is_elsewhere => return Ok(()),
            None => unmount(&self.mount_point, mode).map_err(|error| error.to_string()),
            Some(_) => {
                mounts::unmount_exactly(&self.mount_point, (&self.device, self.mount_id), mode)
            }
        };
        // What is gone is gone.
        done.or_else(|why| if self.is_closing() { Ok(()) } else { Err(why) })
    }

    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        let note = match (self.is_closing(), self.is_elsewhere) {
            (true, _) => ", from where it is just being unmounted",
            (false, true) => " (in another mount namespace)",
            (false, false) => "",
        };
        format!("{}{note}", self.mount_point.display())
    }

    /// What can be told without waiting for anything.
    pub(crate) fn info(&self) -> ViewInfo {
        let View { branch, epoch } = self.view();
        ViewInfo {
            id: self.id,
            mount_point: self.mount_point.display().to_string(),
            device: self.device.clone(),
            mount_id: self.mount_id,
            namespace: self.namespace.clone(),
            branch,
            epoch,
            is_main: false,
            version: String::new(),
            read_only: self.fs().is_read_only().then(|| "mounted so".into()),
            since_unix_s: self.since_unix_s,
            transport: self.transport.clone(),
            options: Vec::new(),
        }
    }
}
