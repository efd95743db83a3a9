//! Bytes of Python objects.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::failure::Failure;

/// The bytes of an object that has a buffer: a `bytes` object itself, which nobody changes, or a
/// copy of others as they were when the call was made.
pub(crate) struct Data(Py<PyBytes>);

impl Data {
    /// The bytes.
    pub(crate) fn bytes(&self, py: Python<'_>) -> &[u8] {
        self.0.as_bytes(py)
    }
}

impl<'py> FromPyObject<'_, 'py> for Data {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self(bytes.to_owned().unbind()));
        }
        // It has the bytes in the order in which an array has its elements.
        let copy = PyMemoryView::from(&object)?.call_method0("tobytes")?;
        Ok(Self(copy.cast_into::<PyBytes>()?.unbind()))
    }
}

/// A buffer that can be written.
pub(crate) struct Target<'py> {
    view: Bound<'py, PyAny>,
    len_bytes: usize,
}

impl<'py> FromPyObject<'_, 'py> for Target<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(&object)?.into_any();
        if view.getattr("readonly")?.is_truthy()? {
            return Err(PyTypeError::new_err("the buffer cannot be written"));
        }
        if !view.getattr("c_contiguous")?.is_truthy()? {
            return Err(PyTypeError::new_err("the buffer has gaps"));
        }
        let view = view.call_method1("cast", ("B",))?;
        let len_bytes = view.len()?;
        Ok(Self { view, len_bytes })
    }
}

impl Target<'_> {
    pub(crate) const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Puts `bytes` at its beginning, of which there are no more than it has.
    pub(crate) fn fill(&self, bytes: Bound<'_, PyBytes>) -> PyResult<()> {
        let py = self.view.py();
        let part = pyo3::types::PySlice::new(py, 0, bytes.as_bytes().len() as isize, 1);
        self.view.set_item(part, bytes)
    }
}

/// A `bytes` object of `len` bytes that `read` fills, which returns how many it has filled. `read`
/// gives Python's global lock back while it waits: nobody else has the object yet.
pub(crate) fn read_bytes<'py>(
    py: Python<'py>,
    len: usize,
    read: impl FnOnce(&mut [u8]) -> Result<usize, Failure>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut count = 0;
    let bytes = PyBytes::new_with(py, len, |buf| {
        count = read(buf)?;
        Ok(())
    })?;
    match bytes.as_bytes().get(..count) {
        Some(filled) if count < len => Ok(PyBytes::new(py, filled)),
        _ => Ok(bytes),
    }
}
