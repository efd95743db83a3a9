//! What the kernel has mounted.
//!
//! - `table`: the kernel's table of mounts. [`MountIdentity`]: the identity of a mount, safe
//!   against reused numbers. [`containing`] and others: which mount a path lies in.
//! - [`open_files`]: open files in a mount. `unmount`: unmounts one certain mount.

mod identity;
mod lookup;
pub mod open_files;
mod table;
mod unmount;

pub use identity::MountIdentity;
pub use lookup::{below_root, containing, device_at, numbers_of};
pub use table::{MountEntry, namespace, read, root_at, source_name};
pub(crate) use unmount::{path_of, unmount_exactly};
