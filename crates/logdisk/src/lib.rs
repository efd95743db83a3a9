//! The log-structured logical disk (DESIGN §§4–6, 9): a [`dendro_disk::LogicalDisk`] over a
//! [`dendro_device::Device`]. It knows nothing of files.
//!
//! The rooms, from the bottom up:
//! - `log`: segments, partial segments, the writer's queue, superblocks.
//! - `map`: the B+tree, functional in memory, its cache, and how changes of it are undone.
//! - `versions`: the table of branches and snapshots, ancestry, and what branches inherit.
//! - `state`: the map, the segments' usage and the versions together, and how each change alters them.
//! - `engine`: what the one lock guards: the state, the main log's head and the payload streams.
//! - `commit`: a unit is applied, whole or not at all; who flushes, and for whom.
//! - `read`, `walk`: blocks and nodes are found and checked, and long walks go in slices.
//! - `checkpoint`, `recovery`: a frozen state is written, and found again.
//! - `removal`, `snapshots`: lists and versions are deleted, and what nobody sees any more is freed.
//! - `clean`: segments are emptied, scattered pages laid side by side.
//! - `space`: what fits, and how writers are slowed down when that gets little.
//! - `disk`: the disk as its clients see it.
//!
//! Nothing here starts a thread or reads a clock: background work is a step that the caller paces.

#![forbid(unsafe_code)]

mod checkpoint;
mod clean;
mod commit;
mod damage;
mod disk;
mod engine;
mod fault;
mod log;
mod map;
mod options;
mod read;
mod recovery;
mod removal;
mod snapshots;
mod space;
mod state;
mod versions;
mod walk;

pub use clean::cleaner::CLEANER_NICENESS;
pub use clean::coalesce::{Coalesced, Place};
pub use clean::external;
pub use damage::{Damage, DamageLog};
pub use disk::{LogDisk, Stats};
pub use log::segments::{SegmentCounts, SegmentState};
pub use options::{CleanSettings, CoalesceSettings, FormatOptions, OnLoss, OpenOptions};
pub use recovery::wipe::invalidate;
pub use recovery::{create, format};
