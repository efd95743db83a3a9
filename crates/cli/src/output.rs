//! Standard output, and standard error.

use std::fmt::Display;
use std::io::{self, Write};

use crate::failure::Failure;

/// Writes `text` to standard output. A reader that has gone, as `head` does, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says `message` on standard error. Where nobody hears it, that is no reason to do otherwise, still
/// less to end a mount: `eprintln!` panics.
pub(crate) fn tell(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Lines of names and values, the values below each other.
pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    rows.iter().map(|(name, value)| format!("  {name:width$}{value}\n")).collect()
}
