//! A logical disk as a system: random units, flushes, background work and reopenings, compared with
//! the model.

mod comparisons;
mod engine;
mod promises;
mod session;
mod state;
mod system;
pub mod threads;
mod versions;

pub use engine::Engine;
pub(crate) use engine::NOW;
pub use state::{DiskState, DiskSystem, FoundDisk};
