//! Connecting without waiting, and waiting until there is something to read.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::deadline::now;

/// Whether the daemon has so many connections that it has not accepted that the kernel refuses one
/// more.
pub(crate) fn is_overrun(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Connects without waiting. A daemon that hangs accepts no connections, so waiting for it might
/// not end: see [`is_overrun`].
pub(crate) fn connect_at_once(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&descriptor, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Waits for at most `timeout` until there is something to read, and returns whether there is.
pub(crate) fn is_readable(stream: &UnixStream, timeout: Duration) -> io::Result<bool> {
    let deadline = now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
