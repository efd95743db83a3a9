//! Asking all daemons at once who they are.
//!
//! One that hangs, or was stopped, must not keep those from being found that answer.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::client::Client;
use crate::protocol::{Command, Pong};
use crate::server;
use crate::wait::now;

/// How long a daemon may take to say who it is; it answers this without waiting for anything.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// So many are asked at a time: each takes a descriptor.
const MOST_AT_A_TIME: usize = 128;

/// The daemons that listen on `sockets` and answer, in the order in which they do.
pub(crate) fn ask_all(sockets: Vec<PathBuf>) -> impl Iterator<Item = (Client, Pong)> {
    let mut sockets = sockets.into_iter().peekable();
    let mut answers = Answers::to(&mut sockets);
    std::iter::from_fn(move || {
        loop {
            if let Some(answer) = answers.next() {
                return Some(answer);
            }
            sockets.peek()?;
            answers = Answers::to(&mut sockets);
        }
    })
}

/// What those say who were asked together.
struct Answers {
    awaited: Vec<(Client, UnixStream)>,
    deadline: Instant,
}

impl Answers {
    /// Asks some of those that listen on `sockets`.
    fn to(sockets: &mut impl Iterator<Item = PathBuf>) -> Self {
        let ask = |path: PathBuf| {
            let client = Client::new(path);
            ask(&client).ok().map(|stream| (client, stream))
        };
        let awaited = sockets.take(MOST_AT_A_TIME).filter_map(ask).collect();
        Self { awaited, deadline: now() + PING_TIMEOUT }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(now())
    }
}

/// Asks, and does not wait: where a daemon hangs, many may have asked before.
fn ask(client: &Client) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(client.path())?)?;
    let stream = UnixStream::from(socket);
    server::send(&stream, Command::Ping, None)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl Iterator for Answers {
    type Item = (Client, Pong);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.awaited.is_empty() {
            let left = Timespec::try_from(self.left()).ok()?;
            let streams = self.awaited.iter().map(|(_, stream)| stream);
            // Hanging up counts as an answer.
            let mut polled: Vec<_> =
                streams.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
            match poll(&mut polled, Some(&left)) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            }
            let at = polled.iter().position(|polled| !polled.revents().is_empty())?;
            let (client, stream) = self.awaited.swap_remove(at);
            if let Ok(pong) = client.hear_pong(&stream, self.left()) {
                return Some((client, pong));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::protocol::{Outcome, Reply};

    fn pong() -> Pong {
        Pong {
            software: "1".into(),
            pid: 17,
            uuid: String::new(),
            source: "/image".into(),
            mount_point: "/mnt".into(),
            views: Vec::new(),
        }
    }

    #[test]
    fn who_does_not_answer_keeps_nobody_from_being_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(format!("{number}.sock"));
        // Nobody accepts from those, but the last.
        let listeners: Vec<_> =
            (0..200).map(|number| UnixListener::bind(path(number)).unwrap()).collect();
        let began = now();
        let answering = std::thread::scope(|scope| {
            let last = listeners.last().unwrap();
            scope.spawn(move || {
                let (stream, _) = last.accept().unwrap();
                let reply = Reply::new(Outcome::Pong(pong()));
                let line = serde_json::to_string(&reply).unwrap() + "\n";
                server::write_all(&stream, line.as_bytes()).unwrap();
            });
            ask_all((0..200).rev().map(path).collect()).next()
        });
        let (client, pong) = answering.unwrap();
        assert_eq!((client.path(), pong.pid), (&*path(199), 17));
        assert!(began.elapsed() < 20 * PING_TIMEOUT, "it was asked after others had not answered");
    }

    #[test]
    fn who_is_gone_or_talks_nonsense_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(format!("{number}.sock"));
        drop(UnixListener::bind(path(0)).unwrap());
        let listener = UnixListener::bind(path(1)).unwrap();
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                server::write_all(&stream, b"hello\n").unwrap();
            });
            ask_all((0..3).map(path).collect()).count()
        });
        assert_eq!(found, 0);
    }
}
