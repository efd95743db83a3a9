//! The locks of the system, in one place so that a model checker can take their place.
//!
//! They do not poison: a panic is a bug that ends the process, and the log on disk is what survives.

pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use std::sync::Arc;
pub use std::sync::atomic;
