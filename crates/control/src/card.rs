//! What a daemon has said last about itself, in a file beside its socket.
//!
//! Who does not answer cannot be asked which volume it has. Its card tells, so that nobody waits for
//! it who means another volume, and who means its own hears whose fault it is. It may be older than
//! what is so now; what a daemon answers counts more.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::protocol::{MAX_REPLY_LEN_BYTES, Pong};

const EXTENSION: &str = "card";

pub(crate) fn path(socket: &Path) -> PathBuf {
    socket.with_extension(EXTENSION)
}

/// Leaves `pong` beside `socket`. Where that fails there is no card: none is better than a wrong one.
///
/// # Errors
/// When the file cannot be written.
pub fn leave(socket: &Path, pong: &Pong) -> io::Result<()> {
    let fresh = socket.with_extension("card-new");
    let written = write(&fresh, pong).and_then(|()| fs::rename(&fresh, path(socket)));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
        take_away(socket);
    }
    written
}

fn write(path: &Path, pong: &Pong) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&serde_json::to_vec(pong)?)
}

/// What the daemon that listens on `socket` has said last, if it has.
pub(crate) fn read(socket: &Path) -> Option<Pong> {
    let mut bytes = Vec::new();
    let file = File::open(path(socket)).ok()?;
    file.take(MAX_REPLY_LEN_BYTES as u64).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Removes the card beside `socket`, if there is one.
pub(crate) fn take_away(socket: &Path) {
    let _ = fs::remove_file(path(socket));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_says_what_was_said_last() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        assert_eq!(read(&socket), None);
        for pid in [1, 2] {
            let pong = Pong { pid, ..Pong::default() };
            leave(&socket, &pong).unwrap();
            assert_eq!(read(&socket), Some(pong));
        }
        take_away(&socket);
        assert_eq!(read(&socket), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(leave(&directory.path().join("none/a.sock"), &Pong::default()).is_err());
    }
}
