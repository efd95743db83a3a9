//! The log-structured logical disk (DESIGN §§4–6, 9): a [`dendro_disk::LogicalDisk`] over a
//! [`dendro_device::Device`]. It knows nothing of files.
//!
//! From the bottom up:
//! - `segments`: what state each segment is in; `superblocks`: the two logs that all starts from.
//! - `partial`: a partial segment under construction; `writer`: closed ones on their way.
//! - `node`, `map`, `store`: the B+tree, functional in memory, and its cache; `slice`: long walks.
//! - `versions`: the table of branches and snapshots; `ancestry`: what a view sees of the map.
//! - `state`: the map and the segments' usage together, and how each change alters them; `group`: a
//!   chunk's pages in a branch's hands.
//! - `flush`: who makes the log durable, and for whom.
//! - `engine`: what the one lock guards; `prepare` checks a unit before it changes anything, `read`
//!   finds and checks blocks.
//! - `checkpoint`, `recovery`: a frozen state is written, and found again; `wipe`: a volume is taken
//!   away.
//! - `heads`: where data goes that the cleaner's policy wants apart from the main log.
//! - `pick`: which segment is emptied next; `cleaner`: when, and how; `victim`: what is read of it;
//!   `relocation`: what lives in one is written again; [`external`]: the same by another process.
//! - `coalesce`: what lies scattered is written again side by side.
//! - `history`: versions are made and deleted; `prune`, `collection`, `removal`: what none of them sees any
//!   more is freed; `shares`: what each takes, and where two differ.
//! - `space`: what fits, and how writers are slowed down when it gets little; `credit`: what a unit
//!   gives back of what it takes; `disk`: the interface.
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
