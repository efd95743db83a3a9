//! The files of a version, by paths.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendrofs::FileType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use crate::buffer::Data;
use crate::failure::{At, Failure, Result};
use crate::file::{FileHandle, How, MAX_READ_BYTES};
use crate::gate::{Gate, Slot};
use crate::metadata::{DirEntry, Stat};
use crate::view::View;

/// The files of one version of a volume. Paths begin at its root directory, with a slash or without
/// one. Names and behaviour are those of the module `os` where it has them. Permissions are not
/// checked: who has the volume has its files.
///
/// Each call that changes something is one operation, after a crash there or not, unless it says
/// otherwise.
#[pyclass(module = "dendrofs", frozen, weakref)]
pub(crate) struct Files {
    files: Arc<Slot<dendrofs::Files>>,
    view: dendrofs::disk::View,
}

static OPEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static WALK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Files {
    pub(crate) fn make(
        gate: &Arc<Gate>,
        py: Python<'_>,
        view: dendrofs::disk::View,
    ) -> PyResult<Self> {
        let files = Slot::make(gate, py, "files are", |volume| Ok(volume.files(view)?))?;
        Ok(Self { files: Arc::new(files), view })
    }

    /// Does `work` with `path`, which errors name.
    fn at<R: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        work: impl FnOnce(&dendrofs::Files, &Path) -> dendrofs::Result<R> + Send,
    ) -> PyResult<R> {
        Ok(self.files.on(py, |files| work(files, path).at(path))?)
    }

    fn entries(&self, py: Python<'_>, path: &Path) -> PyResult<Vec<dendrofs::Entry>> {
        self.at(py, path, |files, path| files.read_dir(path))
    }
}

#[pymethods]
impl Files {
    /// The version.
    #[getter]
    const fn view(&self) -> View {
        View(self.view)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.close(py)?;
        Ok(false)
    }

