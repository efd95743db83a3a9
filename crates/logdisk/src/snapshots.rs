//! Snapshots and branches of the volume: how they are made and deleted, how much space each takes,
//! and how the space of deleted ones is freed.
//!
//! - [`manage`]: create, clone, roll back, delete.
//! - [`usage`]: the space that each version takes, and where two versions differ.
//! - [`collection`]: the background walk that frees what only deleted versions saw.

pub(crate) mod collection;
pub(crate) mod manage;
pub(crate) mod usage;
