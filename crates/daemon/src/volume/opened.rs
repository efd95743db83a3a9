//! A volume that a daemon has open: device, logical disk and file systems.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::{Clock, SystemClock, Uuid};
use dendro_control::VolumeInfo;
use dendro_control::versions::VersionName;
use dendro_device::{Device, OpenOptions as DeviceOptions};
use dendro_disk::{CommitSeq, LogicalDisk, Versions, View, abandon};
use dendro_fs::{FileSystem, FsError, Options as FsOptions};
use dendro_fuse::Order;
use dendro_logdisk::{LogDisk, OpenOptions};
use dendro_versions::{Service, name};

use super::describe::describe;
use super::devices::{Devices, Members, clock, explain_devices, is_in_use, name_of, open_devices};
use super::disk::{ReadDevice, open_disk_on, shut_down};
use super::memory::{default_cache_bytes, inode_cache_len};
use crate::failure::Failure;
use crate::kernel_clock::KernelClock;
use crate::options::MountOptions;

/// How often, and after what pause, claiming a device is repeated while a mount releases it.
const CLAIM_TRIES: u32 = 500;

const CLAIM_PAUSE: Duration = Duration::from_millis(10);
/// How long a client that lacks space waits for the space of a file that was removed. The kernel
/// tells a moment later, with FORGET, that nothing uses the file any more. If something does, it
/// has none of its space to give.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

/// An open volume. Any number of its views can be open.
pub(crate) struct Volume {
    source: PathBuf,
    /// The name by which the device was opened that is `source`, or that is attached to it.
    path: PathBuf,
    devices: Arc<Devices>,
    read_ahead: Arc<ReadDevice>,
    disk: Arc<LogDisk>,
    /// Kept here for whoever must not wait while a superblock is written.
    uuid: Uuid,
    read_only: bool,
    /// Another process has claimed the device.
    is_lost: AtomicBool,
}

/// Why a volume is not open.
pub(crate) enum NotOpened {
    /// Another process has the device.
    InUse(Failure),
    /// Anything else.
    Failed(Failure),
}

impl From<NotOpened> for Failure {
    fn from(why: NotOpened) -> Self {
        match why {
            NotOpened::InUse(failure) | NotOpened::Failed(failure) => failure,
        }
    }
}

impl Volume {
    /// Opens the volume on `source` by the name `path`, which may be a loop device's. Waits for at
    /// most `lock_wait` if another process has the device.
    pub(crate) fn open(
        source: &Path,
        path: &Path,
        options: &MountOptions,
        lock_wait: Duration,
    ) -> Result<Self, NotOpened> {
        // A loop device that was attached for the mount.
        let is_attached = path != source;
        let devices = Arc::new(open_for_mount(source, path, is_attached, options, lock_wait)?);
        let read_only = devices.is_read_only();
        let cache_size_bytes = options.cache_bytes.unwrap_or_else(default_cache_bytes);
        let MountOptions { discards, on_loss, compression, cold_compression, .. } = *options;
        let mut disk_options = OpenOptions {
            read_only,
            cache_size_bytes,
            discards,
            on_loss,
            compression,
            cold_compression,
            release_wait: RELEASE_WAIT,
            ..OpenOptions::default()
        };
        if let Some(bytes) = options.checkpoint_bytes {
            disk_options.checkpoint_log_bytes = bytes;
        }
        if let Some(kind) = options.policy {
            disk_options.policy = Arc::from(kind.policy());
        }
        if let Some(percent) = options.reserve_percent {
            disk_options.reserve_percent = percent;
        }
        if let Some(is_on) = options.coalesce {
            disk_options.cleaning.coalescing.is_on = is_on;
        }
        let (disk, read_ahead) =
            open_disk_on(source, &devices, disk_options).map_err(NotOpened::Failed)?;
        let disk = Arc::new(disk);
        for note in disk.recovery_notes() {
            log::warn!("{}: {note}", source.display());
        }
        if disk.read_only_reason().is_none()
            && let Err(error) = abandon(&*disk)
        {
            // The next version that is received tries it again.
            log::warn!("{}: what was received in part stays: {error}", source.display());
        }
        Ok(Self {
            source: source.to_path_buf(),
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
            devices,
            read_ahead,
            uuid: disk.superblock().uuid,
            disk,
            read_only,
            is_lost: AtomicBool::default(),
        })
    }

    /// Releases the claim on the block device for the mount that is about to be made of it. The
    /// lock, which keeps other daemons and mkfs.dendro away, stays.
    pub(crate) fn leave_claim(&self) {
        self.devices.release_claim(&self.path);
    }

