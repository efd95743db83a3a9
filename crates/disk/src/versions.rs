//! Versions of a disk: snapshots, and branches that start from them.
//!
//! A **branch** is a history with a writable head. A new disk has one, number 0. A **snapshot** is
//! a moment of a branch that stays readable. Time is counted in **epochs**: each snapshot ends one,
//! so a pair of branch and epoch always names the same moment. A disk may end one at any other time
//! too, so epochs of snapshots do not always follow each other. A branch is made from a moment or
//! from a head, and inherits what was visible there. Later changes in one do not affect the other.
//! The *ancestry* of a view is the path from its branch to the first one, along the branches that
//! each was made from.
//!
//! A disk can have several **clients**: file systems, block devices, programs. Each begins with a
//! branch that has no parent, and has the versions that were made from it. It numbers its lists as
//! if it had the disk for itself, but for those that [`LogicalDisk::allocate_list`] numbers.
//!
//! [`LogicalDisk::allocate_list`]: crate::LogicalDisk::allocate_list
//!
//! Making a snapshot or a branch writes one small record, whatever the disk holds. It is a commit,
//! in the order of all commits, and durable after a flush.
//!
//! [`VersionTable`] has the rules in full.

mod interface;
mod table;
mod version;

pub use interface::{VersionUsage, Versions, abandon, make_client};
pub use table::VersionTable;
pub use version::{Branch, Client, FIRST_CLIENT, MAIN, MAX_NAME_LEN_BYTES, Snapshot, check_name};
