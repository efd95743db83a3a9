//! All `unsafe` code of this crate: memory that the kernel writes to, and one ioctl.
//!
//! - [`memory`]: memory mappings for requests and replies.
//! - [`entries`]: the entries of a ring in such a mapping.
//! - [`ring`]: the io_uring of one queue.
//! - [`clone`]: one more descriptor for a connection.
//!
//! Arrows: `ring` → `entries` → `memory`.
//!
//! The tests of `memory` and `entries`, and of how `ring` builds its commands, need no kernel and
//! run under Miri.
//!
//! # Who owns the memory of a ring
//! Each entry of a ring has a page for headers and a payload, in one mapping that the ring owns. An
//! entry belongs either to the kernel, from the submission of REGISTER or COMMIT_AND_FETCH to the
//! completion of that command, or to this program, from there to the next submission.
//!
//! 1. References to an entry's memory exist only in [`entries::Entries::reply`]. [`ring::Ring`]
//!    calls it only for an entry whose completion it has just taken, and before it submits the next
//!    command for that entry.
//! 2. The mapping exists as long as an entry may belong to the kernel. It is unmapped only if every
//!    entry has come back. Otherwise it stays until the process ends.

mod clone;
mod entries;
mod memory;
mod ring;

pub(crate) use clone::bind_clone;
pub(crate) use memory::Buffer;
pub(crate) use ring::{End, Ring};