    /// Ends the use of the files. Those that are open stay so.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.files.close(py)?)
    }

    /// Makes everything durable that was done before, in all files.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.files.on(py, |files| files.sync().map_err(Failure::when_syncing))?)
    }

    /// Opens a file as the built-in open() does, with the same arguments. What it returns is of the
    /// same types; the raw stream below is a dendrofs.File.
    #[pyo3(signature = (path, mode = "r", buffering = -1, encoding = None, errors = None,
                        newline = None))]
    #[allow(clippy::too_many_arguments, reason = "those of the built-in function")]
    fn open<'py>(
        this: &Bound<'py, Self>,
        path: PathBuf,
        mode: &str,
        buffering: i64,
        encoding: Option<&str>,
        errors: Option<&str>,
        newline: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open = OPEN.import(this.py(), "dendrofs._files", "open_file")?;
        open.call1((this, path, mode, buffering, encoding, errors, newline))
    }

    /// Opens a file by offsets. `mode` is "r", "r+", "w", "x" or "a", as with open().
    #[pyo3(name = "_open_handle")]
    fn open_handle(&self, py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<FileHandle> {
        let how = How::of(mode)?;
        let opened = self.files.derive(py, "file is", |files| {
            let file = how.open(files, &path).at(&path)?;
            match file.metadata().at(&path)?.file_type {
                FileType::File => Ok(file),
                FileType::Directory => {
                    Err(Failure::os(libc::EISDIR, "it is a directory").at(&path))
                }
                _ => Err(Failure::os(libc::ENXIO, "it is no regular file").at(&path)),
            }
        })?;
        Ok(FileHandle(opened))
    }

    /// All bytes of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        let handle = self.open_handle(py, path.clone(), "r")?;
        let bytes = handle.read_at(py, 0, u64::MAX)?;
        if (bytes.as_bytes().len() as u64) < MAX_READ_BYTES {
            return Ok(bytes);
        }
        let bytes = self.at(py, &path, |files, path| files.read(path))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a file that then has `data` alone. That is several operations: after a crash the file
    /// can be shorter. replace() is one.
    fn write_bytes(&self, py: Python<'_>, path: PathBuf, data: Data) -> PyResult<()> {
        let bytes = data.bytes(py);
        self.at(py, &path, |files, path| files.write(path, bytes))
    }

    /// Puts a new file with `data` in the place of what is at `path`. After a crash one of the two
    /// is there, whole. The new file has the old one's permissions and owner.
    fn replace_bytes(&self, py: Python<'_>, path: PathBuf, data: Data) -> PyResult<()> {
        let bytes = data.bytes(py);
        self.at(py, &path, |files, path| files.replace(path, bytes))
    }

    /// The names in a directory, sorted.
    #[pyo3(signature = (path = PathBuf::from("/")))]
    fn listdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        Ok(self.entries(py, &path)?.into_iter().map(|entry| entry.name).collect())
    }

    /// The entries of a directory, sorted by their names.
    #[pyo3(signature = (path = PathBuf::from("/")))]
    fn scandir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<DirEntry>> {
        let entries = self.entries(py, &path)?.into_iter();
        Ok(entries.map(|entry| DirEntry::new(&self.files, &path, entry)).collect())
    }

    /// Goes through a tree, as os.walk() does: triples of a directory, the names of the directories
    /// in it, and the other names.
    #[pyo3(signature = (top = PathBuf::from("/"), topdown = true, followlinks = false))]
    fn walk<'py>(
        this: &Bound<'py, Self>,
        top: PathBuf,
        topdown: bool,
        followlinks: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let walk = WALK.import(this.py(), "dendrofs._files", "walk")?;
        walk.call1((this, top, topdown, followlinks))
    }

    /// What is known of a file.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, path: PathBuf, follow_symlinks: bool) -> PyResult<Stat> {
        self.at(py, &path, |files, path| {
            let known = match follow_symlinks {
                true => files.metadata(path),
                false => files.symlink_metadata(path),
            };
            Ok(Stat::from(&known?))
        })
    }

    /// Whether there is a file; a symbolic link that leads nowhere is none.
    fn exists(&self, py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        self.at(py, &path, |files, path| files.exists(path))
    }

    /// Whether there is a directory.
    fn isdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        self.is(py, &path, FileType::Directory)
    }

    /// Whether there is a regular file.
    fn isfile(&self, py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        self.is(py, &path, FileType::File)
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |files, path| files.create_dir(path))
    }

    /// Makes a directory and those above it that do not exist. Each is an operation.
    #[pyo3(signature = (path, *, exist_ok = false))]
    fn makedirs(&self, py: Python<'_>, path: PathBuf, exist_ok: bool) -> PyResult<()> {
        let done: Result<()> = self.files.on(py, |files| {
            if !exist_ok && files.exists(&path).at(&path)? {
                return Err(Failure::os(libc::EEXIST, "it exists already").at(&path));
            }
            files.create_dir_all(&path).at(&path)
        });
        Ok(done?)
    }

    /// Renames a file. What has the new name is replaced.
    fn rename(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.at(py, &path, |files, path| files.rename(path, &to))
    }

    /// Removes a name that is not a directory's.
    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |files, path| files.remove_file(path))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |files, path| files.remove_dir(path))
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |files, path| files.symlink(&target, path))
    }

    /// Where a symbolic link leads.
    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.at(py, &path, |files, path| Ok(files.read_link(path)?.into_os_string()))
    }

    /// Gives the file at `path` one more name.
    fn link(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.at(py, &path, |files, path| files.hard_link(path, &to))
    }

    /// Sets the permission bits of a file.
    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.at(py, &path, |files, path| files.set_mode(path, mode))
    }

    /// The value of an extended attribute. Names begin with "user." or another namespace.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: OsString,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.at(py, &path, |files, path| files.xattr(path, &name))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Gives a file an extended attribute, or another value for one.
    fn setxattr(&self, py: Python<'_>, path: PathBuf, name: OsString, value: Data) -> PyResult<()> {
        let value = value.bytes(py);
        self.at(py, &path, |files, path| files.set_xattr(path, &name, value))
    }

    /// The names of a file's extended attributes, sorted.
    fn listxattr(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        self.at(py, &path, |files, path| files.xattrs(path))
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: OsString) -> PyResult<()> {
        self.at(py, &path, |files, path| files.remove_xattr(path, &name))
    }

    fn __repr__(&self) -> String {
        format!("<Files of the {}>", self.view)
    }
}

impl Files {
    fn is(&self, py: Python<'_>, path: &Path, file_type: FileType) -> PyResult<bool> {
        self.at(py, path, |files, path| {
            Ok(files.exists(path)? && files.metadata(path)?.file_type == file_type)
        })
    }
}
