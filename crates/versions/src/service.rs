//! Requests about versions, carried out.
//!
//! [`Service`] is the volume and the asker (`context`). `requests` says which request does what;
//! the other modules carry out one kind each: `handover` (a head is replaced), `kept` (and the
//! former head is kept), `undelete`, `clients`. `permission` refuses what the asker may not do, and
//! `info` describes the results.

mod asker;
mod clients;
mod context;
mod handover;
mod info;
mod kept;
mod kept_name;
mod permission;
mod requests;
#[cfg(test)]
mod tests;
mod undelete;

pub use asker::Asker;
pub use context::Service;
pub use handover::Handover;
