//! Snapshots and branches of the volume: making and deleting them, what each takes, and freeing what
//! none of them sees any more.
//!
//! - [`manage`]: create, clone, roll back, delete.
//! - [`usage`]: the space that each version takes, and where two versions differ.
//! - [`collection`]: the background walk that frees what deleted versions alone have seen.

pub(crate) mod collection;
pub(crate) mod manage;
pub(crate) mod usage;
