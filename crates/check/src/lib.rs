//! Reads and verifies a volume offline, from its format alone: it shares no code with the engine
//! that writes volumes, so that an error in one does not hide in the other.
//!
//! - [`find_superblocks`]: where a volume is found from.
//! - [`Volume`]: the readers: checkpoint, map ([`Nodes`], [`MapEntries`]), segments ([`Partials`]),
//!   the log behind the checkpoint ([`Log`]), usage ([`UsageTable`]).
//! - [`verify`]: walks all that the checkpoint reaches, counts it once more, and answers
//!   [`Finding`]s, each with a number that never changes its meaning.
//! - [`info`]: what was read, as plain structures that print themselves and go into JSON.
//!
//! It changes nothing, and sees what is on the device: a volume that is mounted should be
//! checkpointed first, and may have moved on meanwhile. Bytes are hostile: whatever is there is
//! answered with an error or a finding, in memory that the size of the volume bounds to a few bytes
//! a segment.

#![forbid(unsafe_code)]

mod error;
mod finding;
pub mod info;
mod log;
mod map;
mod overlap;
mod skips;
mod superblocks;
#[cfg(feature = "testing")]
pub mod testing;
mod usage;
mod verify;
mod versions;
mod volume;

pub use error::{Error, Result};
pub use finding::{Finding, FindingKind, Severity};
pub use log::{Break, Log, LogEnd, LogSummary, NextSegment, Partial, PartialRecord, Partials};
pub use map::{MapEntries, Node, NodeProblem, NodeProblemKind, Nodes};
pub use superblocks::{FoundSuperblock, Superblocks, find_superblocks};
pub use usage::{UsageRow, UsageSource, UsageTable};
pub use verify::{Counts, Options, Report, verify};
pub use volume::Volume;
