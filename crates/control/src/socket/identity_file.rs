//! A file beside a daemon's socket that holds its last answer to [`Ping`](crate::Command::Ping).
//!
//! A daemon that hangs cannot be asked which volume it serves. The file says so: a command for
//! another volume need not wait for it, and one for its volume can report the daemon's process. The
//! file may be out of date; an answer of the daemon itself takes precedence.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::messages::{MAX_REPLY_LEN_BYTES, Pong};

const EXTENSION: &str = "card";

fn path(socket: &Path) -> PathBuf {
    socket.with_extension(EXTENSION)
}

/// Writes `pong` to the file beside `socket`.
///
/// # Errors
/// When the file cannot be written. It is removed then: no file is better than a wrong one.
pub fn write(socket: &Path, pong: &Pong) -> io::Result<()> {
    let fresh = socket.with_extension("card-new");
    let written = write_file(&fresh, pong).and_then(|()| fs::rename(&fresh, path(socket)));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
        remove(socket);
    }
    written
}

fn write_file(path: &Path, pong: &Pong) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&serde_json::to_vec(pong)?)
}

/// The last answer of the daemon that listens on `socket`, if there is one.
pub(crate) fn read(socket: &Path) -> Option<Pong> {
    let mut bytes = Vec::new();
    let file = File::open(path(socket)).ok()?;
    file.take(MAX_REPLY_LEN_BYTES as u64).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Removes the file beside `socket`, if there is one.
pub(crate) fn remove(socket: &Path) {
    let _ = fs::remove_file(path(socket));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_last_answer() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        assert_eq!(read(&socket), None);
        for pid in [1, 2] {
            let pong = Pong { pid, ..Pong::default() };
            write(&socket, &pong).unwrap();
            assert_eq!(read(&socket), Some(pong));
        }
        remove(&socket);
        assert_eq!(read(&socket), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(write(&directory.path().join("none/a.sock"), &Pong::default()).is_err());
    }
}
