//! Waiting for durability without a thread that waits.

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dendrofs::disk::{self, CommitSeq};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::failure::{Failure, Result};
use crate::gate::Gate;

/// That commits are durable, or that they are not yet: Volume.when_durable().
///
/// It has a file descriptor that can be read from when it is known, for select(), poll() and event
/// loops. `await` waits in one of asyncio, in any number of tasks.
#[pyclass(module = "dendrofs", frozen)]
pub(crate) struct Durability {
    shared: Arc<Shared>,
}

struct Shared {
    /// Open for as long as something may be written to it, so that nobody gets a SIGPIPE.
    reader: PipeReader,
    outcome: Mutex<Option<disk::Result<()>>>,
}

impl Shared {
    /// Notes the outcome, and wakes whoever waits. It does not wait: the pipe is empty.
    fn settle(&self, outcome: disk::Result<()>, mut writer: PipeWriter) {
        *self.outcome.lock() = Some(outcome);
        // There is a reader.
        let _ = writer.write_all(&[1]);
    }
}

impl Durability {
    /// What is known. The lock is not held while Python is asked for anything.
    fn outcome(&self) -> Option<disk::Result<()>> {
        self.shared.outcome.lock().clone()
    }

    /// That all commits up to `up_to` are durable.
    pub(crate) fn of(gate: &Gate, py: Python<'_>, up_to: CommitSeq) -> Result<Self> {
        let (reader, writer) = pipe().map_err(dendrofs::Error::System)?;
        let shared = Arc::new(Shared { reader, outcome: Mutex::default() });
        let settled = Arc::clone(&shared);
        gate.on(py, |volume| {
            let then = move |outcome| settled.settle(outcome, writer);
            volume.disk().when_durable(up_to, Box::new(then));
            Ok(())
        })?;
        Ok(Self { shared })
    }
}

#[pymethods]
impl Durability {
    /// The number of the file descriptor, which can be read from when it is known. Do not read from
    /// it, nor close it: it is closed with this object.
    fn fileno(&self) -> i32 {
        self.shared.reader.as_raw_fd()
    }

    /// Whether it is known.
    fn done(&self) -> bool {
        self.outcome().is_some()
    }

    /// Returns if the commits are durable, and raises the error if they cannot become so. Raises
    /// DendroError with EAGAIN as long as that is not known.
    fn result(&self) -> PyResult<()> {
        match self.outcome() {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(Failure::when_syncing(error.into()).into()),
            None => Err(Failure::os(libc::EAGAIN, "it is not known yet").into()),
        }
    }

    /// Waits in an event loop of asyncio, and returns or raises what result() does.
    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("dendrofs._aio")?;
        aio.getattr("wait")?.call1((slf,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let what = match self.outcome() {
            None => "not known yet".to_owned(),
            Some(Ok(())) => "durable".to_owned(),
            Some(Err(error)) => error.to_string(),
        };
        format!("<Durability: {what}>")
    }
}
