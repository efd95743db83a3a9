//! One mounted view.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock, Timestamp};
use dendro_control::ViewInfo;
use dendro_disk::{Versions, View};
use dendro_fs::FileSystem;
use dendro_fuse::{BlockCounts, Mount, Order, Switch, SyncSwitch, UnmountMode, unmount};

use super::automatic_snapshots::AutomaticSnapshots;
use super::closing::Closing;
use super::collected;
use crate::mounts;
use crate::options::MountOptions;

/// Where a view is mounted.
pub(crate) struct MountPlace {
    /// The number of the mount among all that the daemon has ever served.
    pub(crate) id: u64,
    pub(crate) mount_point: PathBuf,
    /// The device number of the mounted file system, as the table of mounts has it.
    pub(crate) device: String,
    /// The unique number of the mount, if the kernel has such numbers.
    pub(crate) mount_id: Option<u64>,
    /// The mount namespace of the mount.
    pub(crate) namespace: String,
    /// Whether it is mounted as a block device, which the mount has claimed.
    pub(crate) is_fuseblk: bool,
    /// The user for whom the daemon has made the mount.
    pub(crate) on_behalf_of: Option<u32>,
}

/// A mounted view.
pub(crate) struct MountedView {
    /// The number of this mount among all that the daemon has ever served.
    id: u64,
    /// Exchanges the file system that the mount shows.
    switch: Switch,
    /// The options, with later changes.
    options: Mutex<MountOptions>,
    /// Options that the kernel got when it was remounted, as far as they are known.
    kernel_options: Mutex<Vec<String>>,
    /// Changes whether each change is durable before the reply (`sync`).
    sync: SyncSwitch,
    /// Has the kernel ask again how many blocks files have.
    block_counts: BlockCounts,
    closing: Arc<Closing>,
    /// Whether it is mounted as a block device, which the mount has claimed.
    is_fuseblk: bool,
    mount_point: PathBuf,
    /// The device number of the mounted file system, as the table of mounts has it.
    device: String,
    /// The unique number of the mount, if the kernel has such numbers.
    mount_id: Option<u64>,
    /// The mount namespace of the mount.
    namespace: String,
    /// Whether that is another namespace than this process's, where the mount point has another
    /// meaning.
    is_elsewhere: bool,
    since_unix_s: i64,
    /// The transport of requests.
    transport: String,
    /// The user for whom the daemon has made the mount.
    on_behalf_of: Option<u32>,
    /// Takes snapshots of the view by the option `retain=`.
    automatic: Mutex<Option<AutomaticSnapshots>>,
}

impl MountedView {
    /// A mount with its place and options; `own_namespace` is the mount namespace of this process.
    pub(crate) fn new(
        mount: &Mount,
        closing: Arc<Closing>,
        place: MountPlace,
        options: &MountOptions,
        own_namespace: &str,
    ) -> Self {
        let MountPlace { id, mount_point, device, mount_id, namespace, is_fuseblk, on_behalf_of } =
            place;
        let retain = options.retain.clone().filter(|_| !options.read_only);
        Self {
            id,
            switch: mount.switch(),
            closing,
            options: Mutex::new(options.clone()),
            kernel_options: Mutex::default(),
            sync: mount.sync_switch(),
            block_counts: mount.block_counts(),
            mount_point,
            device,
            mount_id,
            is_fuseblk,
            on_behalf_of,
            is_elsewhere: namespace != own_namespace,
            namespace,
            since_unix_s: SystemClock.now().secs(),
            transport: mount.transport().to_string(),
            automatic: Mutex::new(retain.map(AutomaticSnapshots::new)),
        }
    }

    /// The number of this mount among all that the daemon has ever served.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Exchanges the file system that the mount shows.
    pub(crate) const fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The end of the mount.
    pub(crate) fn closing(&self) -> &Closing {
        &self.closing
    }

    /// Whether it is mounted as a block device, which the mount has claimed.
    pub(crate) const fn is_fuseblk(&self) -> bool {
        self.is_fuseblk
    }

    /// The directory, in the mount namespace of the mount.
    pub(crate) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The device number of the mounted file system, as the table of mounts has it.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Whether it is in another mount namespace than this process, where the mount point has
    /// another meaning.
    pub(crate) const fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// The user for whom the daemon has made the mount.
    pub(crate) const fn on_behalf_of(&self) -> Option<u32> {
        self.on_behalf_of
    }

