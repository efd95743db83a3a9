//! How a recovery unit becomes part of the volume, and how commits become durable.

pub(crate) mod check;
pub(crate) mod credit;
pub(crate) mod group_commit;
