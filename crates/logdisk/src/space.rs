//! Space: what fits, what can be written now, and what is kept for whom (DESIGN §9).
//! [`crate::reclaim`] acts on a shortage.
//!
//! There are two accounts. *Logical free* is the capacity less the live bytes and the reserves.
//! When it is used up, only deleting helps. *Room* is what can be written before the clean segments
//! that checkpoints and cleaning need are touched. When it is used up, cleaning helps.
//!
//! Invariants:
//! 1. (space 1) Every unit leaves the map so that the checkpoint under way and the next one find
//!    the segments that they need.
//! 2. (space 2) A unit changes at most `MAX_UNIT_GROUPS` groups of 32 pages. What it punches, moves
//!    or exchanges beyond that is put off; otherwise it is refused before it has changed anything.
//!
//! Clean segments are reserved in this order. The first reserve is for the nodes of the next
//! checkpoint and for cleaning one segment. The reserve above it is for units that give space back,
//! so that deleting works on a full volume. Background cleaning keeps a pool of segments ready
//! beyond the reserves. The fewer of these are left, the more cleaning commits do themselves.

mod host;
mod map_stream;
pub(crate) mod reserve;
pub(crate) mod reuse;
pub(crate) mod shortage;
