//! The control socket: how a command reaches the daemon that owns a volume.
//!
//! - [`Request`] and [`Reply`]: the protocol. One request and one reply per connection, each one
//!   line of JSON of bounded length, each with the protocol's version.
//! - [`cleaning`]: what cleaners in other processes say and hear.
//! - [`coalescing`]: what is asked and answered about putting together what lies scattered.
//! - [`damage`]: what is asked and answered about damage that was met.
//! - [`versions`]: what is asked and answered about versions.
//! - [`MountRequest`]: one more view is to be served; its connection is passed over the socket.
//! - [`Admin`]: what the daemon does about a request. It implements this trait; nothing here knows
//!   a file system or a logical disk.
//! - [`Server`]: listens for a daemon.
//! - [`Scrape`]: metrics over TCP, for Prometheus.
//! - [`Client`]: talks to one daemon; [`Client::find`] finds it.
//! - [`socket`]: where the sockets are.
//! - [`Caller`]: who asks.
//! - [`Addressee`]: whom a request is meant for.
//! - [`card`]: what a daemon has said last about itself, for when it does not answer.
//! - [`farewell`]: what a daemon leaves that could not write everything.
//!
//! No thread is started here: [`Server::run`], [`Server::run_waits`] and [`Scrape::run`] occupy those that call them.
//! `docs/CONTROL.md` describes the protocol for those who speak it in another language.

#![forbid(unsafe_code)]

mod addressee;
mod caller;
pub mod card;
pub mod cleaning;
mod client;
pub mod coalescing;
pub mod damage;
pub mod farewell;
mod http;
mod load;
mod mounts;
mod passing;
mod ping;
mod protocol;
mod scrape;
mod server;
pub mod socket;
pub mod versions;
mod wait;

pub use addressee::Addressee;
pub use caller::Caller;
pub use client::{Client, ClientError};
pub use mounts::{MountNamed, MountReply, MountRequest, SetRequest, UnmountRequest, ViewInfo};
pub use ping::{Found, Mute};
pub use protocol::{
    Admin, AdminError, CheckpointInfo, Command, Facts, FeatureInfo, MAX_REPLY_LEN_BYTES,
    MAX_REQUEST_LEN_BYTES, MountInfo, Outcome, PROTOCOL_VERSION, Pong, Reply, Request, SegmentInfo,
    SpaceInfo, SuperblockInfo, VolumeInfo, parse_request,
};
pub use scrape::Scrape;
pub use server::{Gate, Server};
