//! Snapshots and branches of the volume: how they are made and deleted, and how much space each
//! takes. [`crate::reclaim`] frees the space of deleted ones.
//!
//! - [`changes`]: where each of a series of versions differs from the one before.
//! - [`manage`]: create, clone, roll back, delete.
//! - [`unshare`]: copies of pages that other versions also see.
//! - [`usage`]: the space that each version takes.
//! - [`compare`]: where two versions differ.

pub(crate) mod changes;
pub(crate) mod compare;
pub(crate) mod manage;
pub(crate) mod unshare;
pub(crate) mod usage;
