//! The C interface of the library `dendrofs`: `libdendro`, with the header `include/dendro.h`.
//!
//! cbindgen makes the header of this crate, whose documentation comments are the header's. So those
//! of what C programs see are written for them: names are C's, and errors are negative errno
//! numbers. Rust programs use `dendrofs`; nothing here is for them.
//!
//! What the compiler can check of a caller is in the types: a handle is an `Option<&T>`, which is a
//! pointer that may be null, one that is given back is an `Option<Box<T>>`, and a place for a
//! result is an `Option<&mut MaybeUninit<T>>`. What else comes from C, texts and memory with a
//! length, is read in `raw`, which has all of the `unsafe` code. A test looks that there is no
//! other.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `raw` | texts and memory of C programs; all `unsafe` code |
//! | `failure` | errors, and the message and the code of a thread's last one |
//! | `border` | what every call goes through: panics end there |
//! | `types` | structures and constants |
//! | `volume` | volumes, and their threads |
//! | `versions` | snapshots and branches |
//! | `lists` | what lists have |
//! | `changes` | what differs between versions |
//! | `units` | atomic recovery units, reservations |
//! | `files` | the files of a version, by paths |
//! | `file` | an open file |
//! | `directory` | the entries of a directory |

mod border;
pub mod changes;
pub mod directory;
mod failure;
pub mod file;
pub mod files;
pub mod lists;
mod raw;
pub mod types;
pub mod units;
pub mod versions;
pub mod volume;

pub use failure::{dendro_error_code, dendro_error_message};
