//! The file system below a kernel that collects what programs write (`order=close`), as a system:
//! random calls of programs, hand-overs at all moments at which the kernel may make them, and after
//! a crash exactly what SEMANTICS promises.
//!
//! - Names, attributes, and the contents of files of which nothing is collected are those after
//!   some call, at or past the last one that made everything durable.
//! - A file of which something is collected holds, page by page, what the file system was given, or
//!   what the page held after one of the later writes. It is as long as the file system was told,
//!   or ends with what a write ended with.
//! - Versions hold what programs had written when they were made.

mod contents;
mod kernel;
mod session;
mod state;
mod system;

pub use kernel::Bug;
pub use state::{CollectedState, CollectedSystem};
