//! Where segments live: a device is a flat array of bytes that can be read, written, flushed and
//! discarded. It knows nothing of logs.
//!
//! - [`Device`]: what every device does. Each call is one that could be a positioned write or one
//!   object PUT (DESIGN §2). [`Error`]: what can go wrong.
//! - [`AlignedBuf`]: memory that direct I/O takes as it is, in huge pages where it is large.
//! - [`FileDevice`], opened by [`OpenOptions`]: an image file or a block device.
//! - [`MemoryDevice`]: a device in memory, for tests and benchmarks.
//! - [`OverlayDevice`]: any device, with what is written to it kept in memory.
//! - [`ReadAhead`]: any device, with more read than is asked for where reads lie near each other.
//! - [`Retrying`]: any device, with reads repeated that fail.
//! - [`RedirectedDevice`]: any device, with some ranges in another place of it.
//! - `sim` (feature `sim`): a simulated device with seeded faults, power cuts and crash images.
//! - [`LoopDevice`]: an image file as a block device.
//! - [`share_one_arena`]: how the allocator of a process keeps small pieces of memory.

mod allocator;
mod block_device;
mod buffer;
mod device;
mod error;
mod file;
mod loopback;
mod memory;
mod overlay;
mod range;
mod readahead;
mod redirected;
mod retrying;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use allocator::share_one_arena;
pub use buffer::AlignedBuf;
pub use device::{BLOCK_SIZE, Device, HostRoom, Part, ReadOf};
pub use error::{Error, Result};
pub use file::{Direct, FileDevice, FileKind, OpenOptions};
pub use loopback::{LoopDevice, loop_backing_file};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use readahead::ReadAhead;
pub use redirected::{RedirectedDevice, Redirection};
pub use retrying::Retrying;
pub use std::io::{IoSlice, IoSliceMut};
