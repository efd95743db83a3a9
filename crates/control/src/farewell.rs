//! What a daemon leaves behind that could not write the last of what it was given.
//!
//! By then it listens no more, and has no parent that would hear its exit code. So it leaves a file
//! beside its socket, for whoever waits for its end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const EXTENSION: &str = "failed";
/// No reason is longer.
const MAX_LEN_BYTES: u64 = 4096;

fn path(socket: &Path) -> PathBuf {
    socket.with_extension(EXTENSION)
}

/// Says why the daemon that listened on `socket` could not write everything.
///
/// # Errors
/// When the file cannot be written; somebody may see an end without a reason then.
pub fn leave(socket: &Path, why: &str) -> io::Result<()> {
    let mut options = File::options();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(path(socket))?;
    io::Write::write_all(&mut file, why.as_bytes())
}

/// Takes what the daemon that listened on `socket` has left, if it has.
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
    fn what_is_left_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        assert_eq!(take(&socket), None);
        leave(&socket, "first").unwrap();
        leave(&socket, "no").unwrap();
        assert_eq!(take(&socket).as_deref(), Some("no"));
        assert_eq!(take(&socket), None);
    }
}
