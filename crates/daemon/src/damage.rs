//! Damage that was found in use.
//!
//! - [`info`] and [`where_text`]: reports of it. [`found_on`]: what a disk has
//!   found. `DamageTable`: all of it that a daemon knows. `versions`: those that have what is
//!   damaged.

mod report;
mod table;
mod versions;

pub(crate) use report::{exposition, facts};
pub use report::{info, where_text};
pub(crate) use table::DamageTable;
pub use table::found_on;
