//! Streams that are objects of Python.
//!
//! Their functions are called while a call on a volume goes on, so they must not use that volume.

use std::io::{self, Read, Write};

use dendrofs::Error;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::failure::{Failure, Result};

/// The most bytes that one call of an object is given or asked for.
const MAX_CALL_BYTES: usize = 1 << 20;

/// An object that has `read` or `write`, as binary files have.
pub(crate) struct Stream {
    object: Py<PyAny>,
    /// What a function of the object has raised. It is not called again.
    raised: Option<PyErr>,
}

impl Stream {
    pub(crate) const fn new(object: Py<PyAny>) -> Self {
        Self { object, raised: None }
    }

    /// What a call with this stream has done. What the object has raised goes before the error that
    /// has come of it.
    pub(crate) fn ended<T>(self, done: std::result::Result<T, Error>) -> Result<T> {
        match self.raised {
            Some(raised) => Err(Failure::Raised(raised)),
            None => Ok(done?),
        }
    }

    fn call<T>(
        &mut self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Option<T>>,
    ) -> io::Result<T> {
        if self.raised.is_some() {
            return Err(io::ErrorKind::Other.into());
        }
        let done = Python::attach(|py| {
            py.check_signals()?;
            work(self.object.bind(py))
        });
        match done {
            Ok(Some(done)) => Ok(done),
            // Python's raw streams answer so.
            Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
            Err(raised) => {
                self.raised = Some(raised);
                Err(io::ErrorKind::Other.into())
            }
        }
    }
}

impl Write for &mut Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let buf = &buf[..buf.len().min(MAX_CALL_BYTES)];
        let written: usize = self.call(|object| {
            let bytes = PyBytes::new(object.py(), buf);
            object.call_method1("write", (bytes,))?.extract()
        })?;
        if written > buf.len() {
            return Err(io::Error::other("the stream has written more than it was given"));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &mut Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(MAX_CALL_BYTES);
        let bytes: PyBackedBytes = self.call(|object| {
            let read = object.call_method1("read", (len,))?;
            if read.is_none() {
                return Ok(None);
            }
            Ok(Some(read.extract::<PyBackedBytes>()?))
        })?;
        let room = buf.get_mut(..bytes.len());
        let room =
            room.ok_or_else(|| io::Error::other("the stream has more than was asked for"))?;
        room.copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}
