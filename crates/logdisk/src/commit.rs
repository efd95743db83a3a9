//! How a recovery unit becomes part of the volume.
//!
//! - [`mod@unit`]: a unit before it is applied: its arguments, its contents, and the most that it
//!   can take.
//! - [`apply`]: a unit is applied to the state and entered in the log, whole or not at all.
//! - [`conditions`]: what must hold before a unit is applied.
//! - [`deferral`]: what is too much for it, and is done later.
//! - [`packing`]: its pages are compressed.
//! - [`credit`]: the space that a unit gives back.
//! - [`committer`]: all of that for one unit, and what a commit does for others.

mod apply;
pub(crate) mod committer;
mod conditions;
mod credit;
mod deferral;
mod packing;
mod quota;
pub(crate) mod unit;
