//! What is said over the socket.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::addressee::Addressee;
use crate::caller::Caller;
use crate::cleaning::{
    self, Blocks, BlocksNamed, BlocksRequest, CleanerChange, CleanerSettings, Cleaning, MAX_BLOCKS,
    MAX_SEGMENTS, Marked, Places, Released, Segments, SegmentsNamed, SegmentsRequest,
    SegwaitRequest, Waited,
};
use crate::coalescing::{CoalesceRequest, Coalesced, MAX_LISTS};
use crate::damage::{DamageInfo, DamageRequest};
use crate::mounts::{MountNamed, MountReply, MountRequest, SetRequest, UnmountRequest, ViewInfo};
use crate::versions::{VersionsAsked, VersionsReply, VersionsRequest};

/// The version that both sides name. A side that is told of another one says so and does nothing.
/// New commands, and new members of messages, come without a new version: a daemon answers a
/// command that it does not know with an error, and members that are not known are passed over.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest request, its newline included, in bytes.
pub const MAX_REQUEST_LEN_BYTES: usize = 256 << 10;

/// The longest reply, its newline included, in bytes.
pub const MAX_REPLY_LEN_BYTES: usize = 16 << 20;

/// One question to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`PROTOCOL_VERSION`] of the one who asks.
    pub version: u32,
    /// Whom it is meant for; any other daemon refuses it. Nothing: whoever listens.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub addressee: Option<Addressee>,
    /// What is asked.
    #[serde(flatten)]
    pub command: Command,
}

/// What can be asked of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Who are you? Answered at once, whatever else goes on.
    Ping,
    /// What is the volume like?
    Info,
    /// What has been done since it was mounted?
    Stat,
    /// Make everything durable that was written before.
    Sync,
    /// Unmount and end cleanly. The answer comes before the end.
    Shutdown,
    /// Counters in Prometheus's text format.
    Metrics,
    /// How does the daemon's own cleaner go about it? What is named is changed first.
    Cleaner(CleanerChange),
    /// Put together what lies scattered.
    Coalesce(CoalesceRequest),
    /// Which segments are there, and how full are they?
    Segments(SegmentsRequest),
    /// What does a segment hold?
    Blocks(BlocksRequest),
    /// Where do these blocks lie now?
    Bmapv(BlocksNamed),
    /// Write these blocks again.
    Markv(BlocksNamed),
    /// Answer once there are few clean segments.
    Segwait(SegwaitRequest),
    /// Make these segments clean.
    Segclean(SegmentsNamed),
    /// Make, list, compare and delete versions, and bring files back.
    Versions(VersionsAsked),
    /// What damage was met?
    Damage(DamageRequest),
    /// Serve one more view.
    Mount(MountRequest),
    /// Unmount one.
    Unmount(UnmountRequest),
    /// Change how a mount is served.
    Set(SetRequest),
}

/// A daemon's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// What came of the request.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "value", rename_all = "snake_case")]
pub enum Outcome {
    /// The answer to [`Command::Ping`].
    Pong(Pong),
    /// The answer to [`Command::Info`].
    Info(Box<VolumeInfo>),
    /// The answer to [`Command::Stat`].
    Stat(Facts),
    /// The answer to [`Command::Metrics`].
    Metrics(String),
    /// The answer to [`Command::Cleaner`].
    Cleaner(CleanerSettings),
    /// The answer to [`Command::Coalesce`].
    Coalesced(Coalesced),
    /// The answer to [`Command::Segments`].
    Segments(Segments),
    /// The answer to [`Command::Blocks`].
    Blocks(Blocks),
    /// The answer to [`Command::Bmapv`].
    Places(Places),
    /// The answer to [`Command::Markv`].
    Marked(Marked),
    /// The answer to [`Command::Segwait`].
    Waited(Waited),
    /// The answer to [`Command::Segclean`].
    Released(Released),
    /// The answer to [`Command::Versions`].
    Versions(VersionsReply),
    /// The answer to [`Command::Damage`].
    Damage(DamageInfo),
    /// The answer to [`Command::Mount`].
    Mount(MountReply),
    /// The answer to [`Command::Set`]: the mount with the options that are in force now.
    Set(Box<ViewInfo>),
    /// It was done, and there is nothing to tell.
    Done,
    /// It was not done, as the request is meant for another daemon or another mount, and which this is.
    NotMeant(String),
    /// It was not done, as too many others are served just now: ask again.
    Busy(String),
    /// It was not done, and why.
    Error(String),
}

/// Names and numbers that each layer chooses for itself.
pub type Facts = BTreeMap<String, serde_json::Value>;

