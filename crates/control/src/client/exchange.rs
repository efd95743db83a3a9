//! One request and its reply.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::error::{ClientError, Unresponsive};
use crate::messages::{
    Addressee, Command, MAX_REPLY_LEN_BYTES, MAX_REQUEST_LEN_BYTES, Outcome, PROTOCOL_VERSION,
    Pong, Reply, Request,
};
use crate::socket::{self, identity_file, line_of, now, read_line, send_line};

/// How long a daemon may take for [`Command::Ping`], which it answers without waiting for anything.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// While a client waits for a reply, it pings the daemon this often.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// A daemon that has answered no ping for so long is given up.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long the rest of a reply may take once its first bytes have arrived.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a daemon that has too many clients is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// One daemon.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    /// Whom its requests are meant for.
    addressee: Option<Addressee>,
    /// The daemon's process, if it is known.
    pid: Option<u32>,
    /// The root of the mount that requests are about.
    root: Option<Arc<OwnedFd>>,
}

impl Client {
    /// The daemon that listens at `path`, whichever it is.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), addressee: None, pid: None, root: None }
    }

    /// The same, for requests that only the daemon that has answered `pong` may carry out.
    #[must_use]
    pub fn meaning(self, pong: &Pong) -> Self {
        Self { addressee: Some(Addressee::of(pong)), pid: Some(pong.pid), ..self }
    }

    /// The same, for requests about one of that daemon's mounts, by its
    /// [`ViewInfo::id`](crate::ViewInfo::id).
    #[must_use]
    pub fn about(self, view: u64) -> Self {
        Self { addressee: Some(self.addressee.unwrap_or_default().about(view)), ..self }
    }

    /// The same with a descriptor of that mount's root, which is sent with each request. It proves
    /// to the daemon of another user that this process can reach the mount.
    #[must_use]
    pub fn with_root(self, root: OwnedFd) -> Self {
        Self { root: Some(Arc::new(root)), ..self }
    }

    /// The same without that descriptor, which keeps the mount in use.
    #[must_use]
    pub fn without_root(self) -> Self {
        Self { root: None, ..self }
    }

    /// The same, for requests that do not depend on the mount.
    #[must_use]
    pub fn about_volume(self) -> Self {
        let addressee = self.addressee.map(|of| Addressee { view: None, ..of });
        Self { addressee, ..self }
    }

    /// The user whose daemon it is, if that is another one than this process's.
    ///
    /// # Errors
    /// When the socket's directory cannot be examined.
    pub fn foreign_owner(&self) -> io::Result<Option<u32>> {
        socket::foreign_owner(&self.path)
    }

    /// Where the daemon listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// [`Command::Ping`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ping(&self) -> Result<Pong, ClientError> {
        // The reply lists the mounts, so the request must not depend on one.
        let addressee = self.clone().about_volume().addressee;
        let request = Request::new(Command::Ping).meant_for(addressee);
        let stream = self.send(&request, None, PING_TIMEOUT)?;
        self.receive_pong(&stream, PING_TIMEOUT)
    }

    /// The reply to [`Command::Ping`].
    pub(super) fn receive_pong(
        &self,
        stream: &UnixStream,
        timeout: Duration,
    ) -> Result<Pong, ClientError> {
        match self.receive(stream, timeout)?.0 {
            Outcome::Pong(pong) => Ok(pong),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The outcome of `command`, of which success says no more.
    pub(super) fn done(&self, command: Command) -> Result<(), ClientError> {
        match self.ask(command)? {
            Outcome::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(super) fn ask(&self, command: Command) -> Result<Outcome, ClientError> {
        self.ask_with(command, self.root.as_ref().map(AsFd::as_fd))
    }

    pub(super) fn ask_with(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Outcome, ClientError> {
        self.exchange(command, descriptor).map(|(outcome, _)| outcome)
    }

    /// Sends a request, and a descriptor with it; returns the outcome and the descriptor that came
    /// with it. A daemon that has too many clients is asked again.
    pub(super) fn exchange(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Outcome, Option<OwnedFd>), ClientError> {
        let request = Request::new(command).meant_for(self.addressee.clone());
        let deadline = now() + PATIENCE;
        loop {
            let stream = self.send(&request, descriptor, PATIENCE)?;
            self.wait_for_reply(&stream)?;
            match self.receive(&stream, REPLY_TIMEOUT)? {
                (Outcome::Busy(_), _) if now() < deadline => thread::sleep(RETRY_PAUSE),
                (Outcome::Busy(why), _) => return Err(ClientError::Refused(why)),
                answer => return Ok(answer),
            }
        }
    }

    /// Sends a request to which several replies may come: `take` is called with each, and returns
    /// the last one's content.
    pub(super) fn follow<T>(
        &self,
        command: Command,
        take: impl FnMut(Outcome) -> Result<Option<T>, ClientError>,
    ) -> Result<T, ClientError> {
        let stream = self.begin(command, self.root.as_ref().map(AsFd::as_fd))?;
        self.follow_on(&stream, take)
    }

    /// The same for a request that [`Self::begin`] has sent.
    pub(super) fn follow_on<T>(
        &self,
        stream: &UnixStream,
        mut take: impl FnMut(Outcome) -> Result<Option<T>, ClientError>,
    ) -> Result<T, ClientError> {
        let mut replies = BufReader::new(stream);
        loop {
            if replies.buffer().is_empty() {
                self.wait_for_reply(stream)?;
            }
            let timeout = stream.set_read_timeout(Some(REPLY_TIMEOUT));
            let mut line = Vec::new();
            let mut limited = (&mut replies).take(MAX_REPLY_LEN_BYTES as u64);
            timeout
                .and_then(|()| limited.read_until(b'\n', &mut line))
                .map_err(|source| self.unreachable(source))?;
            if line.is_empty() {
                return Err(self.unreachable(io::ErrorKind::UnexpectedEof.into()));
            }
            let outcome = match self.outcome_of(&line)? {
                Outcome::Busy(why) => return Err(ClientError::Refused(why)),
                outcome => outcome,
            };
            if let Some(last) = take(outcome)? {
                return Ok(last);
            }
        }
    }

    /// Sends a request, and a descriptor with it, whose reply [`Self::end`] or [`Self::follow_on`]
    /// receives.
    pub(super) fn begin(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<UnixStream, ClientError> {
        let request = Request::new(command).meant_for(self.addressee.clone());
        self.send(&request, descriptor, PATIENCE)
    }

    /// The outcome of a request that [`Self::begin`] has sent.
    pub(super) fn end(&self, stream: &UnixStream) -> Result<Outcome, ClientError> {
        self.wait_for_reply(stream)?;
        match self.receive(stream, REPLY_TIMEOUT)?.0 {
            Outcome::Busy(why) => Err(ClientError::Refused(why)),
            outcome => Ok(outcome),
        }
    }

    /// Waits until the reply, or something else from the daemon, begins to arrive. That may take
    /// any time, as long as the daemon answers pings.
    pub(super) fn wait_for_reply(&self, stream: &UnixStream) -> Result<(), ClientError> {
        let mut last_sign_of_life = now();
        loop {
            match socket::is_readable(stream, PING_INTERVAL) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(source) => return Err(self.unreachable(source)),
            }
            match self.ping() {
                Err(ClientError::Unresponsive(daemon))
                    if last_sign_of_life.elapsed() >= PATIENCE =>
                {
                    return Err(ClientError::Unresponsive(daemon));
                }
                Err(ClientError::Unresponsive(_)) => {}
                // Any other outcome, an error too, shows that the daemon is not hanging: one that
                // is about to end no longer accepts connections.
                _ => last_sign_of_life = now(),
            }
        }
    }

    /// Connects and sends `request`; tries again for `timeout` while the daemon has too many
    /// clients.
    fn send(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<UnixStream, ClientError> {
        let deadline = now() + timeout;
        loop {
            match connect_and_send(&self.path, request, descriptor) {
                Err(error) if socket::is_overrun(&error) && now() < deadline => {
                    thread::sleep(RETRY_PAUSE);
                }
                outcome => return outcome.map_err(|source| self.unreachable(source)),
            }
        }
    }

    /// The reply, which must be complete within `timeout`, and the descriptor that came with it.
    fn receive(
        &self,
        stream: &UnixStream,
        timeout: Duration,
    ) -> Result<(Outcome, Option<OwnedFd>), ClientError> {
        let (line, descriptor) = read_line(stream, MAX_REPLY_LEN_BYTES, Some(timeout))
            .map_err(|source| self.unreachable(source))?;
        Ok((self.outcome_of(&line)?, descriptor))
    }

    /// The outcome that a line states.
    fn outcome_of(&self, line: &[u8]) -> Result<Outcome, ClientError> {
        let reply: Reply =
            serde_json::from_slice(line).map_err(|error| self.malformed(error.to_string()))?;
        match reply.outcome {
            Outcome::Error(why) => Err(ClientError::Refused(why)),
            Outcome::NotMeant(why) => Err(ClientError::NotMeant(why)),
            _ if reply.version != PROTOCOL_VERSION => {
                Err(self.malformed(format!("protocol version {}", reply.version)))
            }
            outcome => Ok(outcome),
        }
    }

    pub(super) fn unreachable(&self, source: io::Error) -> ClientError {
        let is_late = matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        let pid = || self.pid.or_else(|| identity_file::read(&self.path).map(|pong| pong.pid));
        if is_late && let Some(pid) = pid() {
            return ClientError::Unresponsive(Unresponsive { pid });
        }
        ClientError::Unreachable { path: self.path.clone(), source }
    }

    pub(super) fn unexpected(&self, outcome: &Outcome) -> ClientError {
        self.malformed(format!("an answer to another question: {outcome:?}"))
    }

    pub(super) fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { path: self.path.clone(), why }
    }
}

/// Connects to `socket` and sends `request`, without waiting for the daemon.
pub(super) fn connect_and_send(
    socket: &Path,
    request: &Request,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<UnixStream> {
    let stream = socket::connect_at_once(socket)?;
    send_line(&stream, &line_of(request, MAX_REQUEST_LEN_BYTES)?, descriptor)?;
    Ok(stream)
}
