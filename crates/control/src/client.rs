//! The command's side.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::protocol::{
    Command, Facts, MAX_REPLY_LEN_BYTES, Outcome, PROTOCOL_VERSION, Pong, Reply, VolumeInfo,
};
use crate::{server, socket};

/// How long a daemon may take to say who it is; it answers this without waiting for anything.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// One daemon.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon is gone, or does not answer.
    #[error("the daemon at {path} does not answer: {source}")]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The answer makes no sense.
    #[error(
        "the daemon at {path} gave an answer this command does not understand ({why}); use the \
         dendro command of the same release"
    )]
    Malformed {
        /// Its socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The daemon said no.
    #[error("{0}")]
    Refused(String),
}

impl Client {
    /// The daemon that listens at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Every daemon that this process may talk to and that answers, with who it says it is.
    #[must_use]
    pub fn all() -> Vec<(Self, Pong)> {
        let sockets = socket::directories().into_iter().flat_map(|dir| socket::in_directory(&dir));
        sockets
            .map(Self::new)
            .filter_map(|client| client.ping().ok().map(|pong| (client, pong)))
            .collect()
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
        match self.ask(Command::Ping, Some(PING_TIMEOUT))? {
            Outcome::Pong(pong) => Ok(pong),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Info`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn info(&self) -> Result<VolumeInfo, ClientError> {
        match self.ask(Command::Info, None)? {
            Outcome::Info(info) => Ok(*info),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Stat`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stat(&self) -> Result<Facts, ClientError> {
        match self.ask(Command::Stat, None)? {
            Outcome::Stat(facts) => Ok(facts),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Sync`]: waits as long as it takes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn sync(&self) -> Result<(), ClientError> {
        self.done(Command::Sync)
    }

    /// [`Command::Shutdown`]. The daemon is still at work when this returns.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn shut_down(&self) -> Result<(), ClientError> {
        self.done(Command::Shutdown)
    }

    fn done(&self, command: Command) -> Result<(), ClientError> {
        match self.ask(command, None)? {
            Outcome::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&self, command: Command, timeout: Option<Duration>) -> Result<Outcome, ClientError> {
        let exchange = || {
            let stream = UnixStream::connect(&self.path)?;
            stream.set_read_timeout(timeout)?;
            server::send(&stream, command)?;
            server::read_line(&stream, MAX_REPLY_LEN_BYTES)
        };
        let line = exchange()
            .map_err(|source| ClientError::Unreachable { path: self.path.clone(), source })?;
        let reply: Reply =
            serde_json::from_slice(&line).map_err(|error| self.malformed(error.to_string()))?;
        match reply.outcome {
            Outcome::Error(why) => Err(ClientError::Refused(why)),
            _ if reply.version != PROTOCOL_VERSION => {
                Err(self.malformed(format!("protocol version {}", reply.version)))
            }
            outcome => Ok(outcome),
        }
    }

    fn unexpected(&self, outcome: &Outcome) -> ClientError {
        self.malformed(format!("an answer to another question: {outcome:?}"))
    }

    fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { path: self.path.clone(), why }
    }
}
