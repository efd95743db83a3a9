//! Looking for the daemon of a volume: all daemons are pinged at once.
//!
//! A daemon that hangs or was stopped must not delay the answer of another one. If it is the one
//! that is looked for, that must be reported: what it answered before it stopped answering is in
//! its [`identity_file`].

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error::Unresponsive;
use super::exchange::{Client, PING_TIMEOUT, connect_and_send};
use crate::messages::{Command, Pong, Request};
use crate::socket::{self, identity_file, now};

/// How many daemons are pinged at a time: each takes a descriptor.
const MAX_PINGED: usize = 512;

/// What a search for a daemon came to.
#[derive(Clone, Debug)]
pub enum FindOutcome {
    /// The daemon, and its answer.
    Daemon(Box<(Client, Pong)>),
    /// The daemon does not answer. That it is the one follows from its identity file.
    Unresponsive(Unresponsive),
    /// There is none that this process can talk to.
    Nobody,
}

impl Client {
    /// Looks for the daemon for whose answer `is_it` is true, among all daemons that this process
    /// may talk to. The requests of the client that is found are meant for that daemon alone.
    ///
    /// `may_be` is asked about the identity file of a daemon that has not answered yet: only those
    /// for which it is true are waited for, and reported as [`FindOutcome::Unresponsive`].
    pub fn find(is_it: impl Fn(&Pong) -> bool, may_be: impl Fn(&Pong) -> bool) -> FindOutcome {
        let directories = socket::directories().into_iter();
        let sockets = directories.flat_map(|directory| socket::in_directory(&directory));
        find_among(sockets.collect(), is_it, may_be)
    }
}

/// [`Client::find`] among the daemons that listen on `sockets`.
fn find_among(
    sockets: Vec<PathBuf>,
    is_it: impl Fn(&Pong) -> bool,
    may_be: impl Fn(&Pong) -> bool,
) -> FindOutcome {
    let mut unresponsive = None;
    for some in sockets.chunks(MAX_PINGED) {
        let mut pinged = Pinged::new(some, &may_be);
        while let Some((client, pong)) = pinged.next_answer() {
            if is_it(&pong) {
                return FindOutcome::Daemon(Box::new((client.meaning(&pong), pong)));
            }
        }
        unresponsive = unresponsive.or_else(|| pinged.unresponsive());
    }
    unresponsive.map_or(FindOutcome::Nobody, FindOutcome::Unresponsive)
}

/// A daemon that was pinged and has not answered yet.
struct Awaited {
    client: Client,
    /// The connection; `None` if the daemon has too many clients to accept one more.
    stream: Option<UnixStream>,
    /// Whether it may be the daemon that is looked for.
    matters: bool,
    /// Its process, if its identity file says that it may be the one.
    suspect: Option<u32>,
}

/// Daemons that were pinged together.
struct Pinged {
    awaited: Vec<Awaited>,
    deadline: Instant,
}

impl Pinged {
    fn new(sockets: &[PathBuf], may_be: impl Fn(&Pong) -> bool) -> Self {
        let ping = |path: &PathBuf| {
            let stream = match connect_and_send(path, &Request::new(Command::Ping), None) {
                Ok(stream) => Some(stream),
                Err(error) if socket::is_overrun(&error) => None,
                // No process listens there any more.
                Err(_) => return None,
            };
            let identity = identity_file::read(path);
            let suspect = identity.as_ref().filter(|pong| may_be(pong)).map(|pong| pong.pid);
            // A daemon without an identity file may be the one. It is waited for, but not reported.
            let matters = suspect.is_some() || identity.is_none() && stream.is_some();
            Some(Awaited { client: Client::new(path), stream, matters, suspect })
        };
        let awaited = sockets.iter().filter_map(ping).collect();
        Self { awaited, deadline: now() + PING_TIMEOUT }
    }

    /// The next answer; `None` when no daemon that matters is left, or time is over.
    fn next_answer(&mut self) -> Option<(Client, Pong)> {
        loop {
            let waits = self.awaited.iter().any(|of| of.matters && of.stream.is_some());
            let left = self.deadline.saturating_duration_since(now());
            let timeout = Timespec::try_from(if waits { left } else { Duration::ZERO }).ok()?;
            let streams = self.awaited.iter().enumerate();
            let (numbers, mut polled): (Vec<_>, Vec<_>) = streams
                .filter_map(|(number, of)| Some((number, of.stream.as_ref()?)))
                // A connection that was closed is reported as readable too.
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
            if let Ok(pong) = client.receive_pong(&stream?, left) {
                return Some((client, pong));
            }
        }
    }

    /// A daemon that has not answered and may be the one that is looked for.
    fn unresponsive(&self) -> Option<Unresponsive> {
        self.awaited.iter().find_map(|of| of.suspect).map(|pid| Unresponsive { pid })
    }
}

#[cfg(test)]
mod tests;
