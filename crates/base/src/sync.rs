//! The locks of the system, in one place so that a model checker can take their place.
//!
//! They do not poison: a panic is a bug that ends the process, and what survives is the log on
//! disk.
//!
//! With the feature `shuttle`, locks and atomics are those of [shuttle](https://docs.rs/shuttle),
//! with the same interface. It runs a test many times, each time with another order of the threads'
//! steps. Tests that need it are run by `make model`; nothing else enables the feature. It covers
//! what the crates up to the engine use, and so lacks [`MappedRwLockReadGuard`].

mod brief;
#[cfg(feature = "shuttle")]
mod modelled;

pub use brief::{BriefReadGuard, BriefRwLock, BriefWriteGuard};
pub use std::sync::{Arc, Weak};

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic;

#[cfg(feature = "shuttle")]
pub use modelled::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;
