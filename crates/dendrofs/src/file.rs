//! An open file.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use dendro_fs::{Caller, FsError, Ino, OpenOptions, SetAttr};

use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::open_disk::Mounted;

/// The most that one operation writes: so much is there after a crash, or nothing of it.
const MAX_WRITE_BYTES: usize = 1 << 20;

/// An open file. It has a position for [`Read`], [`Write`] and [`Seek`]; the calls with an offset
/// do not use it.
///
/// A file that is removed while it is open goes when it is dropped.
pub struct File {
    fs: Arc<Mounted>,
    ino: Ino,
    position: u64,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.ino)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl File {
    /// A file for which an open was counted.
    pub(crate) const fn opened(fs: Arc<Mounted>, ino: Ino) -> Self {
        Self { fs, ino, position: 0 }
    }

    pub(crate) fn open_to_write(fs: &Arc<Mounted>, ino: Ino) -> Result<Self> {
        fs.open(ino, OpenOptions { write: true, ..OpenOptions::default() })?;
        Ok(Self::opened(Arc::clone(fs), ino))
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// [`Error::Files`], as all calls.
    pub fn len(&self) -> Result<u64> {
        Ok(self.fs.getattr(self.ino)?.size_bytes)
    }

    /// Whether it is empty.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// What is known of it.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata::from(&self.fs.getattr(self.ino)?))
    }

    /// Reads from `offset` on. Returns how many bytes: fewer than `buf` has only at the end.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.fs.read(self.ino, offset, buf)?)
    }

    /// Writes up to 1 MiB at `offset`, as one operation. Returns how many bytes.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let bytes = &bytes[..bytes.len().min(MAX_WRITE_BYTES)];
        Ok(self.fs.write(self.ino, offset, bytes, false)?)
    }

    /// Writes all of `bytes` at `offset`, each MiB as an operation.
    ///
    /// # Errors
    /// As [`Self::len`]; what lies before the MiB that fails is written.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_at(offset.saturating_add(written as u64), &bytes[written..])? {
                0 => return Err(Error::Files(FsError::FileTooBig)),
                count => written += count,
            }
        }
        Ok(())
    }

    /// Cuts it off, or adds a hole.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn set_len(&self, len_bytes: u64) -> Result<()> {
        let changes = SetAttr { size_bytes: Some(len_bytes), ..SetAttr::default() };
        self.fs.setattr(&Caller::default(), self.ino, &changes)?;
        Ok(())
    }

    /// Makes it durable, and everything that was done before, in all files.
    ///
    /// # Errors
    /// As [`Self::len`]: the volume takes no more changes then.
    pub fn sync(&self) -> Result<()> {
        Ok(self.fs.fsync(self.ino, false)?)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, buf)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.write_at(self.position, bytes)?;
        self.position += count as u64;
        Ok(count)
    }

    /// Does nothing: what was written is there. [`File::sync`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::End(by) => (self.len()?, by),
            SeekFrom::Current(by) => (self.position, by),
        };
        let position = base.checked_add_signed(by);
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.fs.release(self.ino);
    }
}
