//! What `dendro nbd` answers at its control socket: requests about versions that change no device
//! that is served.

use std::sync::Arc;
use std::thread;

use dendro_control::cleaning::{
    Blocks, BlocksRequest, CleanerChange, CleanerSettings, CleaningStatus, Marked, NamedBlock,
    Places, Released, Segments, SegmentsRequest,
};
use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Cleaning, Facts, MountNamed, Pong, Server, VolumeInfo, socket,
};
use dendro_daemon::volume::clock;
use dendro_disk::{CommitSeq, Versions};
use dendro_versions::Service;

/// Threads for requests: one is always free for pings.
const THREADS: usize = 2;

type Answer<T> = Result<T, AdminError>;

/// Answers for a volume whose block devices are served.
pub(super) struct BlockAdmin {
    disk: Arc<dyn Versions>,
    pong: Pong,
}

impl BlockAdmin {
    /// Answers for the volume `uuid` on `source`, of this process.
    pub(super) fn new(disk: Arc<dyn Versions>, uuid: &str, source: &str) -> Self {
        let pid = std::process::id();
        let pong = Pong {
            software: env!("CARGO_PKG_VERSION").into(),
            daemon: pid.to_string(),
            pid,
            uuid: uuid.to_owned(),
            source: source.to_owned(),
            mount_point: source.to_owned(),
            serves_blocks: true,
            ..Pong::default()
        };
        Self { disk, pong }
    }
}

/// Answers requests while `wait` runs. A server also works without that.
pub(super) fn answer_until(admin: &BlockAdmin, wait: impl FnOnce()) {
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

/// What is refused while devices are served.
fn refused<T>() -> Answer<T> {
    let why = "its block devices are served, and until `dendro nbd` has ended, snapshots and clones \
               are made alone";
    Err(AdminError(why.into()))
}

impl Admin for BlockAdmin {
    fn ping(&self) -> Pong {
        self.pong.clone()
    }

    fn versions(
        &self,
        _mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
    ) -> Answer<VersionsReply> {
        match request {
            VersionsRequest::List
            | VersionsRequest::Usage
            | VersionsRequest::Snapshot { .. }
            | VersionsRequest::Hold { .. }
            | VersionsRequest::Clone { .. } => {
                Service::new(Arc::clone(&self.disk), clock()).answer(request)
            }
            _ => refused(),
        }
    }

    fn sync(&self) -> Answer<()> {
        self.disk.flush(CommitSeq::LATEST).map_err(|error| AdminError(error.to_string()))
    }

    fn info(&self) -> Answer<VolumeInfo> {
        refused()
    }

    fn stat(&self) -> Answer<Facts> {
        refused()
    }

    fn metrics(&self) -> Answer<String> {
        refused()
    }

    fn change_cleaner(&self, _change: &CleanerChange) -> Answer<CleanerSettings> {
        refused()
    }

    fn shut_down(&self) -> Answer<()> {
        refused()
    }
}

/// The threads of the volume clean; others cannot.
impl Cleaning for BlockAdmin {
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
