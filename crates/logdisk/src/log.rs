//! The log on the device (DESIGN §4): segments, the partial segments that fill them, and the order
//! in which partial segments are written.
//!
//! - [`segments`]: the table of all segments: their states, live bytes and allocation.
//! - [`partial`]: a partial segment under construction.
//! - [`writer`]: the queue of closed partial segments on their way to the device.
//! - [`redirection`]: what lies in another place than its address says.
//! - [`superblocks`]: the two append-only superblock logs.

pub(crate) mod backups;
pub(crate) mod current_layout;
pub(crate) mod mirrors;
pub(crate) mod partial;
pub(crate) mod redirection;
pub(crate) mod segments;
pub(crate) mod superblocks;
pub(crate) mod writer;
