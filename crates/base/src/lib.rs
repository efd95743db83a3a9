//! What all layers of dendrofs share: units, time, random numbers, locks and the volume's identity.
//!
//! - [`units`]: sizes that the whole system agrees on, and alignment arithmetic.
//! - [`client`]: what a client of a volume keeps there.
//! - [`clock`]: time as a value that is passed in, so that a simulation controls it.
//! - [`errno`]: the numbers that Linux has for errors.
//! - [`rng`]: seeded random numbers; nothing in the engine asks the operating system for one.
//! - [`random_bytes()`]: random bytes of the operating system, for those who make volumes.
//! - [`priority`]: the CPU priority of threads that work in the background.
//! - [`sync`]: the locks. They are imported from here, so that a model checker can take their
//!   place.
//! - [`uuid`]: the identity of a volume, and of a version.
//!
//! There is no other I/O here and no knowledge of any other layer.

#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod errno;
pub mod priority;
mod random;
pub mod rng;
pub mod sync;
pub mod units;
pub mod uuid;

pub use client::ClientKind;
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use random::random_bytes;
pub use rng::Rng;
pub use uuid::{Origin, Uuid};
