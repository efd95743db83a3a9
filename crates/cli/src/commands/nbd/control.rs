//! What `dendro nbd` answers at its control socket: facts about the volume, and requests about
//! versions and block devices, and to coalesce these, none of which takes a device away from a
//! client that has it open.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use dendro_base::Timestamp;
use dendro_block::Devices as BlockDevices;
use dendro_control::block_devices::{BlockDeviceInfo, BlockDevicesRequest};
use dendro_control::cleaning::{
    Blocks, BlocksRequest, CleanerChange, CleanerSettings, CleaningStatus, Marked, NamedBlock,
    Places, Released, Segments, SegmentsRequest,
};
use dendro_control::coalescing::{CoalesceRequest, Coalesced};
use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Cleaning, Facts, MountNamed, Pong, ServedInfo, Server, VolumeInfo, socket,
};
use dendro_daemon::unmounted::{Unmounted, met_damage};
use dendro_daemon::volume::devices::Devices;
use dendro_daemon::volume::{clock, describe};
use dendro_daemon::{block_devices, cleaning};
use dendro_disk::{CommitSeq, LogicalDisk, Versions};
use dendro_logdisk::LogDisk;
use dendro_nbd::Activity;
use dendro_versions::Service;

use super::report::Serving;

/// Threads for requests: one is always free for pings.
const THREADS: usize = 2;

type Answer<T> = Result<T, AdminError>;

/// Answers for a volume whose block devices are served.
pub(super) struct BlockAdmin<'a> {
    disk: Arc<LogDisk>,
    devices: &'a Devices,
    exports: Arc<BlockDevices>,
    activity: Arc<Activity>,
    metrics: Unmounted,
    pong: Pong,
    served: ServedInfo,
}

impl<'a> BlockAdmin<'a> {
    /// Answers for the volume that this process has served since then.
    pub(super) fn new(
        disk: Arc<LogDisk>,
        devices: &'a Devices,
        exports: Arc<BlockDevices>,
        activity: Arc<Activity>,
        Serving { source, uri, .. }: &Serving,
        since: Timestamp,
    ) -> Self {
        let served = ServedInfo {
            uri: uri.clone(),
            pid: std::process::id(),
            software: env!("CARGO_PKG_VERSION").into(),
            read_only: disk.read_only_reason(),
            since_unix_s: since.secs(),
        };
        let paths = devices.present_paths().into_iter().map(|path| path.display().to_string());
        let pong = Pong {
            software: served.software.clone(),
            daemon: served.pid.to_string(),
            pid: served.pid,
            uuid: disk.superblock().uuid.to_string(),
            source: source.clone(),
            devices: paths.filter(|path| path != source).collect(),
            mount_point: source.clone(),
            serves_blocks: true,
            ..Pong::default()
        };
        let metrics = Unmounted::new(since, served.read_only.is_some(), Arc::clone(&activity));
        Self { disk, devices, exports, activity, metrics, pong, served }
    }
}

/// Answers requests while `wait` runs. A server also works without that.
pub(super) fn answer_until(admin: &BlockAdmin<'_>, wait: impl FnOnce()) {
    let server = match Server::bind(&socket::directory(), &admin.pong.uuid) {
        Ok(server) => server,
        Err(error) => {
            log::warn!("no control socket, so no snapshots can be made meanwhile: {error}");
            return wait();
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let run = || server.run(admin);
            let started = thread::Builder::new().name("control".into()).spawn_scoped(scope, run);
            if let Err(error) = started {
                log::warn!("no snapshots can be made meanwhile: {error}");
            }
        }
        wait();
        server.stop();
    });
}

/// The answer if something fails.
fn refuse(error: impl std::fmt::Display) -> AdminError {
    AdminError(error.to_string())
}

/// What is refused while devices are served.
fn refused<T>() -> Answer<T> {
    let why = "its block devices are served, and this is done when `dendro nbd` has ended";
    Err(AdminError(why.into()))
}

impl Admin for BlockAdmin<'_> {
    fn ping(&self) -> Pong {
        self.pong.clone()
    }

    fn versions(
        &self,
        _mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
    ) -> Answer<VersionsReply> {
        let _changing = self.exports.changing();
        Service::new(Arc::clone(&self.disk) as Arc<dyn Versions>, clock())
            .with_exported(self.exports.open_views())
            .answer(request)
    }

    fn block_devices(&self, request: &BlockDevicesRequest) -> Answer<Vec<BlockDeviceInfo>> {
        let connections = self.activity.connections();
        block_devices::answer(&self.exports, &connections, request).map_err(refuse)
    }

    fn coalesce(
        &self,
        _mount: Option<MountNamed<'_>>,
        request: &CoalesceRequest,
    ) -> Answer<Coalesced> {
        cleaning::coalesce(&self.disk, self.disk.versions().main_head(), request)
    }

    fn sync(&self) -> Answer<()> {
        self.disk.flush(CommitSeq::LATEST).map_err(refuse)
    }

    fn info(&self) -> Answer<VolumeInfo> {
        let met = met_damage(&self.disk, false).map_err(refuse)?;
        let read_only = self.disk.read_only_reason();
        let info = describe(Path::new(&self.pong.source), &self.disk, self.devices);
        Ok(VolumeInfo {
            met_damage: Some(met).filter(|met| met.place_count > 0),
            served: Some(ServedInfo { read_only, ..self.served.clone() }),
            // It has no option that says otherwise.
            compression_in_force: info.default_compression.clone(),
            ..info
        })
    }

    fn stat(&self) -> Answer<Facts> {
        self.metrics.facts(&self.disk).map_err(refuse)
    }

    fn metrics(&self) -> Answer<String> {
        self.metrics.exposition(&self.disk, &self.pong.source).map_err(refuse)
    }

    fn change_cleaner(&self, _change: &CleanerChange) -> Answer<CleanerSettings> {
        refused()
    }

    fn shut_down(&self) -> Answer<()> {
        refused()
    }
}

/// The threads of the volume clean; others cannot.
impl Cleaning for BlockAdmin<'_> {
    fn present(&self) -> CleaningStatus {
        CleaningStatus::default()
    }

    fn segments(&self, _request: &SegmentsRequest) -> Answer<Segments> {
        refused()
    }

    fn blocks(&self, _request: &BlocksRequest) -> Answer<Blocks> {
        refused()
    }

    fn bmapv(&self, _blocks: &[NamedBlock]) -> Answer<Places> {
        refused()
    }

    fn markv(&self, _blocks: &[NamedBlock]) -> Answer<Marked> {
        refused()
    }

    fn segclean(&self, _segments: &[u32]) -> Answer<Released> {
        refused()
    }
}
