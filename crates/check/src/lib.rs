//! Reads, verifies and rebuilds a volume offline, from its format alone: it shares no code with the
//! engine that writes volumes, so that an error in one does not hide in the other.
//!
//! The modules, each using only those before it:
//!
//! - `error`: why something cannot be read.
//! - `read`: the readers. [`find_superblocks`]; [`Volume`] with its checkpoint; the map ([`Nodes`],
//!   [`MapEntries`]); the partial segments of a segment ([`Partials`]); the log behind the
//!   checkpoint ([`Log`], [`LogSummary`]); the usage of segments ([`UsageTable`]).
//! - [`info`]: what was read, as plain structures that print themselves and go into JSON.
//! - `verify`: [`verify()`] visits everything that the checkpoint reaches, counts it once more, and
//!   reports each [`Finding`] with a number whose meaning never changes.
//! - `metadata`: [`copy_metadata()`] copies a volume without data and with names hidden.
//! - `rebuild`: [`rebuild()`] makes a checkpoint anew where superblocks, checkpoints or parts of
//!   the map are lost. It alone changes a volume.
//!
//! What is read is what lies on the device: a mounted volume should be checkpointed first, and may
//! have changed in the meantime. The bytes are not trusted: whatever they are, the result is an
//! error or a finding, in memory that the size of the volume bounds to a few bytes a segment; a
//! rebuild states its own bounds.

#![forbid(unsafe_code)]

mod error;
pub mod info;
mod metadata;
mod read;
mod rebuild;
#[cfg(feature = "testing")]
pub mod testing;
mod verify;

pub use error::{Error, NodeProblem, NodeProblemKind, Result};
pub use metadata::{Hide, MetadataOptions, MetadataReport, copy_metadata};
pub use read::{
    Break, FoundSuperblock, Log, LogEnd, LogSummary, MapEntries, NextSegment, Node, Nodes, Partial,
    PartialRecord, Partials, Superblocks, UsageRow, UsageSource, UsageTable, Volume,
    find_superblocks,
};
pub use rebuild::{
    Extent, LostPages, Rebuild, RebuildOptions, RebuildReport, Restored, Source, rebuild,
};
pub use verify::{
    Counts, Finding, FindingKind, Options, Report, SeenIn, Severity, Version, Watch, verify,
    verify_watched,
};
