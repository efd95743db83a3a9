//! Why a command ends without success.

use std::fmt::Display;

/// Exit codes, as e2fsprogs and mount(8) have them.
pub(crate) mod code {
    /// The command could not be carried out.
    pub(crate) const FAILED: u8 = 1;
    /// The command makes no sense. mount(8) has 1 for it.
    pub(crate) const USAGE: u8 = 2;
    /// `dendro try`: the command was not run, or what it did not taken over; as of timeout(1) and the
    /// like, so that it is not taken for the command's own.
    pub(crate) const TRY_FAILED: u8 = 125;
    /// fsck(8): something is wrong and was not mended.
    pub(crate) const CHECK_LEFT: u8 = 4;
    /// fsck(8): it could not be checked.
    pub(crate) const CHECK_FAILED: u8 = 8;
    /// fsck(8): the command makes no sense.
    pub(crate) const CHECK_USAGE: u8 = 16;
    /// mount(8): mount or unmount failed.
    pub(crate) const MOUNT_FAILED: u8 = 32;
    /// mount(8): incorrect invocation or permissions.
    pub(crate) const MOUNT_USAGE: u8 = 1;
}

/// What goes to standard error, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// A failure with exit code 1. The message names the thing, says why, and what to do.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { message: without_numbers(&message.to_string()), code: code::FAILED }
    }

    /// The same with another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// The message without what Rust puts behind a system's error, which says no more than the words.
fn without_numbers(message: &str) -> String {
    const START: &str = " (os error ";
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(START) {
        let (before, behind) = rest.split_at(at);
        text += before;
        let number = &behind[START.len()..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        rest = match number[digits..].strip_prefix(')').filter(|_| digits > 0) {
            Some(rest) => rest,
            None => {
                text += START;
                number
            }
        };
    }
    text + rest
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let error = std::io::Error::from_raw_os_error(2);
        let message = Failure::new(format_args!("a: {error}; b: {error}")).message;
        assert_eq!(message, "a: No such file or directory; b: No such file or directory");
        for other in ["a (os error x)", "(os error 2)", "a (os error ", "a (os error 2"] {
            assert_eq!(Failure::new(other).message, other);
        }
    }
}
