//! The readers: one for each structure of a volume. None of them trusts a byte.

mod beyond;
mod log;
mod log_summary;
mod map;
mod partial;
mod superblocks;
mod usage;
mod volume;

pub use log::{Log, LogEnd, NextSegment};
pub use log_summary::LogSummary;
pub(crate) use map::Pending;
pub(crate) use map::first_and_last;
pub use map::{MapEntries, Node, Nodes};
pub use partial::{Break, Partial, PartialRecord, Partials};
pub(crate) use partial::{read_partial, read_partial_with};
pub use superblocks::{FoundSuperblock, Superblocks, find_superblocks};
pub use usage::{UsageRow, UsageSource, UsageTable};
pub use volume::Volume;