/// Who a daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The software's version.
    pub software: String,
    /// Tells this run of the daemon from all others; empty: an older one's.
    #[serde(default)]
    pub daemon: String,
    /// The daemon's process.
    pub pid: u32,
    /// The volume's UUID.
    pub uuid: String,
    /// The image file or block device, as an absolute path without symbolic links.
    pub source: String,
    /// Where it was mounted first, as an absolute path without symbolic links.
    pub mount_point: String,
    /// All its mounts, the oldest first; none when it is about to end.
    #[serde(default)]
    pub views: Vec<ViewInfo>,
    /// Those that have been unmounted, and of which not all may be written yet.
    #[serde(default)]
    pub closing: Vec<ViewInfo>,
}

/// A volume, mounted or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// The image file or block device.
    pub source: String,
    /// The volume's UUID.
    pub uuid: String,
    /// The volume's name; may be empty.
    pub label: String,
    /// The version of the on-disk format.
    pub format_version: u32,
    /// When it was made, seconds since 1970.
    pub created_unix_s: i64,
    /// Bytes on the device.
    pub device_size_bytes: u64,
    /// How the device is cut up.
    pub segments: SegmentInfo,
    /// What a reader must know to use it.
    pub features: FeatureInfo,
    /// How its bytes are used.
    pub space: SpaceInfo,
    /// Where the volume is found from.
    #[serde(default)]
    pub superblock: SuperblockInfo,
    /// Where the next mount would start.
    pub checkpoint: CheckpointInfo,
    /// What was found damaged when it was opened, and what that cost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// What was met since, or before, and nobody has taken note of; nothing: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_damage: Option<DamageInfo>,
    /// Where it is mounted; nothing when the device was read offline.
    pub mount: Option<MountInfo>,
}

/// How a device is cut up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Bytes in each.
    pub size_bytes: u64,
    /// How many there are.
    pub total: u64,
    /// How many are clean; nothing where that was not counted.
    pub clean: Option<u64>,
}

/// Feature flags, by what a reader that does not know one may still do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureInfo {
    /// Anything.
    pub compatible: Vec<String>,
    /// Read.
    pub read_only_compatible: Vec<String>,
    /// Nothing.
    pub incompatible: Vec<String>,
}

/// How a volume's bytes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceInfo {
    /// What could be used if the volume were empty.
    pub capacity_bytes: u64,
    /// What is used by data that can be reached.
    pub live_bytes: u64,
    /// What can still be written.
    pub available_bytes: u64,
    /// What is set aside for operations under way.
    pub reserved_bytes: u64,
}

/// The newest superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuperblockInfo {
    /// Its number.
    pub sequence: u64,
    /// When it was written, seconds since 1970.
    pub written_unix_s: i64,
}

/// The state that a mount starts from, and the log behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    /// Its number.
    pub sequence: u64,
    /// When it was taken, seconds since 1970.
    pub written_unix_s: i64,
    /// Bytes of log written since, which a mount after a crash would read.
    pub log_bytes: u64,
    /// The number of the last commit.
    pub last_commit: u64,
    /// The number of the last commit that is known to be durable.
    pub durable_commit: u64,
    /// Whether the volume was shut down cleanly and has not been opened for writing since.
    pub clean: bool,
}

/// Where and how a volume is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountInfo {
    /// The directory.
    pub mount_point: String,
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's version.
    pub software: String,
    /// Why it takes no writes, if it takes none.
    pub read_only: Option<String>,
    /// When it was mounted, seconds since 1970.
    pub since_unix_s: i64,
    /// Which way the kernel's requests come; empty: an older daemon's.
    #[serde(default)]
    pub transport: String,
    /// Where messages go: `syslog`, `standard error`, or a file; empty: an older daemon's.
    #[serde(default)]
    pub log: String,
    /// Its control socket, as the one who asked reached it.
    #[serde(default)]
    pub socket: String,
    /// All its mounts, the oldest first.
    #[serde(default)]
    pub views: Vec<ViewInfo>,
}

/// Why a daemon did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdminError(pub String);

/// What a daemon can be asked to do. Calls come from several threads at once.
pub trait Admin: Cleaning {
    /// Who it is. Must not wait for anything.
    fn ping(&self) -> Pong;

    /// What the volume is like.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn info(&self) -> Result<VolumeInfo, AdminError>;

    /// Counters since the mount.
    ///
    /// # Errors
    /// When they cannot be had.
    fn stat(&self) -> Result<Facts, AdminError>;

    /// The same and more, in Prometheus's text format.
    ///
    /// # Errors
    /// When they cannot be had.
    fn metrics(&self) -> Result<String, AdminError>;

