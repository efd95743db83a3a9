//! A server of the NBD protocol (network block device), in the form that is called *fixed
//! newstyle*. It knows nothing of dendrofs: what it exports are values of the trait [`Export`].
//!
//! - [`Export`], [`Exports`]: a block device, and the names by which clients find some.
//! - [`Server`]: accepts connections on a [`Listener`], and serves each until it ends.
//! - [`TlsConfig`]: certificates, for connections that are encrypted.
//! - [`Activity`]: the memory for requests, what was done, and who is connected.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `wire` | numbers and structures of the protocol |
//! | `export` | what is exported |
//! | `budget` | the memory of requests |
//! | `activity` | what was done, and who is connected |
//! | `options` | what clients ask for before data, decoded |
//! | `negotiation` | the answers to that; no I/O |
//! | `requests` | requests for data, decoded and checked |
//! | `replies` | their replies, encoded |
//! | `tls` | certificates |
//! | `channel` | a connection's two directions, plain or encrypted |
//! | `session` | one connection from its beginning to its end |
//! | `server` | all connections |
//!
//! With the feature `testing` also `testing`: a client, and an export in memory.
//!
//! # What is bounded
//! A server has [`MAX_CONNECTIONS`] at a time. Each has up to [`MAX_WORKERS`] threads with 64 KiB
//! each, and [`MAX_LEN_BYTES`] of data in longer requests that are under way. All connections
//! together have what [`Activity::new`] says. A client that does not read its replies, or sends
//! half of a request, holds up only requests that need its memory. If there are some, it is sent
//! away after some seconds.

#![forbid(unsafe_code)]

mod activity;
mod budget;
mod channel;
mod export;
mod negotiation;
mod options;
mod replies;
mod requests;
mod server;
mod session;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod wire;

pub use activity::{Activity, Connection, FailureKind, Peer, RequestKind};
pub use export::{Errno, Export, Exports, Extent, Failure, ListedExport, Result};
pub use server::{Listener, MAX_CONNECTIONS, Server};
pub use session::MAX_WORKERS;
pub use tls::{TlsConfig, TlsError};
pub use wire::MAX_LEN_BYTES;
