//! An open file.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;

use crate::border::{Handle, Health, close, hand_out, on, place};
use crate::failure::{Failure, Result};
use crate::files::Files;
use crate::types::{DENDRO_CREATE, DENDRO_EXCLUSIVE, DENDRO_TRUNCATE, DENDRO_WRITE, Stat};

/// An open file. It has no position of its own.
pub struct File {
    health: Health,
    file: dendrofs::File,
    is_writable: bool,
}

impl Handle for File {
    fn health(&self) -> &Health {
        &self.health
    }
}

impl File {
    /// The file, if it was opened to be written.
    fn to_write(&self) -> Result<&dendrofs::File> {
        match self.is_writable {
            true => Ok(&self.file),
            false => Err(Failure::new(libc::EBADF, "the file was opened without DENDRO_WRITE")),
        }
    }
}

fn open(files: &dendrofs::Files, path: &Path, flags: u32) -> Result<dendrofs::File> {
    let all = DENDRO_WRITE | DENDRO_CREATE | DENDRO_EXCLUSIVE | DENDRO_TRUNCATE;
    let has = |flag| flags & flag != 0;
    if flags & !all != 0 || (flags != 0 && !has(DENDRO_WRITE)) {
        return Err(Failure::invalid(format!("there are no flags {flags:#x}")));
    }
    if has(DENDRO_EXCLUSIVE) && !has(DENDRO_CREATE) {
        return Err(Failure::invalid("DENDRO_EXCLUSIVE is for DENDRO_CREATE"));
    }
    Ok(match (has(DENDRO_CREATE), has(DENDRO_TRUNCATE)) {
        _ if flags == 0 => files.open(path)?,
        _ if has(DENDRO_EXCLUSIVE) => files.create_new(path)?,
        (true, true) => files.create(path)?,
        (true, false) => files.open_or_create(path)?,
        (false, is_cut) => {
            let file = files.open_to_write(path)?;
            if is_cut {
                file.set_len(0)?;
            }
            file
        }
    })
}

/// Opens the file at `path`. `flags` is 0, for reading, or DENDRO_WRITE and others, for reading and
/// writing. A file that is removed while it is open goes when it is closed.
///
/// Returns: 0, with the handle in `*file`; it is given back by dendro_file_close(). After an error
/// `*file` is NULL.
///
/// Errors: those of paths (see dendro_files_stat()). EEXIST: it is there, and the flags have
/// DENDRO_EXCLUSIVE. EISDIR: it is a directory, and to be written. EINVAL: the flags are wrong.
/// EROFS: the version is a snapshot, or the volume takes no changes. ENOSPC, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_open(
    files: Option<&Files>,
    path: *const c_char,
    flags: u32,
    file: Option<&mut MaybeUninit<Option<Box<File>>>>,
) -> c_int {
    on(files, |call, files| {
        hand_out(file, || {
            let opened = open(files.inner(), call.path(path)?, flags)?;
            let is_writable = flags & DENDRO_WRITE != 0;
            Ok(File { health: files.health().clone(), file: opened, is_writable })
        })
    })
}

/// Gives a file back. What was written is there, and durable once something is synced. NULL does
/// nothing.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_close(file: Option<Box<File>>) -> c_int {
    close(file, |_| Ok(()))
}

/// Reads up to `len` bytes from the byte `offset` on into `buf`.
///
/// Returns: how many bytes: fewer than `len` only at the end of the file, where it is 0.
///
/// Errors: EISDIR: it is a directory. EIO: it cannot be read, or is damaged.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_read(
    file: Option<&File>,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    on(file, |call, file| Ok(file.file.read_at(offset, call.buffer(buf, len)?)? as i64))
}

/// Writes `len` bytes at the byte `offset`. Each MiB is an operation: after a crash it is there, or
/// nothing of it.
///
/// Returns: how many bytes were written: fewer than `len` if there was an error after some, which
/// the next call meets again.
///
/// Errors: EBADF: the file was opened without DENDRO_WRITE. EFBIG: past the largest offset. ENOSPC:
/// it would not fit. EROFS: the volume takes no changes. EIO.
///
/// Threads: any. Each MiB is written as a whole.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_write(
    file: Option<&File>,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> i64 {
    on(file, |call, file| {
        let (file, data) = (file.to_write()?, call.bytes(data, len)?);
        let mut written = 0;
        while written < data.len() {
            match file.write_at(offset.saturating_add(written as u64), &data[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if written == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        match written {
            0 if !data.is_empty() => Err(Failure::new(libc::EFBIG, "the file would be too large")),
            _ => Ok(written as i64),
        }
    })
}

/// Cuts a file off at `len_bytes`, or adds a hole up to there.
///
/// Returns: 0.
///
/// Errors: as dendro_file_write().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_truncate(file: Option<&File>, len_bytes: u64) -> c_int {
    on(file, |_, file| {
        file.to_write()?.set_len(len_bytes)?;
        Ok(0)
    })
}

/// Makes a file durable, and everything that was done before, in all files.
///
/// Returns: 0.
///
/// Errors: EIO: what was not durable before may be lost, and the volume takes no more changes.
///
/// Threads: any. Those that wait at the same time share one flush of the device.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_sync(file: Option<&File>) -> c_int {
    on(file, |_, file| {
        file.file.sync().map_err(Failure::when_syncing)?;
        Ok(0)
    })
}

/// Puts into `*stat` what is known of a file.
///
/// Returns: 0.
///
/// Errors: EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_file_stat(
    file: Option<&File>,
    stat: Option<&mut MaybeUninit<Stat>>,
) -> c_int {
    on(file, |_, file| {
        let place = place(stat)?;
        place.write(file.file.metadata()?.into());
        Ok(0)
    })
}
