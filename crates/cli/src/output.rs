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

/// Columns when standard output is no terminal, and at least and at most.
const DEFAULT_WIDTH: usize = 80;
const LEAST_WIDTH: usize = 40;
const WIDEST: usize = 160;

/// Columns of the terminal, or what does for a file.
pub(crate) fn width() -> usize {
    let columns = match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => DEFAULT_WIDTH,
    };
    columns.clamp(LEAST_WIDTH, WIDEST)
}
