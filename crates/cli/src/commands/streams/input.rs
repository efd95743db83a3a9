//! The files that streams are read from.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use super::pipe::widen;
use crate::failure::{Failure, usage};

/// The stream in `file`.
pub(super) fn open_input(file: &Path) -> Result<Box<dyn Read>, Failure> {
    if file != Path::new("-") {
        let opened = File::open(file);
        return match opened {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(Failure::new(format_args!("{}: {error}", file.display()))),
        };
    }
    if io::stdin().is_terminal() {
        return Err(usage("standard input is a terminal: name a file, or use a pipe"));
    }
    widen(io::stdin());
    Ok(Box::new(io::stdin().lock()))
}
