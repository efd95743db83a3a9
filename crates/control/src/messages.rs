//! What is said over the socket: plain data, as it travels.
//!
//! A message is one line of JSON. A [`Request`] holds a [`Command`], a [`Reply`] an [`Outcome`].
//! The other modules hold what these are made of, one subject each.

pub mod block_devices;
pub mod check;
pub mod cleaning;
pub mod coalescing;
pub mod damage;
pub mod devices;
pub mod resizing;
pub mod scrub;
pub mod streams;
pub mod versions;

mod addressee;
mod mounts;
mod reply;
mod request;
mod volume;

pub use addressee::Addressee;
pub use mounts::{
    MountInfo, MountNamed, MountReply, MountRequest, SetRequest, UnmountRequest, ViewInfo,
};
pub use reply::{AdminError, Facts, Outcome, Reply};
pub use request::{Command, Request, parse_request};
pub use volume::{
    CheckpointInfo, CompressionInfo, CompressionKinds, FeatureInfo, Pong, SegmentInfo, ServedInfo,
    SpaceInfo, SuperblockInfo, VolumeInfo,
};

/// The version of the protocol. Each message carries it; a side that receives another version
/// reports that and does nothing else.
///
/// New commands and new members of messages do not change the version: a daemon answers a command
/// that it does not know with an error, and both sides ignore members that they do not know.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest request, its newline included, in bytes.
pub const MAX_REQUEST_LEN_BYTES: usize = 256 << 10;

/// The longest reply, its newline included, in bytes.
pub const MAX_REPLY_LEN_BYTES: usize = 16 << 20;
