//! What is known of files.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dendrofs::{Entry, FileType, Metadata};
use pyo3::prelude::*;

use crate::failure::At;
use crate::gate::Slot;

/// The type bits of `st_mode`; none for pipes, sockets and devices.
const fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::File => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        _ => 0,
    }
}

/// What is known of a file, with the names that os.stat_result has. `st_mode` has no type for a
/// pipe, a socket or a device.
#[pyclass(module = "dendrofs", frozen, get_all, eq)]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    st_mode: u32,
    st_ino: u64,
    st_nlink: u32,
    st_uid: u32,
    st_gid: u32,
    st_size: u64,
    /// What it takes in the volume, in units of 512 bytes.
    st_blocks: u64,
    /// When its contents changed, in nanoseconds since 1970.
    st_mtime_ns: i128,
    /// When its contents or attributes changed.
    st_ctime_ns: i128,
    /// When it was made.
    st_birthtime_ns: i128,
}

#[pymethods]
impl Stat {
    /// When its contents changed, in seconds since 1970.
    #[getter]
    fn st_mtime(&self) -> f64 {
        self.st_mtime_ns as f64 / 1e9
    }

    /// When its contents or attributes changed, in seconds since 1970.
    #[getter]
    fn st_ctime(&self) -> f64 {
        self.st_ctime_ns as f64 / 1e9
    }

    /// When it was made, in seconds since 1970.
    #[getter]
    fn st_birthtime(&self) -> f64 {
        self.st_birthtime_ns as f64 / 1e9
    }

    fn __repr__(&self) -> String {
        format!("<Stat: mode {:o}, {} bytes>", self.st_mode, self.st_size)
    }
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

impl From<&Metadata> for Stat {
    fn from(of: &Metadata) -> Self {
        Self {
            st_mode: type_bits(of.file_type) | of.mode,
            st_ino: of.ino,
            st_nlink: of.link_count,
            st_uid: of.uid,
            st_gid: of.gid,
            st_size: of.len_bytes,
            st_blocks: of.used_bytes / 512,
            st_mtime_ns: nanoseconds(of.modified),
            st_ctime_ns: nanoseconds(of.changed),
            st_birthtime_ns: nanoseconds(of.created),
        }
    }
}

/// An entry of a directory, as os.scandir() has it.
#[pyclass(module = "dendrofs", frozen)]
pub(crate) struct DirEntry {
    files: Arc<Slot<dendrofs::Files>>,
    path: PathBuf,
    name: OsString,
    file_type: FileType,
    ino: u64,
}

impl DirEntry {
    pub(crate) fn new(
        files: &Arc<Slot<dendrofs::Files>>,
        dir: &std::path::Path,
        entry: Entry,
    ) -> Self {
        Self {
            files: Arc::clone(files),
            path: dir.join(&entry.name),
            name: entry.name,
            file_type: entry.file_type,
            ino: entry.ino,
        }
    }

    /// What is known of the file, or of what a symbolic link leads to.
    fn metadata(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Metadata> {
        Ok(self.files.on(py, |files| match follow_symlinks {
            true => files.metadata(&self.path).at(&self.path),
            false => files.symlink_metadata(&self.path).at(&self.path),
        })?)
    }

    fn is(&self, py: Python<'_>, file_type: FileType, follow_symlinks: bool) -> PyResult<bool> {
        if self.file_type != FileType::Symlink || !follow_symlinks {
            return Ok(self.file_type == file_type);
        }
        // A link that leads nowhere is neither.
        let found = self.files.on(py, |files| match files.exists(&self.path)? {
            true => Ok(Some(files.metadata(&self.path)?.file_type)),
            false => Ok(None),
        });
        Ok(found.at(&self.path)? == Some(file_type))
    }
}

#[pymethods]
impl DirEntry {
    /// The name in the directory.
    #[getter]
    fn name(&self) -> OsString {
        self.name.clone()
    }

    /// The path of the directory, and the name.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone().into_os_string()
    }

    fn __fspath__(&self) -> OsString {
        self.path()
    }

    /// The i-node number.
    const fn inode(&self) -> u64 {
        self.ino
    }

    /// Whether it is a directory.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Directory, follow_symlinks)
    }

    /// Whether it is a regular file.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::File, follow_symlinks)
    }

    /// Whether it is a symbolic link.
    fn is_symlink(&self) -> bool {
        self.file_type == FileType::Symlink
    }

    /// What is known of the file.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Stat> {
        Ok(Stat::from(&self.metadata(py, follow_symlinks)?))
    }

    fn __repr__(&self) -> String {
        format!("<DirEntry {:?}>", self.name)
    }
}
