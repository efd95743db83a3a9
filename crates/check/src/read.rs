//! The readers: one for each structure of a volume. None of them trusts a byte.

mod beyond;
mod kept;
mod log;
mod log_summary;
mod map;
mod partial;
mod partials;
mod superblocks;
mod usage;
mod volume;

pub(crate) use kept::Kept;
pub use log::{Log, LogEnd, NextSegment};
pub use log_summary::LogSummary;
pub(crate) use map::Pending;
pub(crate) use map::first_and_last;
pub use map::{MapEntries, Node, Nodes};
pub use partial::{Partial, PartialRecord};
pub use partials::{Break, Partials};
pub(crate) use partials::{read_partial, read_partial_with};
pub use superblocks::{FoundSuperblock, Superblocks, find_superblocks};
pub use usage::{UsageRow, UsageSource, UsageTable};
pub use volume::Volume;
