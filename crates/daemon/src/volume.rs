//! A volume, opened: device, logical disk and file system joined.
//!
//! - `Volume`: one that is open for its daemon. [`open_disk`]: the disk alone, for those that take it for
//!   a moment. [`describe()`]: what it is like.
//! - [`block_source`]: by which name it is opened. [`signature`]: what else lies on a device.
//! - [`memory`]: how much memory is taken for it.

pub mod block_source;
mod describe;
mod disk;
pub mod memory;
mod opened;
pub mod signature;

use std::io::Read;
use std::time::Duration;

use crate::failure::Failure;

pub(crate) use block_source::BlockSource;
pub use describe::describe;
pub(crate) use disk::shut_down;
pub use disk::{clock, explain_device, open_disk};
pub(crate) use opened::{NotOpened, Volume};

/// How long to wait for the daemon of a mount that has just been taken away: umount(2) returns before
/// it has written its last checkpoint.
pub const LAST_DAEMON_GRACE: Duration = Duration::from_secs(30);

/// Bytes that nobody can guess.
pub fn random_bytes() -> Result<[u8; 16], Failure> {
    const SOURCE: &str = "/dev/urandom";
    let mut bytes = [0; 16];
    std::fs::File::open(SOURCE)
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Failure::new(format_args!("{SOURCE}: {error}")))?;
    Ok(bytes)
}