    /// The options that it was mounted with, with later changes by the daemon.
    pub(crate) fn own_options(&self) -> MountOptions {
        self.options.lock().clone()
    }

    /// Its own options, with those that the kernel got in the last remount.
    pub(crate) fn options_now(&self) -> MountOptions {
        let mut options = self.own_options();
        options.note_kernel_options(&self.kernel_options.lock());
        options
    }

    /// Records the options that the kernel got in a remount. The daemon itself applies `sync`, of
    /// which the kernel sends only writes.
    pub(crate) fn note_kernel_options(&self, options: &[String]) {
        options.clone_into(&mut self.kernel_options.lock());
        self.sync.set_sync(self.options_now().sync);
    }

    /// Changes the options of this mount that differ between `now` and `new` and can be changed.
    pub(crate) fn change_options(&self, now: &MountOptions, new: &MountOptions) {
        if new.retain != now.retain {
            let rule = new.retain.clone().filter(|_| !new.read_only);
            *self.automatic.lock() = rule.map(AutomaticSnapshots::new);
        }
        self.fs().set_atime_policy(new.atime);
        let mut own = self.options.lock();
        own.retain.clone_from(&new.retain);
        own.atime = new.atime;
        own.delegates.clone_from(&new.delegates);
    }

    /// Whether snapshots of it are taken automatically.
    pub(crate) fn keeps_snapshots(&self) -> bool {
        self.automatic.lock().is_some()
    }

    /// Takes an automatic snapshot if that is due, and deletes those that its rule no longer keeps.
    /// `mounted` are the views that are not deleted.
    pub(crate) fn take_snapshot(
        &self,
        disk: &dyn Versions,
        mounted: &[View],
        now: Timestamp,
    ) -> dendro_disk::Result<()> {
        match &mut *self.automatic.lock() {
            Some(automatic) => automatic.tick(disk, self.view(), mounted, now),
            None => Ok(()),
        }
    }

    /// The file system that it shows.
    pub(crate) fn fs(&self) -> Arc<FileSystem> {
        self.switch.fs()
    }

    /// The view of the disk that it shows.
    pub(crate) fn view(&self) -> View {
        self.fs().view()
    }

    /// Whether the kernel has unmounted it.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    /// Whether the kernel collects what programs write to it.
    pub(crate) fn is_collected(&self) -> bool {
        let options = self.options.lock();
        options.order == Order::Close && !options.read_only
    }

    /// Has the kernel begin to hand over what it has collected, if it collects anything. Returns
    /// whether it does.
    pub(crate) fn ask_for_collected(&self) -> bool {
        if !self.is_collected() || self.is_closing() {
            return false;
        }
        if let Err(error) = collected::begin_hand_over(&self.mount_point, &self.device)
            && !self.is_closing()
        {
            log::warn!(
                "{}: what programs have written is not handed over: {error}",
                self.mount_point.display()
            );
        }
        true
    }

    /// Has the kernel ask again how many blocks files have of which it has handed something over.
    pub(crate) fn refresh_block_counts(&self) {
        self.block_counts.refresh();
    }

    /// Has the kernel hand over what it has collected, and waits for that.
    pub(crate) fn take_collected(&self) {
        if self.ask_for_collected() {
            collected::await_hand_over(&self.device);
        }
    }

    /// Whether its mount point leads to it from here. It does not from another mount namespace, nor
    /// if a user can replace a directory on the path.
    pub(crate) const fn is_at_hand(&self) -> bool {
        !self.is_elsewhere && self.on_behalf_of.is_none()
    }

    /// Unmounts it, if that is possible from here.
    pub(crate) fn unmount(&self, mode: UnmountMode) -> Result<(), String> {
        let done = match self.on_behalf_of {
            _ if self.is_elsewhere => return Ok(()),
            None => unmount(&self.mount_point, mode).map_err(|error| error.to_string()),
            Some(_) => {
                mounts::unmount_exactly(&self.mount_point, (&self.device, self.mount_id), mode)
            }
        };
        // A mount that has ended meanwhile is no failure.
        done.or_else(|why| if self.is_closing() { Ok(()) } else { Err(why) })
    }

    /// Its place, for messages.
    pub(crate) fn place(&self) -> String {
        let note = match (self.is_closing(), self.is_elsewhere) {
            (true, _) => ", from where it is just being unmounted",
            (false, true) => " (in another mount namespace)",
            (false, false) => "",
        };
        format!("{}{note}", self.mount_point.display())
    }

    /// The facts that are known without waiting.
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
