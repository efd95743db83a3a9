//! The control socket: how a command reaches the daemon that owns a volume.
//!
//! One request and one reply per connection, each one line of JSON of bounded length, each with the
//! protocol's version. `docs/CONTROL.md` describes the protocol for those who implement it in
//! another language.
//!
//! The modules, each using only those before it:
//!
//! - `messages`: what is said. [`Request`] and [`Reply`], and by subject [`block_devices`],
//!   [`check`], [`cleaning`], [`coalescing`], [`damage`], [`devices`], [`resizing`], [`scrub`],
//!   [`streams`] and [`versions`].
//! - [`socket`]: where the sockets are, lines and descriptors over a connection, and the files
//!   beside a socket ([`identity_file`], [`closing_error`]). [`Caller`]: the other end's user.
//! - `admin`: [`Admin`] and [`Cleaning`], the operations that a daemon implements. This crate knows
//!   neither a file system nor a logical disk.
//! - `server`: [`Server`] listens for a daemon; [`Gate`] opens its socket to other users;
//!   [`Scrape`] serves metrics over TCP, for Prometheus.
//! - `client`: [`Client`] talks to one daemon; [`Client::find`] finds it.
//!
//! No thread is started here: [`Server::run`], [`Server::run_waits`] and [`Scrape::run`] occupy the
//! threads that call them.

#![forbid(unsafe_code)]

mod admin;
mod client;
mod messages;
mod server;
pub mod socket;

pub use admin::{Admin, Cleaning};
pub use client::{Client, ClientError, FindOutcome, ServingEnd, Unresponsive};
pub use messages::{
    Addressee, AdminError, CheckpointInfo, Command, CompressionInfo, CompressionKinds, Facts,
    FeatureInfo, MAX_REPLY_LEN_BYTES, MAX_REQUEST_LEN_BYTES, MountInfo, MountNamed, MountReply,
    MountRequest, Outcome, PROTOCOL_VERSION, Pong, Reply, Request, SegmentInfo, ServedInfo,
    SetRequest, SpaceInfo, SuperblockInfo, UnmountRequest, ViewInfo, VolumeInfo, block_devices,
    check, cleaning, coalescing, damage, devices, parse_request, resizing, scrub, streams,
    versions,
};
pub use server::{Gate, Scrape, Server};
pub use socket::{Caller, closing_error, identity_file};
