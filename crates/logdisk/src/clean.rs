//! The cleaner (DESIGN §8) empties segments so that they can be filled again: it moves their live
//! blocks to clean segments.
//!
//! - [`pick`]: victim choice. [`victim`]: what is read of a victim.
//! - [`recompress`]: compresses what is moved harder. [`frames`]: several pages together.
//!   [`packed`]: what is stored then.
//! - [`relocate`]: finds the live blocks and nodes of a victim and writes them again.
//! - [`neighbours`]: the order in which they are written.
//! - [`cleaner`]: when cleaning runs, and one step of it. [`job`]: a segment that is being cleaned.
//! - [`coalesce`]: writes scattered pages of a list side by side.
//! - [`external`]: the same operations for a cleaner in another process.

pub(crate) mod cleaner;
pub(crate) mod coalesce;
pub mod external;
mod frames;
mod job;
mod named_page;
mod neighbours;
mod packed;
pub(crate) mod pick;
mod recompress;
pub(crate) mod relocate;
pub(crate) mod victim;
