//! Asking all daemons at once who they are, and telling those that do not answer from those that are
//! not there.
//!
//! One that hangs, or was stopped, must not keep those from being found that answer, and whoever
//! looks for its volume must hear of it. What it had before it fell silent stands on its
//! [`card`].

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::client::Client;
use crate::protocol::{Command, Pong, Request};
use crate::wait::now;
use crate::{card, server};

/// How long a daemon may take to say who it is; it answers this without waiting for anything.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// So many are asked at a time: each takes a descriptor.
const MOST_AT_A_TIME: usize = 512;

/// A daemon that runs and does not say who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// Its process.
    pub pid: u32,
}

impl fmt::Display for Mute {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid;
        write!(
            formatter,
            "the daemon, process {pid}, does not answer; if it was stopped, `kill -CONT {pid}` lets \
             it go on"
        )
    }
}

/// What came of looking for a daemon.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is this one, and says so.
    Daemon(Box<(Client, Pong)>),
    /// It is this one, by what it said before it fell silent.
    Mute(Mute),
    /// None that this process can talk to.
    Nobody,
}

/// Looks among those that listen on `sockets` for the daemon that `is_it`; `may_be` says of what a
/// daemon said earlier whether it may be the one, so that others are not waited for.
pub(crate) fn find(
    sockets: Vec<PathBuf>,
    is_it: impl Fn(&Pong) -> bool,
    may_be: impl Fn(&Pong) -> bool,
) -> Found {
    let mut mute = None;
    for some in sockets.chunks(MOST_AT_A_TIME) {
        let mut asked = Asked::new(some, &may_be);
        while let Some((client, pong)) = asked.next_answer() {
            if is_it(&pong) {
                return Found::Daemon(Box::new((client, pong)));
            }
        }
        mute = mute.or_else(|| asked.mute());
    }
    mute.map_or(Found::Nobody, Found::Mute)
}

/// One that was asked.
struct Awaited {
    client: Client,
    /// Nothing where so many have asked before that it takes no more.
    stream: Option<UnixStream>,
    /// Whether the one that is looked for may be this one.
    matters: bool,
    /// Its process, if it is likely the one that is looked for.
    suspect: Option<u32>,
}

/// Those who were asked together.
struct Asked {
    awaited: Vec<Awaited>,
    deadline: Instant,
}

impl Asked {
    fn new(sockets: &[PathBuf], may_be: impl Fn(&Pong) -> bool) -> Self {
        let ask = |path: &PathBuf| {
            let client = Client::new(path);
            let stream = match ask(path) {
                Ok(stream) => Some(stream),
                Err(error) if is_overrun(&error) => None,
                // Nobody listens there any more.
                Err(_) => return None,
            };
            let card = card::read(path);
            let suspect = card.as_ref().filter(|card| may_be(card)).map(|card| card.pid);
            // One without a card may be any. It is waited for, but not accused.
            let matters = suspect.is_some() || card.is_none() && stream.is_some();
            Some(Awaited { client, stream, matters, suspect })
        };
        let awaited = sockets.iter().filter_map(ask).collect();
        Self { awaited, deadline: now() + PING_TIMEOUT }
    }

    /// The next answer; nothing when nobody is left who matters, or time is over.
    fn next_answer(&mut self) -> Option<(Client, Pong)> {
        loop {
            let waits = self.awaited.iter().any(|of| of.matters && of.stream.is_some());
            let left = self.deadline.saturating_duration_since(now());
            let timeout = Timespec::try_from(if waits { left } else { Duration::ZERO }).ok()?;
            let streams = self.awaited.iter().enumerate();
            let (numbers, mut polled): (Vec<_>, Vec<_>) = streams
                .filter_map(|(number, of)| Some((number, of.stream.as_ref()?)))
                // Hanging up counts as an answer.
                .map(|(number, stream)| (number, PollFd::new(stream, PollFlags::IN)))
                .unzip();
            match poll(&mut polled, Some(&timeout)) {
                Ok(1..) => {}
                Err(Errno::INTR) => continue,
                _ => return None,
            }
            let at = polled.iter().position(|polled| !polled.revents().is_empty())?;
            let Awaited { client, stream, .. } = self.awaited.swap_remove(numbers[at]);
            let left = left.max(Duration::from_millis(1));
            if let Ok(pong) = client.hear_pong(&stream?, left) {
                return Some((client, pong));
            }
        }
    }

    /// One that has not answered and is likely the one that was looked for.
    fn mute(&self) -> Option<Mute> {
        self.awaited.iter().find_map(|of| of.suspect).map(|pid| Mute { pid })
    }
}

/// Asks, and does not wait.
fn ask(socket: &Path) -> io::Result<UnixStream> {
    let stream = connect_at_once(socket)?;
    server::send(&stream, &Request::new(Command::Ping), None)?;
    Ok(stream)
}

/// Whether so many have asked the daemon, without an answer, that it cannot be asked.
pub(crate) fn is_overrun(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Connects without waiting: where a daemon hangs, many may have asked before, see [`is_overrun`].
pub(crate) fn connect_at_once(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&descriptor, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Waits for at most `timeout` until there is something to read; whether there is.
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

#[cfg(test)]
mod tests;
