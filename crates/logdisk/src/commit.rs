//! How a recovery unit becomes part of the volume, and how commits become durable.
//!
//! - [`unit`]: a unit before it is applied: its arguments, its contents, and the most that it can
//!   take.
//! - [`apply`]: a unit is applied to the state and entered in the log, whole or not at all.
//! - [`credit`]: the space that a unit gives back.
//! - [`group_commit`]: flushes, each for all callers that wait for one.

pub(crate) mod apply;
pub(crate) mod credit;
pub(crate) mod group_commit;
pub(crate) mod unit;
