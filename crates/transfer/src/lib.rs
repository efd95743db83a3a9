//! Versions of a logical disk as send streams, on any disk that has versions. It knows no files.
//!
//! - [`send()`]: writes what a version has, or what it has and an older one has not.

#![forbid(unsafe_code)]

mod send;

pub use send::{SendError, origin, send};
