//! Errors, and the exceptions that they become.

use std::path::{Path, PathBuf};

use dendrofs::{Error, disk};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The result of what a call does.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a call fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A `DendroError`.
    Os {
        /// Positive.
        errno: i32,
        message: String,
        path: Option<PathBuf>,
        /// Of an error of the disk.
        code: Option<u16>,
    },
    /// A `ValueError`: a wrong argument, or something that is closed.
    Value(String),
    /// What an object of the program has raised.
    Raised(PyErr),
}

impl Failure {
    pub(crate) fn os(errno: i32, message: impl Into<String>) -> Self {
        Self::Os { errno, message: message.into(), path: None, code: None }
    }

    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::Value(message.into())
    }

    /// The error of a call with a path.
    pub(crate) fn at(self, path: &Path) -> Self {
        match self {
            Self::Os { errno, message, code, .. } => {
                let message = without_path(&message, path);
                Self::Os { errno, message, path: Some(path.to_owned()), code }
            }
            other => other,
        }
    }

    /// The error of a call that makes something durable. A volume that takes no more changes has
    /// lost what it was to make durable.
    pub(crate) fn when_syncing(error: Error) -> Self {
        let lost = matches!(error, Error::Disk(disk::Error::Failed(_)));
        match Self::from(error) {
            Self::Os { message, path, code, .. } if lost => {
                Self::Os { errno: libc::EIO, message, path, code }
            }
            other => other,
        }
    }
}

/// The message without the path that it begins with: an `OSError` shows that by itself, as it does
/// the errno.
fn without_path(message: &str, path: &Path) -> String {
    let Some(rest) = message.strip_prefix(&*path.to_string_lossy()) else {
        return message.to_owned();
    };
    match rest.strip_prefix(": ") {
        Some(why) => why.split(" (os error ").next().unwrap_or(why).to_owned(),
        None if rest.starts_with(" is ") => format!("it{rest}"),
        None => message.to_owned(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (errno, code) = (error.errno(), error.code());
        Self::Os { errno, message: error.to_string(), path: None, code }
    }
}

impl From<disk::Error> for Failure {
    fn from(error: disk::Error) -> Self {
        Error::Disk(error).into()
    }
}

/// Names the path of a call in its error.
pub(crate) trait At<T> {
    /// The same with the path.
    fn at(self, path: &Path) -> Result<T>;
}

impl<T, E: Into<Failure>> At<T> for std::result::Result<T, E> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|error| error.into().at(path))
    }
}

static EXCEPTION: PyOnceLock<Py<PyType>> = PyOnceLock::new();

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let (errno, message, path, code) = match failure {
            Failure::Raised(error) => return error,
            Failure::Value(message) => return PyValueError::new_err(message),
            Failure::Os { errno, message, path, code } => {
                // As `str`: what `OSError` usually has.
                (errno, message, path.map(PathBuf::into_os_string), code)
            }
        };
        Python::attach(|py| {
            let made = EXCEPTION
                .import(py, "dendrofs.errors", "DendroError")
                .and_then(|class| class.call_method1("_of", (errno, message, path, code)));
            made.map_or_else(|error| error, PyErr::from_value)
        })
    }
}
