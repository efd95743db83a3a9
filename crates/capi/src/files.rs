//! The files of a version, by paths.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::border::{Handle, Health, close, hand_out, on, place};
use crate::failure::{Failure, Result};
use crate::types::{Stat, View};
use crate::volume::Volume;

/// The files of one version of a volume.
pub struct Files {
    health: Health,
    files: dendrofs::Files,
}

impl Handle for Files {
    fn health(&self) -> &Health {
        &self.health
    }
}

impl Files {
    /// The files of the library.
    pub(crate) const fn inner(&self) -> &dendrofs::Files {
        &self.files
    }
}

/// A change of files by one path.
fn change(
    files: Option<&Files>,
    path: *const c_char,
    work: impl FnOnce(&dendrofs::Files, &Path) -> dendrofs::Result<()>,
) -> c_int {
    on(files, |call, files| {
        work(&files.files, call.path(path)?)?;
        Ok(0)
    })
}

/// The same by two paths.
fn change_two(
    files: Option<&Files>,
    paths: [*const c_char; 2],
    work: impl FnOnce(&dendrofs::Files, &Path, &Path) -> dendrofs::Result<()>,
) -> c_int {
    on(files, |call, files| {
        work(&files.files, call.path(paths[0])?, call.path(paths[1])?)?;
        Ok(0)
    })
}

/// Opens the files of a version. Those of a snapshot cannot be changed. Handles of the same version
/// show the same files.
///
/// Paths begin at the root directory of the version, with a slash or without one. They are any
/// bytes. Permissions are not checked: who has the volume has its files. New files belong to the
/// user of the process. Each function that changes something is one operation, after a crash there
/// or not, unless it says otherwise.
///
/// Returns: 0, with the handle in `*files`; it is given back by dendro_files_close(). After an
/// error `*files` is NULL.
///
/// Errors: EOPNOTSUPP: the volume holds lists. ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_open(
    volume: Option<&Volume>,
    version: View,
    files: Option<&mut MaybeUninit<Option<Box<Files>>>>,
) -> c_int {
    on(volume, |_, volume| {
        hand_out(files, || {
            let opened = volume.inner().files(version.into())?;
            Ok(Files { health: volume.health().clone(), files: opened })
        })
    })
}

/// Gives the files of a version back. Close files and directories of it before, and the volume
/// after. NULL does nothing.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_close(files: Option<Box<Files>>) -> c_int {
    close(files, |_| Ok(()))
}

/// Makes everything durable that was done before, in all files.
///
/// Returns: 0.
///
/// Errors: EIO: what was not durable before may be lost, and the volume takes no more changes.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_sync(files: Option<&Files>) -> c_int {
    on(files, |_, files| {
        files.files.sync().map_err(Failure::when_syncing)?;
        Ok(0)
    })
}

/// Puts into `*stat` what is known of the file at `path`. Symbolic links are followed.
///
/// Returns: 0.
///
/// Errors: those of paths: ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_stat(
    files: Option<&Files>,
    path: *const c_char,
    stat: Option<&mut MaybeUninit<Stat>>,
) -> c_int {
    on(files, |call, files| {
        let place = place(stat)?;
        place.write(files.files.metadata(call.path(path)?)?.into());
        Ok(0)
    })
}

/// As dendro_files_stat(), of a symbolic link itself.
///
/// Returns: 0.
///
/// Errors: as dendro_files_stat().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_lstat(
    files: Option<&Files>,
    path: *const c_char,
    stat: Option<&mut MaybeUninit<Stat>>,
) -> c_int {
    on(files, |call, files| {
        let place = place(stat)?;
        place.write(files.files.symlink_metadata(call.path(path)?)?.into());
        Ok(0)
    })
}

/// Makes a directory, with permission bits 0755.
///
/// Returns: 0.
///
/// Errors: those of paths (see dendro_files_stat()). EEXIST: there is something of that name.
/// EINVAL: the path does not end with a name. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_mkdir(files: Option<&Files>, path: *const c_char) -> c_int {
    change(files, path, |files, path| files.create_dir(path))
}

