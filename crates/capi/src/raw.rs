//! Texts and memory of C programs, and all `unsafe` code of this crate.
//!
//! What a caller promises, as the head of the header says:
//! 1. A text ends with a zero byte, and a list of texts with a null pointer. A pointer to memory
//!    that comes with a length, if it is not null and the length is not zero, leads to so many
//!    bytes that can be read, and written where the function writes.
//! 2. Until the call returns, no other thread writes to any of that, and none reads what the
//!    function writes to. What the function writes to overlaps nothing else that it is given.
//!
//! [`Call`] is the proof that a call from C is going on. Only `border` makes one.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ptr, slice};

use crate::types::{PageRange, View};

/// A call from C, for as long as `'c`. What the caller gave lives so long.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c>(PhantomData<&'c ()>);

/// What is wrong with a pointer or a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A null pointer, where there must be something.
    Null,
    /// More bytes than an object can have, or numbers that are not aligned.
    Memory,
    /// A text that is no UTF-8.
    NoUtf8,
}

impl Call<'_> {
    /// Does `work` as a call from C.
    pub(crate) fn run<R>(work: impl for<'c> FnOnce(Call<'c>) -> R) -> R {
        work(Call(PhantomData))
    }
}

impl<'c> Call<'c> {
    /// The memory that a caller gives to be read.
    pub(crate) fn bytes(self, data: *const c_void, len: usize) -> Result<&'c [u8], Wrong> {
        self.given(data.cast(), len)
    }

    /// The names of versions that a caller gives.
    pub(crate) fn views(self, data: *const View, len: usize) -> Result<&'c [View], Wrong> {
        self.given(data, len)
    }

    /// The ranges of pages that a caller gives.
    pub(crate) fn ranges(
        self,
        data: *const PageRange,
        len: usize,
    ) -> Result<&'c [PageRange], Wrong> {
        self.given(data, len)
    }

    /// `len` values to be read. This is private, because any bits must be a `T`.
    fn given<T>(self, data: *const T, len: usize) -> Result<&'c [T], Wrong> {
        if len == 0 {
            return Ok(&[]);
        }
        check(data, len)?;
        // SAFETY: the pointer is not null and aligned, and the length is one that an object can
        // have. By promise 1 so many values are there, where any bits are one, since `T` is `u8` or
        // a structure of numbers. By promise 2 nobody changes them during `'c`.
        Ok(unsafe { slice::from_raw_parts(data, len) })
    }

    /// The memory that a caller gives to be filled. It is written to only.
    pub(crate) fn buffer(self, data: *mut c_void, len: usize) -> Result<&'c mut [u8], Wrong> {
        self.places(data.cast(), len)
    }

    /// The numbers that a caller gives to be filled. They are written to only.
    pub(crate) fn numbers(self, data: *mut u64, len: usize) -> Result<&'c mut [u64], Wrong> {
        self.places(data, len)
    }

    /// Room for `len` values that a caller gives to be filled.
    pub(crate) fn room<T>(
        self,
        data: *mut T,
        len: usize,
    ) -> Result<&'c mut [MaybeUninit<T>], Wrong> {
        self.places(data.cast::<MaybeUninit<T>>(), len)
    }

    /// A descriptor that a caller has opened, and lets the library read from or write to.
    pub(crate) const fn descriptor(self, number: c_int) -> Descriptor<'c> {
        Descriptor { number, _call: PhantomData }
    }

    /// Places for `len` values. This is private, because any bits must be a `T`.
    fn places<T>(self, data: *mut T, len: usize) -> Result<&'c mut [T], Wrong> {
        if len == 0 {
            return Ok(&mut []);
        }
        check(data.cast_const(), len)?;
        // SAFETY: the pointer is not null and aligned, and the length is one that an object can
        // have. By promise 1 so many values can be read and written there; any bits are one, since
        // `T` is `u8`, `u64` or a `MaybeUninit`. By promise 2 nobody else uses them during `'c`.
        Ok(unsafe { slice::from_raw_parts_mut(data, len) })
    }

    /// A text that need not be UTF-8.
    fn c_str(self, text: *const c_char) -> Result<&'c CStr, Wrong> {
        if text.is_null() {
            return Err(Wrong::Null);
        }
        // SAFETY: the pointer is not null. By promise 1 the text ends with a zero byte, and by
        // promise 2 nobody changes it during `'c`.
        Ok(unsafe { CStr::from_ptr(text) })
    }

    /// A text in UTF-8.
    pub(crate) fn text(self, text: *const c_char) -> Result<&'c str, Wrong> {
        self.c_str(text)?.to_str().map_err(|_| Wrong::NoUtf8)
    }

    /// The paths of a list that ends with a null pointer, or is one.
    pub(crate) fn paths(self, list: *const *const c_char) -> impl Iterator<Item = &'c Path> {
        let mut next = list;
        std::iter::from_fn(move || {
            if next.is_null() {
                return None;
            }
            // SAFETY: the pointer is not null. By promise 1 it leads to pointers of which the last
            // one is null, and what lies behind that one is not read.
            let path = unsafe { *next };
            next = if path.is_null() { ptr::null() } else { next.wrapping_add(1) };
            self.path(path).ok()
        })
    }

    /// A path, of any bytes.
    pub(crate) fn path(self, path: *const c_char) -> Result<&'c Path, Wrong> {
        Ok(Path::new(OsStr::from_bytes(self.c_str(path)?.to_bytes())))
    }
}

