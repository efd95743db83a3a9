//! The data of regular files.
//!
//! Three invariants hold of every regular file:
//!
//! 1. In the file's last page, all bytes behind the end of the file are zeros.
//! 2. Pages behind the last are holes, or zeros if `EOF_PAGES` is set in its state. While
//!    `TRUNCATING` is set, they may contain anything.
//! 3. While `PUNCHING` is set, the pages of the range that the i-node names may contain anything.
//!    They read as holes, and do not count.
//!
//! - `read`: reading, and searching for data and holes.
//! - `write`: writing.
//! - `truncate`: changes of size.
//! - `fallocate`: allocating, punching, zeroing, collapsing and inserting ranges.
//! - `copy`: copying between files.
//! - `pages`: what these share: inline data, holes, parts of pages.
//! - `freeing`: freeing many pages in bounded units.
//!
//! Arrows: `copy` → `read`, `write`, `fallocate`; `fallocate` → `truncate`; all → `pages` →
//! `freeing`.

pub(crate) mod copy;
pub(crate) mod fallocate;
pub(crate) mod freeing;
mod pages;
pub(crate) mod read;
pub(crate) mod truncate;
pub(crate) mod write;
