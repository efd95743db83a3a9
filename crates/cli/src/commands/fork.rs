//! `dendro fork`, `forks`, `drop` and `branch`: working trees that continue another tree.
//!
//! A fork is a mounted branch, made from a snapshot of its own. The snapshot shows what the fork
//! has changed. Its name is `fork-` and the fork's name, and it is deleted with the last branch
//! that was made from it.
//!
//! - [`make`]: `fork`. [`remove`]: `drop`. [`list`]: `forks`. [`base`]: names, and the snapshots
//!   behind forks.
//! - [`mod@branch`]: `branch list`, `rename` and `delete`.

mod base;
mod branch;
mod list;
mod make;
mod remove;

pub(crate) use branch::run as branch;
pub(crate) use list::run as forks;
pub(crate) use make::run as fork;
pub(crate) use remove::run as drop_forks;
