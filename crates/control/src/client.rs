//! The command's side: asks one daemon, or looks for one.

mod block_devices;
mod commands;
mod error;
mod exchange;
mod find;
mod transfer;

pub use block_devices::ServingEnd;
pub use error::{ClientError, Unresponsive};
pub use exchange::Client;
pub use find::FindOutcome;
