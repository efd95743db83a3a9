//! The command's side: asks one daemon, or looks for one.

mod commands;
mod error;
mod exchange;
mod find;
mod transfer;

pub use error::{ClientError, Unresponsive};
pub use exchange::Client;
pub use find::FindOutcome;
