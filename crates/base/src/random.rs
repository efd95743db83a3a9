//! Random bytes of the operating system.

use std::fs::File;
use std::io::{self, Read};

/// Random bytes that nobody can guess.
///
/// # Errors
/// `/dev/urandom` cannot be read; the message names it.
pub fn random_bytes() -> io::Result<[u8; 16]> {
    const SOURCE: &str = "/dev/urandom";
    let mut bytes = [0; 16];
    File::open(SOURCE)
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| io::Error::new(error.kind(), format!("{SOURCE}: {error}")))?;
    Ok(bytes)
}
