//! The files of one version.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_disk::View;
use dendro_fs::{
    Attr, Caller, FileKind, FileSystem, FsError, Ino, OpenOptions, RenameFlags, SetAttr, XattrFlags,
};

use crate::error::Result;
use crate::file::File;
use crate::metadata::{Entry, Metadata};
use crate::open_disk::Mounted;
use crate::walk::{Follow, Place, find, place, place_of_target};

/// Bytes that are read or written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The files of one version of a volume. Any number of threads may use it, and any number of these
/// values may be of one version.
///
/// Paths begin at the version's root directory, with a slash or without one. Symbolic links are
/// followed where [`std::fs`] follows them. Permissions are not checked: who has the volume has its
/// files. New files belong to the user of the process.
///
/// Each call that changes something is one operation, after a crash there or not, unless it says
/// otherwise.
pub struct Files {
    fs: Arc<Mounted>,
    /// Counts temporary names.
    temporary: AtomicU64,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("version", &self.fs.view()).finish_non_exhaustive()
    }
}

impl Files {
    pub(crate) const fn new(fs: Arc<Mounted>) -> Self {
        Self { fs, temporary: AtomicU64::new(0) }
    }

    /// The version.
    #[must_use]
    pub fn view(&self) -> View {
        self.fs.view()
    }

    /// The file system with all of its operations, by i-node numbers: attributes, holes, links, and
    /// what else Linux has.
    #[must_use]
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Makes everything durable that was done before, in all files.
    ///
    /// # Errors
    /// [`Error::Files`](crate::Error::Files): the volume takes no more changes then.
    pub fn sync(&self) -> Result<()> {
        Ok(self.fs.sync_all()?)
    }
}

