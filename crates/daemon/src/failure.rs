//! Failures, with a message for users.

use std::fmt::Display;

/// The exit code of a command that could not be carried out.
const FAILED: u8 = 1;

/// Why something was not done, and the exit code of a command that fails with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Names the object, says why, and what to do.
    pub message: String,
    /// The exit code of a command that ends with it.
    pub code: u8,
}

impl Failure {
    /// A failure with exit code 1. The message names the object, says why, and what to do.
    pub fn new(message: impl Display) -> Self {
        Self { message: without_numbers(&message.to_string()), code: FAILED }
    }

    /// The same with another exit code.
    pub fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// The message without the number that Rust adds to an error of the system; the words say the same.
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
