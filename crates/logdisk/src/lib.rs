//! The log-structured logical disk (DESIGN §§4–6, 9): a [`dendro_disk::LogicalDisk`] over a
//! [`dendro_device::Device`]. It knows nothing of files.
//!
//! From the bottom up:
//! - `segments`: what state each segment is in; `superblocks`: the two logs that all starts from.
//! - `partial`: a partial segment under construction; `writer`: closed ones on their way.
//! - `node`, `map`, `store`: the B+tree, functional in memory, and its cache; `slice`: long walks.
//! - `versions`: the table of branches and snapshots; `line`: what a view sees of the map.
//! - `state`: the map and the segments' usage together, and how each change alters them; `group`: a
//!   chunk's pages in a branch's hands.
//! - `flush`: who makes the log durable, and for whom.
//! - `core`: what the one lock guards; `prepare` checks a unit before it changes anything, `read`
//!   finds and checks blocks.
//! - `checkpoint`, `recovery`: a frozen state is written, and found again; `wipe`: a volume is taken
//!   away.
//! - `heads`: where data goes that the cleaner's policy wants apart from the main log.
//! - `pick`: which segment is emptied next; `cleaner`: when, and how; `victim`: what is read of it;
//!   `relocation`: what lives in one is written again; [`external`]: the same by another process.
//! - `coalesce`: what lies scattered is written again side by side.
//! - `history`: versions are made and deleted; `reap`, `sweep`, `removal`: what none of them sees any
//!   more is freed; `shares`: what each takes, and where two differ.
//! - `space`: what fits, and how writers are slowed down when it gets little; `credit`: what a unit
//!   gives back of what it takes; `disk`: the interface.
//!
//! Nothing here starts a thread or reads a clock: background work is a step that the caller paces.

#![forbid(unsafe_code)]

mod budget;
mod checkpoint;
mod cleaner;
mod coalesce;
mod core;
mod credit;
mod damage;
mod disk;
pub mod external;
mod fault;
mod flush;
mod group;
mod heads;
mod history;
mod host;
mod line;
mod lineage;
mod map;
mod node;
mod options;
mod partial;
mod pick;
mod prepare;
mod read;
mod reap;
mod recovery;
mod relocation;
mod removal;
mod reuse;
mod segments;
mod shares;
mod space;
mod state;
mod store;
mod superblocks;
mod sweep;
mod through;
mod versions;
mod victim;
mod walk;
mod wipe;
mod writer;

pub use cleaner::CLEANER_NICENESS;
pub use coalesce::{CoalesceSettings, Coalesced, Place};
pub use damage::{Damage, DamageLog};
pub use disk::{LogDisk, Stats};
pub use options::{FormatOptions, OnLoss, OpenOptions};
pub use recovery::{create, format};
pub use segments::{SegmentCounts, SegmentState};
pub use space::CleanSettings;
pub use wipe::invalidate;
