//! How a recovery unit becomes part of the volume, and how commits become durable.
//!
//! - [`unit`]: a unit before it is applied: its arguments, its contents, what it takes at worst.
//! - [`apply`]: a unit is applied to the state and entered in the log, whole or not at all.
//! - [`credit`]: what a unit gives back of the space that it takes.
//! - [`group_commit`]: flushes, and who shares one.

pub(crate) mod apply;
pub(crate) mod credit;
pub(crate) mod group_commit;
pub(crate) mod unit;
