//! What users do with the versions of a volume, on any disk with versions.
//!
//! - [`name`]: how versions are named on the command line and in requests, and what the names mean.
//! - [`Retention`]: which of the snapshots that were made automatically to keep.
//! - [`Service`]: carries out the requests of [`dendro_control::versions`], for a daemon or on a
//!   volume that is not mounted; for an [`Asker`] only what that user may do.
//!
//! Not here: the disk, the socket, the command line, and the thread that makes snapshots at
//! intervals.

#![forbid(unsafe_code)]

pub mod name;
mod retention;
mod service;

pub use retention::Retention;
pub use service::{Asker, Handover, Service};