/// A descriptor of a caller's. Which one is read from or written to is the caller's to say, as with
/// read(2) and write(2); one that is not open is an error.
pub(crate) struct Descriptor<'c> {
    number: c_int,
    _call: PhantomData<&'c ()>,
}

impl Read for Descriptor<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: there is room for so many bytes, which nobody else uses.
        let count = unsafe { libc::read(self.number, buf.as_mut_ptr().cast(), buf.len()) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

impl Write for Descriptor<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // SAFETY: there are so many bytes, which nobody changes.
        let count = unsafe { libc::write(self.number, buf.as_ptr().cast(), buf.len()) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks what can be checked of a pointer to `len` values.
fn check<T>(data: *const T, len: usize) -> Result<(), Wrong> {
    let size = len.checked_mul(size_of::<T>()).filter(|&size| size <= isize::MAX as usize);
    match size {
        _ if data.is_null() => Err(Wrong::Null),
        Some(size) if data.is_aligned() && (data as usize).checked_add(size).is_some() => Ok(()),
        _ => Err(Wrong::Memory),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn what_can_be_seen_to_be_wrong_is_refused() {
        Call::run(|call| {
            let byte = 7_u8;
            let data = ptr::from_ref(&byte).cast::<c_void>();
            assert_eq!(call.bytes(data, 1), Ok(&[7][..]));
            assert_eq!(call.bytes(ptr::null(), 0), Ok(&[][..]));
            assert_eq!(call.bytes(ptr::null(), 1), Err(Wrong::Null));
            assert_eq!(call.bytes(data, usize::MAX), Err(Wrong::Memory));
            assert_eq!(call.bytes(data, isize::MAX as usize + 1), Err(Wrong::Memory));
            let mut numbers = [0_u64; 2];
            let start = numbers.as_mut_ptr();
            assert_eq!(call.numbers(start.wrapping_byte_add(4), 1), Err(Wrong::Memory));
            assert_eq!(call.numbers(start, usize::MAX / 8 + 2), Err(Wrong::Memory));
            call.numbers(start, 2).unwrap()[1] = 5;
            assert_eq!(numbers, [0, 5]);
        });
    }

    #[test]
    fn a_text_is_utf8_and_a_path_is_any_bytes() {
        Call::run(|call| {
            assert_eq!(call.text(c"text".as_ptr()), Ok("text"));
            assert_eq!(call.text(ptr::null()), Err(Wrong::Null));
            assert_eq!(call.text(c"\xff".as_ptr()), Err(Wrong::NoUtf8));
            let path = call.path(c"\xff".as_ptr()).unwrap();
            assert_eq!(path.as_os_str().as_bytes(), b"\xff");
        });
    }
}
