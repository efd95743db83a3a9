//! What an argument names: a volume and its daemon, a version, a file.
//!
//! - [`mod@find`]: from what the user names to a daemon, or to a device that nobody has mounted.
//!   [`tag`]: `UUID=…` and `LABEL=…`.
//! - [`keeper`]: who carries out what is asked of a volume; versions and files in it.
//! - [`below`]: the files at and below a path.
//! - [`identity`]: whose volume lies on a device.
//! - [`path_walk`] and [`liveness`] see to it that no command waits for a daemon that does not
//!   answer.

pub(crate) mod below;
mod find;
pub(crate) mod identity;
mod keeper;
pub(crate) mod liveness;
mod path_walk;
pub(crate) mod tag;

pub(crate) use find::{
    Behind, Served, Target, check_alive, check_path, daemon_behind, find, find_answering,
    find_mounted, find_open, silent,
};
pub(crate) use keeper::{
    FilePlace, Keeper, Place, ask, find_file, find_version, find_whole, flush_kernel, unexpected,
    usage_of_versions,
};
