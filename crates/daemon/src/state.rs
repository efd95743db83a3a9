//! What all threads of the daemon share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock, Timestamp, Uuid};
use dendro_block::Devices as BlockDevices;
use dendro_control::{AdminError, MountNamed};
use dendro_fuse::{Access, Timings};
use dendro_logdisk::{Compression, OpenOptions};
use dendro_nbd::Activity;

use crate::block_server::BlockServer;
use crate::check::online::Checks;
use crate::control_socket::ControlSocket;
use crate::damage::DamageTable;
use crate::failure::Failure;
use crate::mount_config::Config;
use crate::mounts;
use crate::options::MountOptions;
use crate::scrub::Scrubber;
use crate::threads::Stop;
use crate::views::{MountedView, Views};
use crate::volume::memory::{default_cache_bytes, nbd_memory_bytes};
use crate::volume::{Volume, default_compression, random_bytes};

/// What all threads share.
pub(crate) struct Daemon<'volume> {
    pub(crate) volume: &'volume Volume,
    /// A random name of this run of the daemon.
    pub(crate) name: String,
    pub(crate) control_socket: ControlSocket,
    /// The mount point of the first mount.
    pub(crate) mount_point: PathBuf,
    pub(crate) since: Timestamp,
    /// How long the requests of all mounts took.
    pub(crate) timings: Arc<Timings>,
    /// The mount namespace of this process.
    pub(crate) namespace: String,
    pub(crate) views: Arc<Views>,
    /// The options that apply to the whole volume: those of the first mount, with later changes.
    pub(crate) options: Mutex<MountOptions>,
    /// Held while a view is being mounted, and while versions are deleted.
    pub(crate) changes: Mutex<()>,
    /// The block devices in the volume, of which clients of NBD may have some open.
    pub(crate) block_devices: BlockDevices,
    /// The server of these.
    pub(crate) block_server: Arc<BlockServer>,
    /// What that has done since the mount, and who is connected to it.
    pub(crate) block_activity: Arc<Activity>,
    /// Damaged blocks.
    pub(crate) damage: DamageTable,
    /// The scrub of the volume.
    pub(crate) scrub: Scrubber,
    /// The checks of the volume.
    pub(crate) checks: Checks,
    /// How many send streams are being written, and applied.
    pub(crate) sent_streams: AtomicU32,
    pub(crate) received_streams: AtomicU32,
    /// The first failure.
    failure: Mutex<Option<Failure>>,
    /// Whether it was logged that there is no room below the device.
    pub(crate) is_host_full: AtomicBool,
    /// The retired segments that the system log tells of.
    pub(crate) logged_retired_count: AtomicU32,
    pub(crate) stop: Stop,
}

impl<'volume> Daemon<'volume> {
    /// A daemon for `volume`, which `config` is the first mount of.
    pub(crate) fn new(volume: &'volume Volume, config: &Config) -> Result<Self, Failure> {
        let nbd_memory_bytes = nbd_memory_bytes(volume.disk().cache_size_bytes());
        Ok(Self {
            volume,
            name: Uuid::from_random(random_bytes()?).to_string(),
            control_socket: ControlSocket::default(),
            mount_point: config.mount_point.clone(),
            since: SystemClock.now(),
            timings: Arc::default(),
            namespace: mounts::namespace(),
            views: Arc::default(),
            options: Mutex::new(config.options.clone()),
            changes: Mutex::default(),
            block_devices: BlockDevices::new(volume.parts().0, volume.is_read_only()),
            block_server: Arc::default(),
            block_activity: Arc::new(Activity::new(nbd_memory_bytes)),
            damage: DamageTable::of(volume),
            scrub: Scrubber::of(volume),
            checks: Checks::default(),
            sent_streams: AtomicU32::default(),
            received_streams: AtomicU32::default(),
            failure: Mutex::default(),
            is_host_full: AtomicBool::default(),
            logged_retired_count: AtomicU32::default(),
            stop: Stop::default(),
        })
    }

    /// Records a failure; the first one is the daemon's result.
    pub(crate) fn note_failure(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
    }

    /// The first failure.
    pub(crate) fn into_failure(self) -> Option<Failure> {
        self.failure.into_inner()
    }

    /// Adds the damage that the disk has found to the table, and keeps it with the volume if
    /// anything is new.
    pub(crate) fn record_damage(&self) {
        if let Err(error) = self.damage.record(self.volume.disk(), SystemClock.now()) {
            log::warn!("the damage that was met cannot be written down: {error}");
        }
    }

    /// Has the kernel hand over what it has collected of any mount (`order=close`). The caller must
    /// hold no lock that requests of a mount may need.
    pub(crate) fn take_collected(&self) {
        self.views.all().iter().for_each(|view| view.take_collected());
    }

    /// The mount that a request names.
    pub(crate) fn mounted(&self, mount: MountNamed<'_>) -> Result<Arc<MountedView>, AdminError> {
        let view = self.views.find(mount);
        view.ok_or_else(|| AdminError("it is no longer mounted there".into()))
    }

    /// How new data and what the cleaner moves are compressed: the first mount decides.
    pub(crate) fn compression_in_force(&self) -> (Option<Compression>, Option<Compression>) {
        let (new, cold) = default_compression(&self.volume.disk().superblock());
        let options = self.options.lock();
        (options.compression.unwrap_or(new), options.cold_compression.unwrap_or(cold))
    }

    /// The options of a mount, with those of the whole volume, as they are now.
    pub(crate) fn in_force(&self, view: &MountedView) -> MountOptions {
        let own = view.options_now();
        let of_volume = self.options.lock().clone();
        let disk = self.volume.disk();
        let default = OpenOptions::default();
        let (compression, cold_compression) = self.compression_in_force();
        let access = if rustix::process::geteuid().is_root() { Access::All } else { Access::Owner };
        MountOptions {
            read_only: own.read_only || self.volume.is_read_only(),
            access: own.access.or(Some(access)),
            commit_interval: of_volume.commit_interval,
            cache_bytes: of_volume.cache_bytes.or_else(|| Some(default_cache_bytes())),
            checkpoint_bytes: of_volume.checkpoint_bytes.or(Some(default.checkpoint_log_bytes)),
            policy: Some(disk.policy().kind()),
            reserve_percent: of_volume.reserve_percent.or(Some(default.reserve_percent)),
            coalesce: Some(disk.clean_settings().coalescing.is_on),
            compression: Some(compression),
            cold_compression: Some(cold_compression),
            discards: of_volume.discards,
            metrics: of_volume.metrics,
            direct: of_volume.direct,
            on_loss: of_volume.on_loss,
            check: of_volume.check,
            ..own
        }
    }
}
