//! Messages as bytes: lines, with which a file descriptor may be passed.

use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::deadline::Deadline;
use super::fd_passing;

/// How long the other end may take to receive a whole message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a line, and the descriptor that came with it, if one did. The line is returned without its
/// newline. It must be complete within `timeout`, and with its newline at most `max_len_bytes`
/// long.
pub(crate) fn read_line(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    read_until(stream, max_len_bytes, timeout, newline)
}

/// The first newline at or after `from`.
pub(crate) fn newline(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].iter().position(|&byte| byte == b'\n').map(|at| from + at)
}

/// Reads a message as [`read_line`] does, whose end is where `ends` says. That is called with all
/// bytes so far, and the number of those that it has been called with before.
pub(crate) fn read_until(
    stream: &UnixStream,
    max_len_bytes: usize,
    timeout: Option<Duration>,
    ends: impl Fn(&[u8], usize) -> Option<usize>,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let deadline = timeout.map(Deadline::after);
    let mut bytes = Vec::new();
    let mut descriptor = None;
    let mut chunk = [0; 4096];
    loop {
        if let Some(deadline) = deadline {
            stream.set_read_timeout(Some(deadline.left("it takes too long")?))?;
        }
        let count = match fd_passing::receive(stream, &mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => {
                let (count, received) = other?;
                descriptor = descriptor.or(received);
                count
            }
        };
        let seen = bytes.len();
        bytes.extend_from_slice(&chunk[..count]);
        let end = ends(&bytes, seen);
        if end.unwrap_or(bytes.len()) >= max_len_bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is longer than {max_len_bytes} bytes"),
            ));
        }
        match end {
            Some(end) => {
                bytes.truncate(end);
                return Ok((bytes, descriptor));
            }
            None if count == 0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it ends before its newline",
                ));
            }
            None => {}
        }
    }
}

/// Writes `value` as a line of at most `max_len_bytes`.
pub(crate) fn write_line<T: serde::Serialize>(
    stream: &UnixStream,
    value: &T,
    max_len_bytes: usize,
) -> io::Result<()> {
    write_all(stream, &line_of(value, max_len_bytes)?)
}

/// `value` as a line, with its newline, of at most `max_len_bytes`.
pub(crate) fn line_of<T: serde::Serialize>(value: &T, max_len_bytes: usize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() > max_len_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than the protocol allows"));
    }
    Ok(line)
}

/// Writes all of `bytes`, within [`WRITE_TIMEOUT`].
pub(crate) fn write_all(stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let deadline = Deadline::after(WRITE_TIMEOUT);
    let (mut stream, mut rest) = (stream, bytes);
    while !rest.is_empty() {
        stream.set_write_timeout(Some(deadline.left("nobody takes the rest")?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a line, and passes `descriptor` with its first bytes.
pub(crate) fn send_line(
    stream: &UnixStream,
    line: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let sent = match descriptor {
        Some(descriptor) => fd_passing::send(stream, line, descriptor)?,
        None => 0,
    };
    write_all(stream, &line[sent..])
}
