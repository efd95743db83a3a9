//! Reclaiming: how room is made and space is freed.
//!
//! - [`make_room`]: reuse, checkpoints and cleaning, when too few segments are clean.
//! - [`prune`]: what no version sees is taken out of the map.
//! - [`removal`]: what is left of deleted lists. [`collection`]: what only deleted versions saw.
//! - [`no_space`]: all of that, for a unit that does not fit.
//! - [`throttle`]: commits do a part of the cleaning.

pub(crate) mod collection;
pub(crate) mod make_room;
pub(crate) mod no_space;
pub(crate) mod prune;
pub(crate) mod removal;
pub(crate) mod throttle;
