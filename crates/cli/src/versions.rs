//! `dendro snapshot`, `clone`, `promote`, `rollback`, `diff`, `history`, `undelete` and `usage`.
//!
//! - [`args`]: what can be said to them.
//! - [`place`]: the volume that is meant, and paths in it.
//! - [`Automatic`]: the snapshots that a mount makes by itself.
//! - [`hidden`]: what the hidden directory in a mount shows.
//! - [`asking`]: questions by those that are no command about versions.
//! - [`commands`]: the commands about versions; [`replace`]: those that put another head in the place of
//!   one; [`mod@usage`]: where the space goes; [`mod@log`]: the history of the volume; [`mod@diff`],
//!   [`patch`], [`files`]: those about files in versions.

pub(crate) mod args;
mod asking;
mod automatic;
mod commands;
mod diff;
mod files;
mod hidden;
mod log;
mod patch;
mod place;
mod replace;
mod text;
mod usage;

pub(crate) use asking::{ask, shares};
pub(crate) use automatic::Automatic;
pub(crate) use commands::{clone, delete_versions, rename_version, snapshot, unexpected};
pub(crate) use diff::diff;
pub(crate) use files::{history, undelete};
pub(crate) use hidden::DiskPast;
pub(crate) use log::log;
pub(crate) use place::{Keeper, Place, find, flush_kernel, now, usage};
pub(crate) use replace::{open_file_text, promote, rollback};
pub(crate) use text::{clock_time, columns};
pub(crate) use usage::usage as usage_of;
