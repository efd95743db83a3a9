//! The entries of a directory.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};
use std::vec::IntoIter;

use crate::border::{Handle, Health, close, hand_out, on, place};
use crate::files::Files;
use crate::types::{Entry, name_of, type_number};

/// The entries of a directory, as they were when this was made.
pub struct Directory {
    health: Health,
    entries: Mutex<IntoIter<dendrofs::Entry>>,
}

impl Handle for Directory {
    fn health(&self) -> &Health {
        &self.health
    }
}

/// Reads the entries of the directory at `path`. They are sorted by the bytes of their names; "."
/// and ".." are left out. Later changes do not show.
///
/// Returns: 0, with the handle in `*directory`; it is given back by dendro_directory_close(). After
/// an error `*directory` is NULL.
///
/// Errors: those of paths (see dendro_files_stat()). ENOTDIR: it is not a directory. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_directory_open(
    files: Option<&Files>,
    path: *const c_char,
    directory: Option<&mut MaybeUninit<Option<Box<Directory>>>>,
) -> c_int {
    on(files, |call, files| {
        hand_out(directory, || {
            let entries = files.inner().read_dir(call.path(path)?)?.into_iter();
            Ok(Directory { health: files.health().clone(), entries: Mutex::new(entries) })
        })
    })
}

/// Puts the next entry into `*entry`.
///
/// Returns: 1, or 0 if there is none left.
///
/// Errors: none but those of any call.
///
/// Threads: any. Each entry is given to one of them.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_directory_next(
    directory: Option<&Directory>,
    entry: Option<&mut MaybeUninit<Entry>>,
) -> c_int {
    on(directory, |_, directory| {
        let place = place(entry)?;
        let mut left = directory.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = left.next() else { return Ok(0) };
        let name = name_of(next.name.as_bytes());
        place.write(Entry { ino: next.ino, file_type: type_number(next.file_type), name });
        Ok(1)
    })
}

/// Gives the entries of a directory back. NULL does nothing.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_directory_close(directory: Option<Box<Directory>>) -> c_int {
    close(directory, |_| Ok(()))
}
