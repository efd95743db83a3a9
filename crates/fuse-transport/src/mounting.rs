//! Mounting and unmounting.
//!
//! - [`request`]: what to mount and how; errors.
//! - [`mounted`]: a mount, by its connection to the kernel.
//! - [`mod@mount`]: mounting on a directory, by mount(2) or through fusermount3.
//! - [`detached`]: a mount without a place, for another user.
//! - [`mod@unmount`]: unmounting a directory.
//! - [`fusermount`]: the helper fusermount3.
//! - [`mountinfo`]: device numbers of mounts.
//!
//! Arrows: `mount`, `detached` → `mounted` → `unmount` → `fusermount` → `request`; `mount` →
//! `mountinfo`.

mod detached;
mod fusermount;
mod mount;
mod mounted;
mod mountinfo;
mod request;
mod unmount;

pub use detached::mount_detached;
pub use mount::mount;
pub use mounted::Mounted;
pub use request::{Access, Error, MountRequest, Result, UnmountMode};
pub use unmount::{unmount, while_busy};
