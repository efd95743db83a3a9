//! `dendro snapshot`, `clone`, `promote`, `rollback`, `log`, `diff`, `history`, `undelete` and
//! `usage`.
//!
//! - [`commands`]: commands about versions; [`replace`]: those that replace a head; [`mod@usage`]:
//!   how the space is used; [`mod@log`]: the history of the volume; [`mod@diff`], [`patch`],
//!   [`files`]: commands about files in versions.

mod commands;
mod diff;
mod files;
mod log;
mod patch;
mod replace;
mod stored;
mod usage;

pub(crate) use commands::{
    clone, delete_versions, deleted, print_deleted, print_renamed, rename_version, snapshot,
    versions,
};
pub(crate) use diff::diff;
pub(crate) use files::{history, undelete};
pub(crate) use log::log;
pub(crate) use replace::{promote, rollback};
pub(crate) use usage::usage as usage_of;