    /// Changes how the daemon's own cleaner goes about it; returns how it does from now on.
    ///
    /// # Errors
    /// When there is no policy of this name; then nothing is changed.
    fn change_cleaner(&self, change: &CleanerChange) -> Result<CleanerSettings, AdminError>;

    /// Coalesces a part of what is named, so that it takes some seconds at most. `mount` is the mount
    /// whose version is meant; nothing: the main branch's head.
    ///
    /// # Errors
    /// When the disk takes no changes, the map cannot be read, or there is no such mount.
    fn coalesce(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &CoalesceRequest,
    ) -> Result<Coalesced, AdminError> {
        Err(AdminError("nothing is coalesced here".into()))
    }

    /// Does what is asked about versions. `mount` is the mount whose version names without a branch
    /// refer to; nothing: the main branch.
    ///
    /// # Errors
    /// Why it was not done; for any request, when the volume's disk has no versions.
    fn versions(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &VersionsRequest,
    ) -> Result<VersionsReply, AdminError> {
        Err(AdminError("this volume has no versions".into()))
    }

    /// What damage was met, and nobody has taken note of.
    ///
    /// # Errors
    /// When what is kept with the volume cannot be changed.
    fn damage(&self, _request: DamageRequest) -> Result<DamageInfo, AdminError> {
        Ok(DamageInfo::default())
    }

    /// Serves one more view, whose requests come by `device`.
    ///
    /// # Errors
    /// Why it is not done; the one who asks takes the mount away again.
    fn mount(
        &self,
        _request: &MountRequest,
        _device: Option<OwnedFd>,
    ) -> Result<MountReply, AdminError> {
        Err(AdminError("this daemon serves one view".into()))
    }

    /// Unmounts the mount that is meant.
    ///
    /// # Errors
    /// When none is meant, or it cannot be unmounted.
    fn unmount(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: UnmountRequest,
    ) -> Result<(), AdminError> {
        Err(AdminError("this daemon unmounts nothing".into()))
    }

    /// Changes how a mount is served. `mount` is the one that is meant; nothing: the first one.
    ///
    /// # Errors
    /// Which options cannot be changed while it is mounted; then nothing is. When there is no such
    /// mount.
    fn set(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &SetRequest,
    ) -> Result<ViewInfo, AdminError> {
        Err(AdminError("nothing can be changed here".into()))
    }

    /// Returns once all that was written before is durable.
    ///
    /// # Errors
    /// When the disk has stopped taking writes.
    fn sync(&self) -> Result<(), AdminError>;

    /// Begins to unmount and end; returns at once.
    ///
    /// # Errors
    /// When the volume cannot be unmounted.
    fn shut_down(&self) -> Result<(), AdminError>;

    /// Does what another user than the daemon's own and root asks, as far as that user may.
    /// `descriptor` is what came with the request; one may go with the answer.
    ///
    /// # Errors
    /// Why it was not done; for anything that is not known to be allowed, that it is not.
    fn for_other(
        &self,
        _caller: &Caller,
        _request: &Request,
        _descriptor: Option<OwnedFd>,
    ) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        Err(AdminError("this needs the user who mounted it, or root".into()))
    }
}

impl Pong {
    /// Whether the daemon has the mount `view` still, or has not written all of it yet.
    #[must_use]
    pub fn has(&self, view: &ViewInfo) -> bool {
        self.views.iter().chain(&self.closing).any(|of| of.is_same(view))
    }
}

impl Request {
    /// The request of this version.
    #[must_use]
    pub const fn new(command: Command) -> Self {
        Self { version: PROTOCOL_VERSION, addressee: None, command }
    }

    /// The same, meant for `addressee` alone.
    #[must_use]
    pub fn meant_for(self, addressee: Option<Addressee>) -> Self {
        Self { addressee, ..self }
    }

    /// The refusal if it is meant for another than `admin`, which has not been asked yet.
    pub(crate) fn refused_by(&self, admin: &dyn Admin) -> Option<Reply> {
        let why = self.addressee.as_ref()?.differs_from(&admin.ping())?;
        Some(Reply::new(Outcome::NotMeant(why)))
    }

    /// The mount that it is about; `device` is what it names itself.
    #[must_use]
    pub fn mount<'a>(&self, device: Option<&'a String>) -> Option<MountNamed<'a>> {
        let view = self.addressee.as_ref().and_then(|addressee| addressee.view);
        view.map(MountNamed::View).or_else(|| device.map(|device| MountNamed::Device(device)))
    }
}

