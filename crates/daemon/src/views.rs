//! The mounts that a daemon serves.
//!
//! Each mount has a file system of its own, open on its view of the volume, and threads of its own.
//! The daemon ends with the last mount. A mount that arrives after that is refused, and its command
//! starts another daemon.
//!
//! A mount that the kernel has unmounted is *closing* until all data written to it are on the
//! device. Requests do not find it any more from the first moment on, because its device number may
//! already belong to another file system. Operations that must not run beside the closing wait for
//! its end, or are refused.
//!
//! - [`closing`]: the end of a mount. [`view`]: one mount. [`all`]: all mounts.
//! - [`automatic_snapshots`]: automatic snapshots and their retention. [`hidden_directory`]: the
//!   hidden directory in the root of a mount. [`collected`]: what the kernel collects of a mount.

mod all;
mod automatic_snapshots;
mod closing;
mod collected;
mod hidden_directory;
mod view;

pub(crate) use all::Views;
pub(crate) use closing::Closing;
pub(crate) use hidden_directory::HiddenDirectory;
pub(crate) use view::{MountPlace, MountedView};