    /// Claims the device again when its mount has ended, is about to end, or was not made.
    pub(crate) fn take_claim(&self) -> Result<(), Failure> {
        let mut tries = CLAIM_TRIES;
        loop {
            match self.devices.claim_again(&self.path) {
                Err(dendro_device::Error::InUse { .. }) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(CLAIM_PAUSE);
                }
                outcome => {
                    self.is_lost.store(outcome.is_err(), Ordering::Relaxed);
                    return outcome.map_err(Failure::new);
                }
            }
        }
    }

    /// Shuts the disk down, unless another process has claimed the device.
    pub(crate) fn shut_down(&self) -> Result<(), dendro_disk::Error> {
        match self.is_lost.load(Ordering::Relaxed) {
            true => Ok(()),
            false => {
                shut_down(&self.disk)?;
                // Without that, the devices are compared by the next mount.
                let _ = self.devices.close();
                Ok(())
            }
        }
    }

    /// The message if there is no room below the device.
    pub(crate) fn host_is_full(&self) -> String {
        let source = self.source();
        let source = source.display();
        match self.devices.host_room() {
            Some(_) => format!("{source}: the file system that holds it is full"),
            None => format!("{source}: the device has no room for what is written to it"),
        }
    }

    /// The view that `version` names.
    pub(crate) fn resolve(&self, version: &VersionName) -> Result<View, String> {
        let table = self.disk.versions();
        name::resolve(&table, table.main_head(), version, SystemClock.now())
    }

    /// The file system of `view`.
    pub(crate) fn open_view(
        &self,
        view: View,
        options: &MountOptions,
    ) -> Result<Arc<FileSystem>, FsError> {
        let fs_options = FsOptions {
            view,
            read_only: options.read_only,
            atime: options.atime,
            inode_cache_len: inode_cache_len(self.disk.cache_size_bytes()),
            lookups_keep_files: true,
            ..FsOptions::default()
        };
        let clock = match options.order {
            Order::Strict => clock(),
            Order::Close => Arc::new(KernelClock),
        };
        FileSystem::mount(Arc::clone(&self.disk) as _, fs_options, clock).map(Arc::new)
    }

    /// The image file or block device by which the volume is named.
    pub(crate) fn source(&self) -> PathBuf {
        name_of(&self.devices, &self.source)
    }

    /// The devices that it lies on.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    pub(crate) fn disk(&self) -> &LogDisk {
        &self.disk
    }

    /// The disk and the devices, for a thread that outlives the borrow of this value.
    pub(crate) fn parts(&self) -> (Arc<LogDisk>, Arc<Devices>) {
        (Arc::clone(&self.disk), Arc::clone(&self.devices))
    }

    /// Whether it is open read-only.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The service for requests about versions; it does not know of open views.
    pub(crate) fn versions(&self) -> Service {
        Service::new(Arc::clone(&self.disk) as _, clock())
    }

    pub(crate) const fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Makes everything durable that was written before.
    pub(crate) fn commit(&self) -> Result<(), dendro_disk::Error> {
        self.disk.flush(CommitSeq::LATEST)
    }

    /// Facts about the volume, without its mounts.
    pub(crate) fn info(&self) -> VolumeInfo {
        describe(&self.source(), &self.disk, &self.devices)
    }

    /// The memory that read-ahead uses.
    pub(crate) fn read_ahead_bytes(&self) -> u64 {
        self.read_ahead.memory_bytes()
    }
}

/// Opens the devices as `options` ask. If the first one `is_attached`, a loop device that was made
/// for the mount, the file behind it is resized with it. A view of the past needs no writing
/// itself; its devices are opened for writing if possible, so that other views can be mounted
/// beside it.
fn open_for_mount(
    source: &Path,
    path: &Path,
    is_attached: bool,
    options: &MountOptions,
    lock_wait: Duration,
) -> Result<Devices, NotOpened> {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let members = Members { named: &options.devices, is_degraded: options.is_degraded };
    let open = |read_only| {
        let options = DeviceOptions::new()
            .read_only(read_only)
            .direct(options.direct)
            .lock_wait(lock_wait)
            .resizes_backing_file(is_attached);
        open_devices(source, path, &options, members)
    };
    let is_past = options.read_only && !options.read_only_device;
    let opened = match open(options.read_only_device) {
        Err(dendro_set::Error::Device {
            source: dendro_device::Error::Open { source, .. },
            ..
        }) if is_past && matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) => {
            open(true)
        }
        other => other,
    };
    opened.map_err(|error| match is_in_use(&error) {
        true => NotOpened::InUse(explain_devices(error, options.read_only_device)),
        false => NotOpened::Failed(explain_devices(error, options.read_only_device)),
    })
}
