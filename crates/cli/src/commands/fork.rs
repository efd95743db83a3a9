//! `dendro fork`, `forks`, `drop` and `branch`: working trees that go on from another one.
//!
//! A fork is a branch, made from a snapshot of its own, and mounted. The snapshot says what the fork has
//! changed; it is called `fork-` and the fork's name, and goes with the last branch that was made of it.
//!
//! - [`make`]: `fork`. [`remove`]: `drop`. [`list`]: `forks`.
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