impl Reply {
    /// The reply of this version.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self { version: PROTOCOL_VERSION, outcome }
    }

    /// That it was not done, and why.
    #[must_use]
    pub fn refusal(AdminError(why): AdminError) -> Self {
        Self::new(Outcome::Error(why))
    }

    /// What `admin` answers to `request` of another user, with which a descriptor may have come.
    pub(crate) fn to_other(
        caller: &Caller,
        request: &Request,
        descriptor: Option<OwnedFd>,
        admin: &dyn Admin,
    ) -> (Self, Option<OwnedFd>) {
        if let Some(refusal) = request.refused_by(admin) {
            return (refusal, None);
        }
        match admin.for_other(caller, request, descriptor) {
            Ok((outcome, descriptor)) => (Self::new(outcome), descriptor),
            Err(error) => (Self::refusal(error), None),
        }
    }

    /// What `admin` answers to `request`, with which a descriptor may have come, at once:
    /// [`Command::Segwait`] says how it is now.
    pub(crate) fn to(request: &Request, descriptor: Option<OwnedFd>, admin: &dyn Admin) -> Self {
        // One that waited for a thread may have outlasted the mount that it is about.
        request.refused_by(admin).unwrap_or_else(|| {
            answer(request, descriptor, admin).map_or_else(Self::refusal, Self::new)
        })
    }
}

/// The request that `line` holds, which may be anything.
///
/// # Errors
/// What to answer when it is no request, or asks for more than the protocol allows.
pub fn parse_request(line: &[u8]) -> Result<Request, AdminError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let malformed = |error| AdminError(format!("not a request of this protocol: {error}"));
    let Versioned { version } = serde_json::from_slice(line).map_err(malformed)?;
    if version != PROTOCOL_VERSION {
        return Err(AdminError(format!(
            "the request is of protocol version {version}; this daemon speaks version \
             {PROTOCOL_VERSION}: use the dendro command of the same release"
        )));
    }
    let request: Request = serde_json::from_slice(line).map_err(malformed)?;
    match &request.command {
        Command::Bmapv(named) | Command::Markv(named) => {
            cleaning::check_count("blocks", named.blocks.len(), MAX_BLOCKS)?;
        }
        Command::Coalesce(CoalesceRequest { lists: Some(lists), .. }) => {
            cleaning::check_count("lists", lists.len(), MAX_LISTS)?;
        }
        Command::Segclean(named) => {
            cleaning::check_count("segments", named.segments.len(), MAX_SEGMENTS)?;
        }
        _ => {}
    }
    Ok(request)
}

fn answer(
    request: &Request,
    descriptor: Option<OwnedFd>,
    admin: &dyn Admin,
) -> Result<Outcome, AdminError> {
    Ok(match &request.command {
        Command::Ping => Outcome::Pong(admin.ping()),
        Command::Info => Outcome::Info(Box::new(admin.info()?)),
        Command::Stat => Outcome::Stat(admin.stat()?),
        Command::Sync => admin.sync().map(|()| Outcome::Done)?,
        Command::Shutdown => admin.shut_down().map(|()| Outcome::Done)?,
        Command::Metrics => Outcome::Metrics(admin.metrics()?),
        Command::Cleaner(change) => Outcome::Cleaner(admin.change_cleaner(change)?),
        Command::Coalesce(asked) => {
            let mount = request.mount(asked.mount.as_ref());
            Outcome::Coalesced(admin.coalesce(mount, asked)?)
        }
        Command::Segments(asked) => Outcome::Segments(admin.segments(asked)?),
        Command::Blocks(asked) => Outcome::Blocks(admin.blocks(asked)?),
        Command::Bmapv(named) => Outcome::Places(admin.bmapv(&named.blocks)?),
        Command::Markv(named) => Outcome::Marked(admin.markv(&named.blocks)?),
        Command::Segwait(asked) => {
            let present = admin.present();
            let is_low = present.clean_count < asked.clean_below;
            Outcome::Waited(Waited { is_low, present })
        }
        Command::Segclean(named) => Outcome::Released(admin.segclean(&named.segments)?),
        Command::Versions(VersionsAsked { mount, request: asked }) => {
            Outcome::Versions(admin.versions(request.mount(mount.as_ref()), asked)?)
        }
        Command::Damage(asked) => Outcome::Damage(admin.damage(*asked)?),
        Command::Mount(asked) => Outcome::Mount(admin.mount(asked, descriptor)?),
        Command::Unmount(asked) => {
            admin.unmount(request.mount(None), *asked).map(|()| Outcome::Done)?
        }
        Command::Set(asked) => {
            let mount = request.mount(asked.mount.as_ref());
            Outcome::Set(Box::new(admin.set(mount, asked)?))
        }
    })
}
