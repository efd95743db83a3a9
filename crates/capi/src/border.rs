//! What every call goes through. Panics end here, and errors become numbers.

use std::any::Any;
use std::ffi::c_int;
use std::mem::{self, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Result, keep};
use crate::raw::{Call, Wrong};

/// What a function returns.
pub(crate) trait Answer {
    /// A number that is not positive.
    fn of(number: c_int) -> Self;
}

impl Answer for c_int {
    fn of(number: c_int) -> Self {
        number
    }
}

impl Answer for i64 {
    fn of(number: c_int) -> Self {
        number.into()
    }
}

/// Whether a call on a volume has panicked. All handles of a volume share it: what one call left
/// half done can be seen through all of them.
#[derive(Clone, Default)]
pub(crate) struct Health(Arc<AtomicBool>);

impl Health {
    fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Failure::new(
                libc::EIO,
                "a call on this volume failed inside the library; end the program and open the \
                 volume again",
            )),
        }
    }

    /// Does `work`. A panic of it is an error, now and from now on.
    fn watch<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.check()?;
        // What the panic left half done is not used again, because of the check.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.0.store(true, Ordering::Release);
            Err(panicked(&*panic))
        })
    }
}

/// What a C program holds of a volume.
pub(crate) trait Handle {
    /// What it shares with the other handles of the volume.
    fn health(&self) -> &Health;
}

/// The error that a panic is.
fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    Failure::new(libc::EIO, format!("the library has a bug, please report it: {text}"))
}

/// What a function returns for `done`.
fn answer<A: Answer>(done: Result<A>) -> A {
    done.unwrap_or_else(|failure| {
        keep(&failure);
        A::of(-failure.errno)
    })
}

/// A call without a handle.
pub(crate) fn call<A: Answer>(work: impl for<'c> FnOnce(Call<'c>) -> Result<A>) -> A {
    let done = catch_unwind(AssertUnwindSafe(|| Call::run(work)));
    answer(done.unwrap_or_else(|panic| Err(panicked(&*panic))))
}

/// A call on a handle.
pub(crate) fn on<H: Handle, A: Answer>(
    handle: Option<&H>,
    work: impl for<'c> FnOnce(Call<'c>, &'c H) -> Result<A>,
) -> A {
    let handle = handle.ok_or_else(|| Wrong::Null.into());
    answer(handle.and_then(|handle| handle.health().watch(|| Call::run(|call| work(call, handle)))))
}

/// A call that takes a handle back. Without one, nothing happens.
pub(crate) fn close<H: Handle>(
    handle: Option<Box<H>>,
    work: impl FnOnce(Box<H>) -> Result<()>,
) -> c_int {
    let Some(handle) = handle else { return 0 };
    let health = handle.health().clone();
    if let Err(failure) = health.check() {
        // To drop it could write what the panic left half done.
        mem::forget(handle);
        return answer(Err(failure));
    }
    answer(health.watch(|| work(handle)).map(|()| 0))
}

/// The place of a result.
pub(crate) fn place<T>(place: Option<&mut MaybeUninit<T>>) -> Result<&mut MaybeUninit<T>> {
    Ok(place.ok_or(Wrong::Null)?)
}

/// Puts as many of `found` into `places` as there are, and returns how many were found.
pub(crate) fn fill(places: &mut [u64], found: impl ExactSizeIterator<Item = u64>) -> i64 {
    let count = found.len();
    places.iter_mut().zip(found).for_each(|(place, number)| *place = number);
    count as i64
}

/// Puts the handle that `make` makes at `out`, or a null pointer if it fails.
pub(crate) fn hand_out<T>(
    out: Option<&mut MaybeUninit<Option<Box<T>>>>,
    make: impl FnOnce() -> Result<T>,
) -> Result<c_int> {
    let out = place(out)?;
    out.write(None);
    out.write(Some(Box::new(make()?)));
    Ok(0)
}

/// Puts `text` and a zero byte into `buf`, cut off at a whole character if need be. Without room
/// nothing is put there. Returns the length of the whole text.
pub(crate) fn put_text(text: &str, buf: &mut [u8]) -> i64 {
    if let Some(last) = buf.len().checked_sub(1) {
        let kept = text.floor_char_boundary(last);
        buf[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        buf[kept] = 0;
    }
    text.len() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::message;

    struct Thing(Health);

    impl Handle for Thing {
        fn health(&self) -> &Health {
            &self.0
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            assert!(!self.0.0.load(Ordering::Relaxed), "it is not dropped after a panic");
        }
    }

    #[test]
    fn after_a_panic_all_handles_of_the_volume_answer_eio_and_are_not_dropped() {
        let health = Health::default();
        let (thing, other) = (Box::new(Thing(health.clone())), Box::new(Thing(health)));
        assert_eq!(on(Some(&*thing), |_, _| Ok(7)), 7);
        let of_panic: i64 = on(Some(&*thing), |_, _| panic!("on {}", "purpose"));
        assert_eq!(of_panic, -i64::from(libc::EIO));
        let called: c_int = on(Some(&*other), |_, _| panic!("it is not called"));
        assert_eq!(called, -libc::EIO);
        assert_eq!(close(Some(thing), |_| Ok(())), -libc::EIO);
        assert_eq!(close(Some(other), |_| Ok(())), -libc::EIO);
    }

    #[test]
    fn a_panic_without_a_handle_is_eio_with_its_message() {
        let answer: c_int = call(|_| panic!("on purpose"));
        assert_eq!(answer, -libc::EIO);
        assert!(message().ends_with("on purpose"), "{}", message());
    }

    #[test]
    fn a_handle_that_panics_when_it_is_closed_is_eio() {
        let thing = Box::new(Thing(Health::default()));
        assert_eq!(close(Some(thing), |_| panic!("on purpose")), -libc::EIO);
        assert_eq!(close(None::<Box<Thing>>, |_| panic!("it is not called")), 0);
    }

    #[test]
    fn a_text_is_cut_off_at_a_whole_character() {
        let mut buf = [9; 4];
        assert_eq!(put_text("aäö", &mut buf), 5);
        assert_eq!(buf, [b'a', 0xc3, 0xa4, 0]);
        assert_eq!(put_text("aäö", &mut buf[..3]), 5);
        assert_eq!(buf[..2], [b'a', 0]);
        assert_eq!(put_text("a", &mut []), 1);
    }
}
