//! Versions of a disk: snapshots, and branches that go on from them.
//!
//! A **branch** is a line of history with a writable head. A new disk has one, number 0. A
//! **snapshot** is a moment of a branch that stays readable. Time is counted in **epochs**: each
//! snapshot ends one, so a pair of branch and epoch names a moment for good. A branch is made from
//! a moment, or from a head, and sees what was there; from then on the two go their own ways.
//!
//! Making either takes one small record, whatever the disk holds. Each is a commit, in the order of
//! all commits, and durable after a flush.
//!
//! [`VersionTable`] has the rules in full.

mod interface;
mod table;
mod version;

pub use interface::{Share, Versions};
pub use table::VersionTable;
pub use version::{Branch, MAIN, MAX_NAME_LEN_BYTES, Snapshot, check_name};
