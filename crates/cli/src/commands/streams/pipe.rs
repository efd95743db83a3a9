//! Pipes that streams go through.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Bytes that a pipe may hold without a privilege, unless the administrator has allowed less.
const PIPE_BYTES: usize = 1 << 20;

/// Has a pipe hold more than the 64 KiB that it holds at first: whenever it is full or empty, one
/// end waits until it is woken. Nothing happens to what is no pipe, or may not become larger.
pub(crate) fn widen(end: impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(end, PIPE_BYTES);
}

/// Standard output, without the buffer for lines of text.
pub(super) fn stdout() -> io::Result<File> {
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    widen(&out);
    Ok(out)
}
