//! What is said over the socket.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::cleaning::{
    self, Blocks, BlocksNamed, BlocksRequest, CleanerChange, CleanerSettings, Cleaning, MAX_BLOCKS,
    MAX_SEGMENTS, Marked, Places, Released, Segments, SegmentsNamed, SegmentsRequest,
    SegwaitRequest, Waited,
};
use crate::coalescing::{CoalesceRequest, Coalesced, MAX_LISTS};
use crate::mounts::{MountReply, MountRequest, SetRequest, ViewInfo};
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
    /// Serve one more view.
    Mount(MountRequest),
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
    /// The answer to [`Command::Mount`].
    Mount(MountReply),
    /// The answer to [`Command::Set`]: the mount with the options that are in force now.
    Set(Box<ViewInfo>),
    /// It was done, and there is nothing to tell.
    Done,
    /// It was not done, and why.
    Error(String),
}

/// Names and numbers that each layer chooses for itself.
pub type Facts = BTreeMap<String, serde_json::Value>;

/// Who a daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The software's version.
    pub software: String,
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

    /// Coalesces a part of what is named, so that it takes some seconds at most.
    ///
    /// # Errors
    /// When the disk takes no changes, the map cannot be read, or there is no such mount.
    fn coalesce(&self, _request: &CoalesceRequest) -> Result<Coalesced, AdminError> {
        Err(AdminError("nothing is coalesced here".into()))
    }

    /// Does what is asked about versions. `mount` is the device of the mount whose version names
    /// without a branch refer to; nothing: the main branch.
    ///
    /// # Errors
    /// Why it was not done; for any request, when the volume's disk has no versions.
    fn versions(
        &self,
        _mount: Option<&str>,
        _request: &VersionsRequest,
    ) -> Result<VersionsReply, AdminError> {
        Err(AdminError("this volume has no versions".into()))
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

    /// Changes how a mount is served.
    ///
    /// # Errors
    /// Which options cannot be changed while it is mounted; then nothing is.
    fn set(&self, _request: &SetRequest) -> Result<ViewInfo, AdminError> {
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
}

impl Request {
    /// The request of this version.
    #[must_use]
    pub const fn new(command: Command) -> Self {
        Self { version: PROTOCOL_VERSION, command }
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

    /// What `admin` answers to `command`, at once: [`Command::Segwait`] says how it is now.
    #[must_use]
    pub fn to(command: &Command, admin: &dyn Admin) -> Self {
        Self::with_descriptor(command, None, admin)
    }

    /// As [`Self::to`], for a request with which a descriptor came.
    pub(crate) fn with_descriptor(
        command: &Command,
        descriptor: Option<OwnedFd>,
        admin: &dyn Admin,
    ) -> Self {
        answer(command, descriptor, admin).map_or_else(Self::refusal, Self::new)
    }
}

/// The command of the request that `line` holds, which may be anything.
///
/// # Errors
/// What to answer when it is no request, or asks for more than the protocol allows.
pub fn parse_request(line: &[u8]) -> Result<Command, AdminError> {
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
    Ok(request.command)
}

fn answer(
    command: &Command,
    descriptor: Option<OwnedFd>,
    admin: &dyn Admin,
) -> Result<Outcome, AdminError> {
    Ok(match command {
        Command::Ping => Outcome::Pong(admin.ping()),
        Command::Info => Outcome::Info(Box::new(admin.info()?)),
        Command::Stat => Outcome::Stat(admin.stat()?),
        Command::Sync => admin.sync().map(|()| Outcome::Done)?,
        Command::Shutdown => admin.shut_down().map(|()| Outcome::Done)?,
        Command::Metrics => Outcome::Metrics(admin.metrics()?),
        Command::Cleaner(change) => Outcome::Cleaner(admin.change_cleaner(change)?),
        Command::Coalesce(request) => Outcome::Coalesced(admin.coalesce(request)?),
        Command::Segments(request) => Outcome::Segments(admin.segments(request)?),
        Command::Blocks(request) => Outcome::Blocks(admin.blocks(request)?),
        Command::Bmapv(named) => Outcome::Places(admin.bmapv(&named.blocks)?),
        Command::Markv(named) => Outcome::Marked(admin.markv(&named.blocks)?),
        Command::Segwait(request) => {
            let present = admin.present();
            let is_low = present.clean_count < request.clean_below;
            Outcome::Waited(Waited { is_low, present })
        }
        Command::Segclean(named) => Outcome::Released(admin.segclean(&named.segments)?),
        Command::Versions(VersionsAsked { mount, request }) => {
            Outcome::Versions(admin.versions(mount.as_deref(), request)?)
        }
        Command::Mount(request) => Outcome::Mount(admin.mount(request, descriptor)?),
        Command::Set(request) => Outcome::Set(Box::new(admin.set(request)?)),
    })
}
