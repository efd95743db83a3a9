//! Iterators over what is read in parts.

use std::collections::VecDeque;

use pyo3::prelude::*;

/// Reads the next part; one without items is the last.
type Read = Box<dyn FnMut(Python<'_>) -> PyResult<Vec<Py<PyAny>>> + Send + Sync>;

/// An iterator over what a version has. It reads ahead: what is changed after it was made may be
/// missing, or not.
#[pyclass(module = "dendrofs")]
pub(crate) struct Items {
    read: Read,
    ahead: VecDeque<Py<PyAny>>,
    has_ended: bool,
}

impl Items {
    pub(crate) fn new(
        read: impl FnMut(Python<'_>) -> PyResult<Vec<Py<PyAny>>> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), ahead: VecDeque::new(), has_ended: false }
    }
}

#[pymethods]
impl Items {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.ahead.is_empty() && !self.has_ended {
            self.ahead = (self.read)(py)?.into();
            self.has_ended = self.ahead.is_empty();
        }
        Ok(self.ahead.pop_front())
    }
}
