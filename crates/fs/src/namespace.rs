//! The tree of names.
//!
//! - [`lookup`]: finding names.
//! - [`create`]: creating files, directories, devices and symbolic links.
//! - [`link`], [`remove`], [`rename`]: changing names.
//! - [`readdir`]: listing directories.
//! - [`symlink`]: targets of symbolic links.
//! - `entries`: the entries of a locked directory.
//!
//! Arrows: `rename` → `create` → `symlink`; all but `readdir` and `symlink` → `entries`.

pub(crate) mod create;
mod entries;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod readdir;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod symlink;
