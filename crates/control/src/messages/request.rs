//! Requests: what can be asked of a daemon.

use serde::{Deserialize, Serialize};

use super::PROTOCOL_VERSION;
use super::addressee::Addressee;
use super::block_devices::{BlockDevicesRequest, ServeBlockDevicesRequest};
use super::check::CheckRequest;
use super::cleaning::{
    BlocksNamed, BlocksRequest, CleanerChange, MAX_BLOCKS, MAX_SEGMENTS, SegmentsNamed,
    SegmentsRequest, SegwaitRequest,
};
use super::coalescing::{CoalesceRequest, MAX_LISTS};
use super::damage::DamageRequest;
use super::devices::DevicesRequest;
use super::mounts::{MountNamed, MountRequest, SetRequest, UnmountRequest};
use super::reply::AdminError;
use super::resizing::ResizeRequest;
use super::scrub::ScrubRequest;
use super::streams::{ReceiveRequest, SendRequest};
use super::versions::VersionsAsked;

/// A request to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The client's [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The daemon or mount that it is meant for; any other refuses it. `None`: any.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub addressee: Option<Addressee>,
    /// What is to be done.
    #[serde(flatten)]
    pub command: Command,
}

/// What can be asked of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Identify the daemon. It answers at once, whatever else it does.
    Ping,
    /// Describe the volume.
    Info,
    /// Report counters since the mount.
    Stat,
    /// Make durable everything that was written before.
    Sync,
    /// Unmount and end cleanly. The reply comes before the daemon has ended.
    Shutdown,
    /// Report counters in Prometheus's text format.
    Metrics,
    /// Change the settings of the daemon's own cleaner, and report all of them.
    Cleaner(CleanerChange),
    /// Write scattered pages of files side by side.
    Coalesce(CoalesceRequest),
    /// List segments, and how full they are.
    Segments(SegmentsRequest),
    /// List the blocks of a segment.
    Blocks(BlocksRequest),
    /// Report where these blocks lie now.
    Bmapv(BlocksNamed),
    /// Write these blocks again.
    Markv(BlocksNamed),
    /// Reply once there are few clean segments.
    Segwait(SegwaitRequest),
    /// Make these segments clean.
    Segclean(SegmentsNamed),
    /// Make, list, compare and delete versions, and bring files back.
    Versions(VersionsAsked),
    /// Report damaged places that were found.
    Damage(DamageRequest),
    /// Begin, pause, resume or end a scrub, or report it.
    Scrub(ScrubRequest),
    /// Check the volume as it is at one moment.
    Check(CheckRequest),
    /// Write a send stream.
    Send(SendRequest),
    /// Make the volume longer.
    Resize(ResizeRequest),
    /// List or change the devices that the volume lies on.
    Devices(DevicesRequest),
    /// List, make, resize and delete block devices in the volume.
    BlockDevices(BlockDevicesRequest),
    /// Serve them over NBD, until the client wants no more.
    ServeBlockDevices(ServeBlockDevicesRequest),
    /// Apply a send stream.
    Receive(ReceiveRequest),
    /// Serve one more view.
    Mount(MountRequest),
    /// Unmount a mount.
    Unmount(UnmountRequest),
    /// Change how a mount is served.
    Set(SetRequest),
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

    /// The mount that it is about; `device` is the device that the command names, if it names one.
    #[must_use]
    pub fn mount<'a>(&self, device: Option<&'a String>) -> Option<MountNamed<'a>> {
        let view = self.addressee.as_ref().and_then(|addressee| addressee.view);
        view.map(MountNamed::View).or_else(|| device.map(|device| MountNamed::Device(device)))
    }
}

/// The request in `line`, which may hold any bytes.
///
/// # Errors
/// The reply, if `line` is no request or asks for more than the protocol allows.
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
            check_count("blocks", named.blocks.len(), MAX_BLOCKS)?;
        }
        Command::Coalesce(CoalesceRequest { lists: Some(lists), .. }) => {
            check_count("lists", lists.len(), MAX_LISTS)?;
        }
        Command::Segclean(named) => {
            check_count("segments", named.segments.len(), MAX_SEGMENTS)?;
        }
        _ => {}
    }
    Ok(request)
}

/// Refuses what is longer than the protocol allows.
fn check_count(what: &str, count: usize, max: usize) -> Result<(), AdminError> {
    if count <= max {
        return Ok(());
    }
    Err(AdminError(format!("{count} {what} in one request; {max} are the most")))
}
