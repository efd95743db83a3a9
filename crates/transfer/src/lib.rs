//! Versions of a logical disk as send streams, on any disk that has versions. It knows no files.
//!
//! - [`send()`]: writes what a version has, or what it has and an older one has not.
//! - [`receive()`]: applies what was written, whole or not at all. [`abandon`] deletes what a crash
//!   has left of it.

#![forbid(unsafe_code)]

mod receive;
mod send;

use dendro_base::{Origin, Uuid};
use dendro_disk::Snapshot;

pub use receive::{ReceiveError, abandon, receive};
pub use send::{SendError, send};

/// Where `snapshot`, a snapshot of the volume `volume`, was made.
#[must_use]
pub const fn origin(volume: Uuid, snapshot: &Snapshot) -> Origin {
    match snapshot.origin {
        Some(origin) => origin,
        None => Origin { volume, epoch: snapshot.epoch },
    }
}
