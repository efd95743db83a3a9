//! Damage that was found in use.
//!
//! - [`info`] and the like: what is said of it. `DamageTable`: what a daemon knows of it.

mod report;
mod table;

pub(crate) use report::{exposition, facts};
pub use report::{info, where_text};
pub(crate) use table::DamageTable;
