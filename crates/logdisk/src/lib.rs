//! The log-structured logical disk (DESIGN §§4–6, 9): a [`dendro_disk::LogicalDisk`] over a
//! [`dendro_device::Device`]. It knows nothing of files.
//!
//! The rooms, from the bottom up. Each knows only those before it:
//! - `log`: segments, partial segments, the writer's queue, superblocks.
//! - `map`: the B+tree, which is functional in memory, its cache, and how changes of it are undone.
//! - `versions`: the version table, ancestry, and inheritance.
//! - `state`: the map, the usage of segments and the versions together, and how each record of the
//!   log changes them.
//! - `engine`: what the one lock guards: the state, the main log's head and the payload streams.
//! - `volume`: an open volume: the device, the engine behind its lock, and the latch.
//! - `walk`, `blocks`: how long walks over the map are sliced, and how blocks are verified.
//! - `read`: what clients read. `flush`: how the log is made durable.
//! - `space`: what fits, what is reserved, and which segments are filled again before a checkpoint.
//! - `checkpoint`: how a frozen state of the map is written.
//! - `frozen`: the state of one moment as a device, for those who check it.
//! - `clean`: how segments are emptied, and how scattered pages are coalesced.
//! - `scrub`: how everything on the device that is live is read and checked.
//! - `reclaim`: how room is made and space is freed, and what is done when something does not fit.
//! - `resize`: how the volume gets more segments, or fewer.
//! - `snapshots`: how versions are made and deleted, and what they take.
//! - `rearranger`: how pages are moved that a unit moves after it has committed.
//! - `background`: what is due, and in which order it is done.
//! - `commit`: how units are applied, whole or not at all.
//! - `recovery`: how a volume is found and its log rolled forward.
//! - `disk`: the interface for clients, which puts the rooms together and passes calls on.
//!
//! Nothing here starts a thread or reads a clock: background work is a step that the caller paces.

#![forbid(unsafe_code)]

mod background;
mod blocks;
mod checkpoint;
mod clean;
mod commit;
mod compression;

mod damage;
mod disk;
mod engine;
mod fault;
mod flush;
mod frozen;
mod log;
mod map;
mod options;
mod read;
mod rearranger;
mod reclaim;
mod recovery;
mod resize;
mod scrub;
mod snapshots;
mod space;
mod state;
#[cfg(test)]
mod testing;
mod versions;
mod volume;
mod walk;

pub use clean::cleaner::CLEANER_NICENESS;
pub use clean::coalesce::{Coalesced, Place};
pub use clean::external;
pub use damage::{Damage, DamageLog, Part};
pub use dendro_format::Compression;
pub use disk::opening::{create, format};
pub use disk::{LogDisk, Stats};
pub use frozen::FrozenVolume;
pub use log::segments::{SegmentCounts, SegmentState};
pub use options::{CleanSettings, CoalesceSettings, Discards, FormatOptions, OnLoss, OpenOptions};
pub use recovery::wipe::invalidate;
pub use resize::ShrinkProgress;
pub use scrub::{Scrub, ScrubProgress};
pub use volume::holds::LockHolder;
