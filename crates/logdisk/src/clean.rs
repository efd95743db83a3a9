//! The cleaner (DESIGN §8): it moves what lives in a segment elsewhere, so that the segment can be
//! filled anew.
//!
//! - [`pick`]: victim choice. [`victim`]: what is read of a victim.
//! - [`relocate`]: finds the live blocks and nodes of a victim and writes them again.
//! - [`cleaner`]: when cleaning runs, and one step of it.
//! - [`coalesce`]: writes scattered pages of a list side by side.
//! - [`external`]: the same operations for a cleaner in another process.

pub(crate) mod cleaner;
pub(crate) mod coalesce;
pub mod external;
pub(crate) mod pick;
pub(crate) mod relocate;
pub(crate) mod victim;
