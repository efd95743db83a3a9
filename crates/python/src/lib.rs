//! The Python interface of the library `dendrofs`: the module `dendrofs._native`, from which the
//! package in `python/dendrofs` takes nearly all that it has.
//!
//! The documentation comments of what Python programs see are their docstrings, so they are written
//! for them. `python/dendrofs/_native.pyi` has the types; a test compares. Rust programs use
//! `dendrofs`; nothing here is for them.
//!
//! Whatever may wait for a device or a lock is done without Python's global lock, in [`gate`].
//! Objects can be used from several threads. There is no `unsafe` code: `bytes` objects are read
//! and filled in place, and other buffers are copied while the global lock is held, because another
//! thread could change them at any other time.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `failure` | errors, and the exceptions that they become |
//! | `gate` | what every call on a volume goes through: closing, forks and panics end there |
//! | `buffer` | bytes of Python objects |
//! | `stream` | streams that are objects of Python |
//! | `items` | iterators over what is read in parts |
//! | `view` | versions, and how calls name them |
//! | `durability` | waiting for durability without a thread that waits |
//! | `lists` | the lists of a version |
//! | `unit` | atomic recovery units, reservations |
//! | `metadata` | what is known of files |
//! | `file` | an open file |
//! | `files` | the files of a version, by paths |
//! | `volume` | volumes |

#![forbid(unsafe_code)]

mod buffer;
mod durability;
mod failure;
mod file;
mod files;
mod gate;
mod items;
mod lists;
mod metadata;
mod stream;
mod unit;
mod view;
mod volume;

/// The compiled part of dendrofs.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::durability::Durability;
    #[pymodule_export]
    use crate::file::FileHandle;
    #[pymodule_export]
    use crate::files::Files;
    #[pymodule_export]
    use crate::gate::after_fork;
    #[pymodule_export]
    use crate::items::Items;
    #[pymodule_export]
    use crate::lists::Lists;
    #[pymodule_export]
    use crate::metadata::{DirEntry, Stat};
    #[pymodule_export]
    use crate::unit::{Reservation, Unit};
    #[pymodule_export]
    use crate::view::{Client, Quota, Space, Usage, Version, View};
    #[pymodule_export]
    use crate::volume::Volume;

    #[pymodule_export]
    const PAGE_SIZE: usize = dendrofs::disk::PAGE_SIZE;
    #[pymodule_export]
    const MAX_RECORD_SIZE: usize = dendrofs::disk::MAX_RECORD_LEN_BYTES;
    #[pymodule_export]
    const MAX_PAGE_COUNT: u64 = dendrofs::disk::MAX_PAGE_COUNT;
    #[pymodule_export]
    const ROOT_LIST: u64 = dendrofs::Volume::ROOT.0;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
