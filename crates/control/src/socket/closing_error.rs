//! A file beside a daemon's socket that says why the daemon could not write everything before it
//! ended.
//!
//! By then the daemon no longer listens, and no parent process reads its exit code. So it writes
//! the error to a file, for the command that waits for its end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const EXTENSION: &str = "failed";
/// No error is longer.
const MAX_LEN_BYTES: u64 = 4096;

fn path(socket: &Path) -> PathBuf {
    socket.with_extension(EXTENSION)
}

/// Records why the daemon that listened on `socket` could not write everything.
///
/// # Errors
/// When the file cannot be written. The command that waits then sees only that the daemon ended.
pub fn record(socket: &Path, why: &str) -> io::Result<()> {
    let mut options = File::options();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(path(socket))?;
    io::Write::write_all(&mut file, why.as_bytes())
}

/// Reads and removes what the daemon that listened on `socket` has recorded, if anything.
#[must_use]
pub fn take(socket: &Path) -> Option<String> {
    let file = File::open(path(socket)).ok()?;
    let mut why = Vec::new();
    file.take(MAX_LEN_BYTES).read_to_end(&mut why).ok()?;
    fs::remove_file(path(socket)).ok()?;
    Some(String::from_utf8_lossy(&why).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        assert_eq!(take(&socket), None);
        record(&socket, "first").unwrap();
        record(&socket, "no").unwrap();
        assert_eq!(take(&socket).as_deref(), Some("no"));
        assert_eq!(take(&socket), None);
    }
}
