//! What the kernel has mounted.
//!
//! - `table`: its table of mounts. [`MountIdentity`]: which mount it is, safe from numbers that are given
//!   again. [`containing`] and the like look up which mount a path lies in.
//! - [`open_files`]: who has files open in a mount. `unmount`: takes away one mount and no other.

mod identity;
mod lookup;
pub mod open_files;
mod table;
mod unmount;

pub use identity::MountIdentity;
pub use lookup::{below_root, containing, device_at, numbers_of};
pub use table::{MountEntry, namespace, read, root_at, source_name};
pub(crate) use unmount::{path_of, unmount_exactly};
