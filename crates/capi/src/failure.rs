//! Errors, and the message and the code of a thread's last one.

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
    /// Of `dendro_error_code()`.
    pub(crate) code: u32,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: message.into(), code: 0 }
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
        let code = error.code().map_or(0, u32::from);
        Self { code, ..Self::new(error.errno(), error.to_string()) }
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
    static LAST: RefCell<(CString, u32)> = RefCell::default();
}

/// Keeps what [`dendro_error_message`] and [`dendro_error_code`] say.
pub(crate) fn keep(failure: &Failure) {
    let bytes: Vec<u8> = failure.message.bytes().filter(|&byte| byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    // A thread that is ending keeps none.
    let _ = LAST.try_with(|last| last.replace((text, failure.code)));
}

/// The message, for tests.
#[cfg(test)]
pub(crate) fn message() -> String {
    LAST.with_borrow(|(text, _)| text.to_string_lossy().into_owned())
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
    LAST.try_with(|last| last.borrow().0.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The kind of what went wrong in the last call of this thread that failed. It says more than the
/// errno: a volume that is open for reading and one that has stopped both answer EROFS. The numbers
/// never change, and later versions of the library may have more.
///
/// Returns: DENDRO_ERROR_NO_SUCH_LIST or another one of these; 0 if the errno says all, and as long
/// as no call has failed.
///
/// Threads: any. Each has its own code.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_error_code() -> u32 {
    LAST.try_with(|last| last.borrow().1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use dendrofs::disk::{Error, Lid, View};

    use super::*;
    use crate::types::*;

    #[test]
    fn each_error_of_a_disk_has_the_code_of_its_name() {
        let text = String::new;
        let all = [
            (DENDRO_ERROR_NO_SUCH_LIST, Error::NoSuchList(Lid(1))),
            (DENDRO_ERROR_LIST_EXISTS, Error::ListExists(Lid(1))),
            (DENDRO_ERROR_RECORD_TOO_LONG, Error::RecordTooLong(0)),
            (DENDRO_ERROR_OUT_OF_RANGE, Error::OutOfRange { first_page: 0, count: 0 }),
            (DENDRO_ERROR_UNIT_TOO_LONG, Error::UnitTooLong),
            (DENDRO_ERROR_NO_SPACE, Error::NoSpace { needed_bytes: 0, available_bytes: 0 }),
            (DENDRO_ERROR_NO_SUCH_VERSION, Error::NoSuchView(View::HEAD)),
            (DENDRO_ERROR_BAD_NAME, Error::BadName(text(), "")),
            (DENDRO_ERROR_NAME_TAKEN, Error::NameTaken(text())),
            (DENDRO_ERROR_IN_USE, Error::InUse(View::HEAD, "")),
            (DENDRO_ERROR_OTHER_CLIENT, Error::OtherClient(View::HEAD)),
            (DENDRO_ERROR_READ_ONLY, Error::ReadOnly(text())),
            (DENDRO_ERROR_STOPPED, Error::Failed(text())),
            (DENDRO_ERROR_DAMAGED, Error::Corrupted(text())),
            (DENDRO_ERROR_LOST, Error::Lost(text())),
            (DENDRO_ERROR_IO, Error::Io(text())),
            (DENDRO_ERROR_CONDITION, Error::ConditionFailed(Lid(1))),
            (DENDRO_ERROR_ONE_COPY, Error::OneCopy),
            (DENDRO_ERROR_OVER_QUOTA, Error::OverQuota { needed_bytes: 0, available_bytes: 0 }),
        ];
        for (code, error) in all {
            assert_eq!(Failure::from(error).code, code);
        }
    }
}
