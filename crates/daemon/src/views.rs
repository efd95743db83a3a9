//! The mounts that a daemon serves.
//!
//! Each has a file system of its own, open on its view of the volume, and threads of its own. The
//! daemon ends when the last of them is gone. One that arrives after that is told so, and its
//! command starts another daemon.
//!
//! A mount that the kernel has unmounted is *closing* until all that was written to it is on the device.
//! From the first moment on it is no mount any more to those who ask: its device number may be that of
//! another file system by then. What must not happen beside it waits for it, or is refused.
//!
//! - [`closing`]: the end of a mount. [`view`]: one mount; [`all`]: all of them.
//! - [`automatic_snapshots`]: those that a mount makes by itself. [`hidden_directory`]: what the one in the
//!   root of a mount shows.

mod all;
mod automatic_snapshots;
mod closing;
mod hidden_directory;
mod view;

pub(crate) use all::Views;
pub(crate) use automatic_snapshots::AutomaticSnapshots;
pub(crate) use closing::Closing;
pub(crate) use hidden_directory::HiddenDirectory;
pub(crate) use view::MountedView;
