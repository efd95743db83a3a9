//! The logical disk (de Jonge, Kaashoek and Hsieh, 1993): lists of blocks, changed by atomic
//! recovery units. File management sits above it and knows no disk address; disk management sits
//! below it and knows no file.
//!
//! - [`LogicalDisk`]: the interface. Its implementations may be log-structured, update-in-place or
//!   remote.
//! - [`Aru`]: an atomic recovery unit, a value that collects changes until it is committed.
//! - [`View`]: names the version of the disk that a call reads or changes. [`Versions`]: makes,
//!   lists and deletes versions.
//! - [`Chore`]: work that a client leaves to be done in the background.
//! - [`Error`]: what a call can answer, one kind for each thing a caller can do about it.
//! - [`model`]: a plain implementation in memory, the reference for all others.
//!
//! With the feature `testing` also what implementations are tested with: `conformance`, tests that
//! every one must pass, and `testgen`, random units.

#![forbid(unsafe_code)]

mod aru;
mod changed_lists;
mod chores;
#[cfg(feature = "testing")]
pub mod conformance;
mod error;
mod logical_disk;
pub mod model;
mod parts;
mod releases;
mod scan;
mod space;
#[cfg(feature = "testing")]
pub mod testgen;
mod types;
mod versions;

pub use aru::{Aru, CHANGE_BYTES, Condition, Op};
pub use changed_lists::ChangedLists;
pub use chores::{Chore, ChoreStep, Chores};
pub use dendro_base::ClientKind;
pub use dendro_base::units::PAGE_SIZE;
pub use error::{Error, Result};
pub use logical_disk::{Completion, LogicalDisk, Outlasts};
pub use parts::{PagePart, PageParts, in_whole_pages};
pub use releases::{ExpectedRelease, Releases};
pub use scan::{ScanPlace, ScanPoint, Scanned};
pub use space::{Ledger, Quota, Reservation, Space};
pub use types::{
    CommitSeq, GROUP_PAGES, Lid, ListCompression, ListHints, Locality, MAX_PAGE_COUNT,
    MAX_RECORD_LEN_BYTES, MAX_TASKS_PUT_OFF, MAX_UNIT_GROUPS, PageRange, Record, View,
};
pub use versions::{
    Branch, Client, FIRST_CLIENT, MAIN, MAX_NAME_LEN_BYTES, Snapshot, VersionTable, VersionUsage,
    Versions, abandon, check_name, make_client,
};
