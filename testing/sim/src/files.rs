//! The file system over a logical disk as a system: random calls, syncs, background work and
//! mounts, compared with the model of a file system.

mod script;
mod session;
mod state;
mod system;

pub(crate) use script::{Act, ROOT_MODE, Script};
pub(crate) use session::NO_SPACE;
pub use state::{FsState, FsSystem};
pub(crate) use state::{Mounted, tree_of, verify};
pub(crate) use system::create_on;
