//! An open volume: device, logical disk and file systems together.
//!
//! - `Volume`: a volume that a daemon has open. [`open_disk`]: the disk alone, for a short use.
//!   [`describe()`]: facts about the volume.
//! - [`devices`]: what it lies on. [`block_source`]: the name by which it is opened.
//!   [`signature`]: other contents of a device.
//! - [`memory`]: how much memory a volume takes.

pub mod block_source;
mod describe;
pub mod devices;
mod disk;
pub mod memory;
mod opened;
pub mod signature;

use std::time::Duration;

use crate::failure::Failure;

pub(crate) use block_source::BlockSource;
pub use describe::describe;
pub(crate) use describe::{compression, compression_kinds, default_compression};
pub use devices::{clock, explain_device};
pub use disk::open_disk;
pub(crate) use disk::shut_down;
pub(crate) use opened::{NotOpened, Volume};

/// How long to wait for the daemon of a mount that was just unmounted: umount(2) returns before the
/// daemon has written its last checkpoint.
pub const LAST_DAEMON_GRACE: Duration = Duration::from_secs(30);

/// Random bytes that nobody can guess.
pub fn random_bytes() -> Result<[u8; 16], Failure> {
    dendro_base::random_bytes().map_err(Failure::new)
}