/// Contents.
impl Files {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Error::Files`](crate::Error::Files), as all calls.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        self.fs.open(attr.ino, OpenOptions::default())?;
        Ok(File::opened(Arc::clone(&self.fs), attr.ino))
    }

    /// Opens a file to be written, which must be there. What it holds stays.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_write(&self, path: impl AsRef<Path>) -> Result<File> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        File::open_to_write(&self.fs, attr.ino)
    }

    /// Opens a new file to be written, which must not be there; a symbolic link at `path` counts as
    /// there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        if path.as_ref().components().all(|part| part == Component::RootDir) {
            return Err(FsError::Exists.into());
        }
        let Place { dir, name } = place(&self.fs, path.as_ref())?;
        let options = OpenOptions { write: true, exclusive: true, ..OpenOptions::default() };
        self.make_at(dir, &name, options)
    }

    /// Opens a file to be written, which is made if there is none. What it holds stays.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.make(path.as_ref(), OpenOptions { write: true, ..OpenOptions::default() })
    }

    /// Opens an empty file to be written: a new one, or one that is cut to no length.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions { write: true, truncate: true, ..OpenOptions::default() };
        self.make(path.as_ref(), options)
    }

    fn make(&self, path: &Path, options: OpenOptions) -> Result<File> {
        let (Place { dir, name }, found) = place_of_target(&self.fs, path)?;
        if let Some(attr) = found {
            self.fs.open(attr.ino, options)?;
            return Ok(File::opened(Arc::clone(&self.fs), attr.ino));
        }
        if name.is_empty() {
            return Err(FsError::IsDirectory.into());
        }
        self.make_at(dir, &name, options)
    }

    fn make_at(&self, dir: Ino, name: &[u8], options: OpenOptions) -> Result<File> {
        let attr = self.fs.create(&caller(), dir, name, 0o644, options)?;
        self.fs.forget(attr.ino, 1);
        Ok(File::opened(Arc::clone(&self.fs), attr.ino))
    }

    /// All of a file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        loop {
            let at = bytes.len();
            let left = file.len()?.saturating_sub(at as u64);
            bytes.resize(at + (left as usize).clamp(1, CHUNK_BYTES), 0);
            let count = file.read_at(at as u64, &mut bytes[at..])?;
            bytes.truncate(at + count);
            if count == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Writes a file that then has `bytes` alone. It is made if there is none. That is several
    /// operations: after a crash the file can be shorter. [`Self::replace`] is one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        file.write_all_at(0, bytes)
    }

    /// Puts a new file with `bytes` in the place of what is at `path`. After a crash one of the two
    /// is there, whole. The new file has the old one's permissions and owner.
    ///
    /// # Errors
    /// As [`Self::open`]; the old file is there then.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let (Place { dir, name }, found) = place_of_target(&self.fs, path.as_ref())?;
        if name.is_empty() || found.is_some_and(|attr| attr.kind == FileKind::Directory) {
            return Err(FsError::IsDirectory.into());
        }
        let temporary = self.write_temporary(dir, bytes, found.as_ref())?;
        let caller = caller();
        let renamed = self.fs.rename(&caller, dir, &temporary, dir, &name, RenameFlags::default());
        if renamed.is_err() {
            let _ = self.fs.unlink(dir, &temporary);
        }
        Ok(renamed?)
    }

    /// Writes a file of a name that is free, and returns the name.
    fn write_temporary(&self, dir: Ino, bytes: &[u8], like: Option<&Attr>) -> Result<Vec<u8>> {
        loop {
            let number = self.temporary.fetch_add(1, Ordering::Relaxed);
            let name = format!(".replace-{}-{number}", std::process::id()).into_bytes();
            let mode = like.map_or(0o644, |attr| attr.perm);
            let made = match self.fs.mknod(&caller(), dir, &name, mode, 0) {
                Err(FsError::Exists) => continue,
                made => made?,
            };
            self.fs.forget(made.ino, 1);
            let written = File::open_to_write(&self.fs, made.ino)
                .and_then(|file| file.write_all_at(0, bytes))
                .and_then(|()| match like {
                    Some(attr) if (attr.uid, attr.gid) != (made.uid, made.gid) => {
                        let (uid, gid) = (Some(attr.uid), Some(attr.gid));
                        let owner = SetAttr { uid, gid, ..SetAttr::default() };
                        self.fs.setattr(&caller(), made.ino, &owner)?;
                        Ok(())
                    }
                    _ => Ok(()),
                });
            return match written {
                Ok(()) => Ok(name),
                Err(error) => {
                    let _ = self.fs.unlink(dir, &name);
                    Err(error)
                }
            };
        }
    }
}

/// Names.
impl Files {
    /// What is known of a file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        find(&self.fs, path.as_ref(), Follow::Yes).map(|attr| Metadata::from(&attr))
    }

    /// As [`Self::metadata`], of a symbolic link itself.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        find(&self.fs, path.as_ref(), Follow::No).map(|attr| Metadata::from(&attr))
    }

    /// Whether there is a file.
    ///
    /// # Errors
    /// As [`Self::open`], except that there is none.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match find(&self.fs, path.as_ref(), Follow::Yes) {
            Ok(_) => Ok(true),
            Err(crate::Error::Files(FsError::NotFound | FsError::NotDirectory)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory, sorted by their names.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<Entry>> {
        let dir = find(&self.fs, path.as_ref(), Follow::Yes)?.ino;
        let mut entries = Vec::new();
        self.fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let name = OsString::from_vec(entry.name.to_vec());
                entries.push(Entry { name, file_type: entry.kind.into(), ino: entry.ino.0 });
            }
            true
        })?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let Place { dir, name } = place(&self.fs, path.as_ref())?;
        let made = self.fs.mkdir(&caller(), dir, &name, 0o755)?;
        self.fs.forget(made.ino, 1);
        Ok(())
    }

    /// Makes a directory and those above it that do not exist. Each is an operation.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut made = PathBuf::new();
        for part in path.as_ref().components() {
            made.push(part);
            if !self.exists(&made)? {
                self.create_dir(&made)?;
            }
        }
        match find(&self.fs, path.as_ref(), Follow::Yes)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(FsError::Exists.into()),
        }
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let Place { dir, name } = place(&self.fs, path.as_ref())?;
        Ok(self.fs.unlink(dir, &name)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let Place { dir, name } = place(&self.fs, path.as_ref())?;
        Ok(self.fs.rmdir(dir, &name)?)
    }

    /// Renames a file. What has the new name is replaced.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (place(&self.fs, from.as_ref())?, place(&self.fs, to.as_ref())?);
        let flags = RenameFlags::default();
        Ok(self.fs.rename(&caller(), from.dir, &from.name, to.dir, &to.name, flags)?)
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let Place { dir, name } = place(&self.fs, path.as_ref())?;
        let target = target.as_ref().as_os_str().as_bytes();
        let made = self.fs.symlink(&caller(), dir, &name, target)?;
        self.fs.forget(made.ino, 1);
        Ok(())
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let attr = find(&self.fs, path.as_ref(), Follow::No)?;
        Ok(PathBuf::from(OsString::from_vec(self.fs.readlink(attr.ino)?)))
    }

    /// Gives the file at `from` one more name.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let attr = find(&self.fs, from.as_ref(), Follow::No)?;
        let Place { dir, name } = place(&self.fs, to.as_ref())?;
        let linked = self.fs.link(attr.ino, dir, &name)?;
        self.fs.forget(linked.ino, 1);
        Ok(())
    }

    /// Sets the permission bits of a file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.fs.setattr(&caller(), attr.ino, &changes)?;
        Ok(())
    }
}

/// Extended attributes. Their names begin with a namespace: `user.`, `trusted.`, `security.`, or
/// `system.posix_acl_`.
impl Files {
    /// The value of an attribute.
    ///
    /// # Errors
    /// As [`Self::open`]; `NoAttribute` if there is none of that name.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        Ok(self.fs.getxattr(attr.ino, name.as_ref().as_bytes())?)
    }

    /// Gives a file an attribute, or another value for one.
    ///
    /// # Errors
    /// As [`Self::open`]; `NotSupported` for an unknown namespace.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
    ) -> Result<()> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        let flags = XattrFlags::empty();
        Ok(self.fs.setxattr(attr.ino, name.as_ref().as_bytes(), value, flags)?)
    }

    /// The names of all attributes, sorted.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        let names = self.fs.listxattr(attr.ino)?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<_> = names.map(|name| OsString::from_vec(name.to_vec())).collect();
        names.sort();
        Ok(names)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As [`Self::xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let attr = find(&self.fs, path.as_ref(), Follow::Yes)?;
        Ok(self.fs.removexattr(attr.ino, name.as_ref().as_bytes())?)
    }
}

/// The user of this process.
fn caller() -> Caller<'static> {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Caller::default()
    }
}
