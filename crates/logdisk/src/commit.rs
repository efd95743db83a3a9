//! How a recovery unit becomes part of the volume.
//!
//! - [`unit`]: a unit before it is applied: its arguments, its contents, and the most that it can
//!   take.
//! - [`apply`]: a unit is applied to the state and entered in the log, whole or not at all.
//! - [`credit`]: the space that a unit gives back.

pub(crate) mod apply;
pub(crate) mod credit;
pub(crate) mod unit;
