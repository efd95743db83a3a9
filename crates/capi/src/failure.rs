//! Errors, and the message of a thread's last one.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use dendrofs::{Error, disk};

use crate::raw::Wrong;

/// The result of what a call does.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Positive.
    pub(crate) errno: c_int,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// A wrong argument.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
    }

    /// The error of a call that makes something durable. A volume that takes no more changes has
    /// lost what it was to make durable.
    pub(crate) fn when_syncing(error: Error) -> Self {
        let lost = matches!(error, Error::Disk(disk::Error::Failed(_)));
        let failure = Self::from(error);
        if lost { Self { errno: libc::EIO, ..failure } } else { failure }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<disk::Error> for Failure {
    fn from(error: disk::Error) -> Self {
        Error::Disk(error).into()
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        Self::invalid(match wrong {
            Wrong::Null => "a pointer is null that must not be",
            Wrong::Memory => "memory of that address and length cannot be",
            Wrong::NoUtf8 => "a text is not UTF-8",
        })
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Keeps a message for [`dendro_error_message`].
pub(crate) fn keep_message(message: &str) {
    let bytes: Vec<u8> = message.bytes().filter(|&byte| byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    // A thread that is ending keeps none.
    let _ = MESSAGE.try_with(|kept| kept.replace(text));
}

/// The message, for tests.
#[cfg(test)]
pub(crate) fn message() -> String {
    MESSAGE.with_borrow(|kept| kept.to_string_lossy().into_owned())
}

/// What went wrong in the last call of this thread that failed, for people: in English, without an
/// end of line, in UTF-8. It is an empty text as long as none has failed.
///
/// Returns: a text of the library, never NULL. It is valid until the next call of this thread that
/// fails, and until the thread ends.
///
/// Threads: any. Each has its own message.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_error_message() -> *const c_char {
    MESSAGE.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
