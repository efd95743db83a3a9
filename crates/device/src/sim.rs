//! A simulated device, for tests: seeded, so that every run can be repeated.
//!
//! - [`SimDevice`]: keeps what was not flushed apart from what is durable, and makes crash images.
//! - [`CrashStyle`]: what a crash does to the unflushed writes.
//! - [`Recording`]: one run of a workload, from which crash images at every point can be made.
//! - [`Fault`]: failing, lost, misdirected and corrupted I/O.
//!
//! It is as adverse as [`Device`](crate::Device) allows. What was never written reads as junk; a
//! discarded block reads as it did, as zeros or as junk. A crash may lose unflushed discards, as it
//! may lose unflushed writes.

mod blocks;
mod change;
mod crash;
mod device;
mod fault;
mod recording;
#[cfg(test)]
mod tests;

pub use crash::CrashStyle;
pub use device::{Counts, SimDevice};
pub use fault::{Call, Fault};
pub use recording::{EventKind, Recording};
