//! An open file, by offsets. `python/dendrofs/_files.py` makes a stream of it.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{Data, Target, read_bytes};
use crate::failure::{Failure, Result};
use crate::gate::Slot;
use crate::metadata::Stat;

/// The most that is read at a time, so that a size of which nothing is known takes no memory.
pub(crate) const MAX_READ_BYTES: u64 = 1 << 30;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Write,
    Truncate,
    New,
    Append,
}

impl How {
    /// What the modes of Python's open() stand for.
    pub(crate) fn of(mode: &str) -> Result<Self> {
        Ok(match mode {
            "r" => Self::Read,
            "r+" => Self::Write,
            "w" | "w+" => Self::Truncate,
            "x" | "x+" => Self::New,
            "a" | "a+" => Self::Append,
            _ => return Err(Failure::value(format!("there is no mode '{mode}'"))),
        })
    }

    pub(crate) fn open(
        self,
        files: &dendrofs::Files,
        path: &std::path::Path,
    ) -> dendrofs::Result<dendrofs::File> {
        match self {
            Self::Read => files.open(path),
            Self::Write => files.open_to_write(path),
            Self::Truncate => files.create(path),
            Self::New => files.create_new(path),
            Self::Append => files.open_or_create(path),
        }
    }
}

/// An open file, by offsets. Files.open() makes streams of it.
#[pyclass(module = "dendrofs", frozen)]
pub(crate) struct FileHandle(pub(crate) Slot<dendrofs::File>);

impl FileHandle {
    fn read_into(&self, py: Python<'_>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.on(py, |file| {
            let mut count = 0;
            while count < buf.len() {
                match file.read_at(offset.saturating_add(count as u64), &mut buf[count..])? {
                    0 => break,
                    more => count += more,
                }
            }
            Ok(count)
        })
    }

    /// How much there is from `offset` on, `len` at most.
    fn left(&self, py: Python<'_>, offset: u64, len: u64) -> Result<usize> {
        let size = self.0.on(py, |file| Ok(file.len()?))?;
        Ok(size.saturating_sub(offset).min(len).min(MAX_READ_BYTES) as usize)
    }
}

#[pymethods]
impl FileHandle {
    /// Reads up to `len` bytes from `offset` on: fewer at the end, or above 1 GiB.
    pub(crate) fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        len: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let len = self.left(py, offset, len)?;
        read_bytes(py, len, |buf| self.read_into(py, offset, buf))
    }

    /// Reads into a buffer from `offset` on. Returns how many bytes: fewer than it has at the end.
    fn read_into_at(&self, py: Python<'_>, offset: u64, buffer: Target<'_>) -> PyResult<usize> {
        let len = self.left(py, offset, buffer.len_bytes() as u64)?;
        let bytes = read_bytes(py, len, |buf| self.read_into(py, offset, buf))?;
        let count = bytes.as_bytes().len();
        buffer.fill(bytes)?;
        Ok(count)
    }

    /// Writes all of `data` at `offset`, each MiB as an operation. Returns how many bytes that are.
    fn write_at(&self, py: Python<'_>, offset: u64, data: Data) -> PyResult<usize> {
        let bytes = data.bytes(py);
        self.0.on(py, |file| Ok(file.write_all_at(offset, bytes)?))?;
        Ok(bytes.len())
    }

    /// Writes all of `data` at the end. Returns the offset behind it.
    fn append(&self, py: Python<'_>, data: Data) -> PyResult<u64> {
        let bytes = data.bytes(py);
        let gate = self.0.gate();
        Ok(self.0.on(py, |file| {
            gate.append(|| {
                let end = file.len()?;
                file.write_all_at(end, bytes)?;
                Ok(end + bytes.len() as u64)
            })
        })?)
    }

    /// The size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.on(py, |file| Ok(file.len()?))?)
    }

    /// Cuts it off, or adds a hole.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        Ok(self.0.on(py, |file| Ok(file.set_len(size)?))?)
    }

    /// What is known of it.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        Ok(self.0.on(py, |file| Ok(Stat::from(&file.metadata()?)))?)
    }

    /// Makes it durable, and everything that was done before, in all files.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.0.on(py, |file| file.sync().map_err(Failure::when_syncing))?)
    }

    /// Closes it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.0.close(py)?)
    }

    /// Whether it is closed, or its volume.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }
}
