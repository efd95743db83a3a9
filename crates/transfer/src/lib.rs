//! Versions of a logical disk as send streams, on any disk that has versions. It knows no files.
//!
//! - [`send()`]: writes what a version has, or what it has and an older one has not.
//! - [`Plan`]: sends all versions, one after the other.
//! - [`receive()`]: applies what was written, whole or not at all. [`abandon`] deletes what a crash
//!   has left of it, [`abort`] also what was kept to be gone on with ([`kept_parts`]).

#![forbid(unsafe_code)]

mod ahead;
mod all;
mod apply;
mod error;
mod receive;
mod send;

use dendro_base::{Origin, Uuid};
use dendro_disk::Snapshot;

pub use all::{Plan, Step};
pub use error::{ReceiveError, SendError};
pub use receive::{NOTE_INTERVAL_BYTES, Wanted, abandon, abort, find_origin, kept_parts, receive};
pub use send::{SendRange, send};

/// Where `snapshot`, a snapshot of the volume `volume`, was made.
#[must_use]
pub const fn origin(volume: Uuid, snapshot: &Snapshot) -> Origin {
    match snapshot.origin {
        Some(origin) => origin,
        None => Origin { volume, epoch: snapshot.epoch },
    }
}