/// Makes a directory and those above it that do not exist. Each is an operation.
///
/// Returns: 0, also if the directory is there already.
///
/// Errors: as dendro_files_mkdir(). EEXIST: there is something else of that name.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_mkdir_all(files: Option<&Files>, path: *const c_char) -> c_int {
    change(files, path, |files, path| files.create_dir_all(path))
}

/// Removes a name that is not a directory's. The file goes when nobody has it open.
///
/// Returns: 0.
///
/// Errors: those of paths. EISDIR: it is a directory. EINVAL: the path does not end with a name.
/// EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_unlink(files: Option<&Files>, path: *const c_char) -> c_int {
    change(files, path, |files, path| files.remove_file(path))
}

/// Removes an empty directory.
///
/// Returns: 0.
///
/// Errors: those of paths. ENOTEMPTY: it has entries. ENOTDIR: it is not a directory. EINVAL: the
/// path does not end with a name. EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_rmdir(files: Option<&Files>, path: *const c_char) -> c_int {
    change(files, path, |files, path| files.remove_dir(path))
}

/// Renames a file. What has the new name is replaced, as rename(2) does.
///
/// Returns: 0.
///
/// Errors: those of paths. EISDIR, ENOTDIR: only one of the two is a directory. ENOTEMPTY: the
/// directory to be replaced has entries. EINVAL: a directory cannot move into itself, or a path
/// does not end with a name. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_rename(
    files: Option<&Files>,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    change_two(files, [from, to], |files, from, to| files.rename(from, to))
}

/// Gives the file at `from` one more name, `to`.
///
/// Returns: 0.
///
/// Errors: those of paths. EEXIST: there is something at `to`. EPERM: it is a directory. EMLINK: it
/// has too many names. EINVAL: `to` does not end with a name. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_link(
    files: Option<&Files>,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    change_two(files, [from, to], |files, from, to| files.hard_link(from, to))
}

/// Makes a symbolic link at `path` that leads to `target`.
///
/// Returns: 0.
///
/// Errors: as dendro_files_mkdir().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_symlink(
    files: Option<&Files>,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    change_two(files, [target, path], |files, target, path| files.symlink(target, path))
}

/// Puts where a symbolic link leads into `buf` of `len` bytes, without a zero byte, cut off if
/// there is no room. `buf` may be NULL if `len` is 0.
///
/// Returns: the length of the whole target in bytes, at most 4,095.
///
/// Errors: those of paths. EINVAL: it is not a symbolic link. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_readlink(
    files: Option<&Files>,
    path: *const c_char,
    buf: *mut c_char,
    len: usize,
) -> i64 {
    on(files, |call, files| -> Result<i64> {
        let buf = call.buffer(buf.cast::<c_void>(), len)?;
        let target = files.files.read_link(call.path(path)?)?;
        let target = target.as_os_str().as_bytes();
        let kept = target.len().min(buf.len());
        buf[..kept].copy_from_slice(&target[..kept]);
        Ok(target.len() as i64)
    })
}

/// Sets the permission, set-id and sticky bits of a file.
///
/// Returns: 0.
///
/// Errors: those of paths. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_chmod(
    files: Option<&Files>,
    path: *const c_char,
    mode: u32,
) -> c_int {
    change(files, path, |files, path| files.set_mode(path, mode))
}

/// Puts a new file with `len` bytes of `data` in the place of what is at `path`. After a crash one
/// of the two is there, whole. The new file has the old one's permissions and owner.
///
/// Returns: 0. After an error the old file is there.
///
/// Errors: those of paths. EISDIR: it is a directory. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_files_replace(
    files: Option<&Files>,
    path: *const c_char,
    data: *const c_void,
    len: usize,
) -> c_int {
    on(files, |call, files| {
        files.files.replace(call.path(path)?, call.bytes(data, len)?)?;
        Ok(0)
    })
}
