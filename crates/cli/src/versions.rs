//! `dendro snapshot`, `clone`, `promote`, `rollback`, `diff`, `history`, `undelete` and `usage`.
//!
//! - [`args`]: what can be said to them.
//! - [`place`]: the volume that is meant, and paths in it.
//! - [`Automatic`]: the snapshots that a mount makes by itself.
//! - [`hidden`]: what the hidden directory in a mount shows.
//! - [`asking`]: questions by those that are no command about versions.
//! - [`commands`]: the commands about versions; [`files`]: those about files in them.

pub(crate) mod args;
mod asking;
mod automatic;
mod commands;
mod files;
mod hidden;
mod place;
mod text;

pub(crate) use asking::{ask, shares};
pub(crate) use automatic::Automatic;
pub(crate) use commands::{clone, promote, rollback, snapshot, usage};
pub(crate) use files::{diff, history, undelete};
pub(crate) use hidden::DiskPast;
pub(crate) use place::{flush_kernel, now};
