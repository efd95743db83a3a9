//! Replies: what a daemon answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PROTOCOL_VERSION;
use super::block_devices::{BlockDeviceInfo, ServingInfo};
use super::check::{CheckProgress, CheckReport};
use super::cleaning::{Blocks, CleanerSettings, Marked, Places, Released, Segments, Waited};
use super::coalescing::Coalesced;
use super::damage::DamageInfo;
use super::devices::DevicesInfo;
use super::mounts::{MountReply, ViewInfo};
use super::resizing::{ResizeProgress, Resized};
use super::scrub::ScrubInfo;
use super::streams::{ReceivedInfo, SentInfo};
use super::versions::VersionsReply;
use super::volume::{Pong, VolumeInfo};

/// A daemon's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// The outcome of the request.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "value", rename_all = "snake_case")]
pub enum Outcome {
    /// The reply to [`Command::Ping`](super::Command::Ping).
    Pong(Pong),
    /// The reply to [`Command::Info`](super::Command::Info).
    Info(Box<VolumeInfo>),
    /// The reply to [`Command::Stat`](super::Command::Stat).
    Stat(Facts),
    /// The reply to [`Command::Metrics`](super::Command::Metrics).
    Metrics(String),
    /// The reply to [`Command::Cleaner`](super::Command::Cleaner).
    Cleaner(CleanerSettings),
    /// The reply to [`Command::Coalesce`](super::Command::Coalesce).
    Coalesced(Coalesced),
    /// The reply to [`Command::Segments`](super::Command::Segments).
    Segments(Segments),
    /// The reply to [`Command::Blocks`](super::Command::Blocks).
    Blocks(Blocks),
    /// The reply to [`Command::Bmapv`](super::Command::Bmapv).
    Places(Places),
    /// The reply to [`Command::Markv`](super::Command::Markv).
    Marked(Marked),
    /// The reply to [`Command::Segwait`](super::Command::Segwait).
    Waited(Waited),
    /// The reply to [`Command::Segclean`](super::Command::Segclean).
    Released(Released),
    /// The reply to [`Command::Versions`](super::Command::Versions).
    Versions(VersionsReply),
    /// The reply to [`Command::Damage`](super::Command::Damage).
    Damage(DamageInfo),
    /// The reply to [`Command::Scrub`](super::Command::Scrub).
    Scrub(ScrubInfo),
    /// How far a check is, before the reply to [`Command::Check`](super::Command::Check).
    Checking(CheckProgress),
    /// The reply to that.
    Checked(Box<CheckReport>),
    /// The reply to [`Command::Send`](super::Command::Send), when the stream was written.
    Sent(Box<SentInfo>),
    /// How far a volume that becomes shorter is; the reply to
    /// [`Command::Resize`](super::Command::Resize) follows.
    Resizing(ResizeProgress),
    /// The reply to [`Command::Resize`](super::Command::Resize).
    Resized(Resized),
    /// The reply to [`Command::Devices`](super::Command::Devices).
    Devices(DevicesInfo),
    /// The reply to [`Command::BlockDevices`](super::Command::BlockDevices): all devices, or those
    /// that were changed.
    BlockDevices(Vec<BlockDeviceInfo>),
    /// Block devices are served; when that has ended, the reply to
    /// [`Command::ServeBlockDevices`](super::Command::ServeBlockDevices) follows.
    Serving(ServingInfo),
    /// The reply to [`Command::Receive`](super::Command::Receive), when the version is durable.
    Received(Box<ReceivedInfo>),
    /// The reply to [`Command::Mount`](super::Command::Mount).
    Mount(MountReply),
    /// The reply to [`Command::Set`](super::Command::Set): the mount with the options now in force.
    Set(Box<ViewInfo>),
    /// It was done, and there is nothing more to report.
    Done,
    /// It was not done, because the request is meant for another daemon or mount; the text says
    /// which this one is.
    NotMeant(String),
    /// It was not done, because the daemon serves too many others at the moment. The client should
    /// try again.
    Busy(String),
    /// It was not done; the text says why.
    Error(String),
}

/// Counters by name. Each layer chooses the names of its own.
pub type Facts = BTreeMap<String, serde_json::Value>;

/// Why a daemon did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdminError(pub String);

impl Reply {
    /// The reply of this version.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self { version: PROTOCOL_VERSION, outcome }
    }

    /// The reply that nothing was done, and why.
    #[must_use]
    pub fn refusal(AdminError(why): AdminError) -> Self {
        Self::new(Outcome::Error(why))
    }
}
