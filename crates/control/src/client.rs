//! The command's side.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cleaning::{
    Block, Blocks, BlocksNamed, BlocksRequest, CleanerChange, CleanerSettings, Marked, Places,
    Released, Segments, SegmentsNamed, SegmentsRequest, SegwaitRequest, Waited,
};
use crate::coalescing::{CoalesceRequest, Coalesced};
use crate::mounts::{MountReply, MountRequest, SetRequest, ViewInfo};
use crate::ping::{self, PING_TIMEOUT};
use crate::protocol::{
    Command, Facts, MAX_REPLY_LEN_BYTES, Outcome, PROTOCOL_VERSION, Pong, Reply, VolumeInfo,
};
use crate::versions::{VersionsAsked, VersionsReply, VersionsRequest};
use crate::{server, socket};

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

    /// Every daemon that this process may talk to and that answers, with who it says it is, in the
    /// order in which they do: one that hangs is waited for last.
    pub fn all() -> impl Iterator<Item = (Self, Pong)> {
        let sockets = socket::directories().into_iter().flat_map(|dir| socket::in_directory(&dir));
        ping::ask_all(sockets.collect())
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
        let stream = self.tell(Command::Ping, None)?;
        self.hear_pong(&stream, PING_TIMEOUT)
    }

    /// The answer to [`Command::Ping`].
    pub(crate) fn hear_pong(
        &self,
        stream: &UnixStream,
        timeout: Duration,
    ) -> Result<Pong, ClientError> {
        match self.hear(stream, Some(timeout))? {
            Outcome::Pong(pong) => Ok(pong),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Info`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn info(&self) -> Result<VolumeInfo, ClientError> {
        match self.ask(Command::Info)? {
            Outcome::Info(info) => Ok(*info),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Stat`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stat(&self) -> Result<Facts, ClientError> {
        match self.ask(Command::Stat)? {
            Outcome::Stat(facts) => Ok(facts),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Metrics`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn metrics(&self) -> Result<String, ClientError> {
        match self.ask(Command::Metrics)? {
            Outcome::Metrics(text) => Ok(text),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Segments`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn segments(&self, request: SegmentsRequest) -> Result<Segments, ClientError> {
        match self.ask(Command::Segments(request))? {
            Outcome::Segments(segments) => Ok(segments),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Segments`], as often as it takes to hear of all.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn all_segments(&self) -> Result<Segments, ClientError> {
        let mut all = self.segments(SegmentsRequest::default())?;
        while let Some(from) = all.next {
            let more = self.segments(SegmentsRequest { from, max: None })?;
            if more.next.is_some_and(|next| next <= from) {
                return Err(self.malformed("segments without end".into()));
            }
            all.segments.extend(more.segments);
            (all.present, all.next) = (more.present, more.next);
        }
        Ok(all)
    }

    /// [`Command::Blocks`].
    ///
    /// # Errors
    /// [`ClientError`]; refused when the segment is clean by now, or open.
    pub fn blocks(&self, request: BlocksRequest) -> Result<Blocks, ClientError> {
        match self.ask(Command::Blocks(request))? {
            Outcome::Blocks(blocks) => Ok(blocks),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Bmapv`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn bmapv(&self, blocks: Vec<Block>) -> Result<Places, ClientError> {
        let count = blocks.len();
        match self.ask(Command::Bmapv(BlocksNamed { blocks }))? {
            Outcome::Places(places) if places.live.len() == count => Ok(places),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Markv`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn markv(&self, blocks: Vec<Block>) -> Result<Marked, ClientError> {
        let count = blocks.len();
        match self.ask(Command::Markv(BlocksNamed { blocks }))? {
            Outcome::Marked(marked) if marked.blocks.len() == count => Ok(marked),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Segwait`]: waits as long as it is told.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn segwait(&self, request: SegwaitRequest) -> Result<Waited, ClientError> {
        match self.ask(Command::Segwait(request))? {
            Outcome::Waited(waited) => Ok(waited),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Segclean`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn segclean(&self, segments: Vec<u32>) -> Result<Released, ClientError> {
        let count = segments.len();
        match self.ask(Command::Segclean(SegmentsNamed { segments }))? {
            Outcome::Released(released) if released.segments.len() == count => Ok(released),
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

    /// [`Command::Cleaner`].
    ///
    /// # Errors
    /// [`ClientError`]; refused when there is no policy of this name.
    pub fn change_cleaner(&self, change: CleanerChange) -> Result<CleanerSettings, ClientError> {
        match self.ask(Command::Cleaner(change))? {
            Outcome::Cleaner(settings) => Ok(settings),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Coalesce`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn coalesce(&self, request: CoalesceRequest) -> Result<Coalesced, ClientError> {
        match self.ask(Command::Coalesce(request))? {
            Outcome::Coalesced(done) => Ok(done),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Versions`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn versions(
        &self,
        mount: Option<&str>,
        request: VersionsRequest,
    ) -> Result<VersionsReply, ClientError> {
        let asked = VersionsAsked { mount: mount.map(str::to_owned), request };
        match self.ask(Command::Versions(asked))? {
            Outcome::Versions(reply) => Ok(reply),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Set`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn set(&self, request: SetRequest) -> Result<ViewInfo, ClientError> {
        match self.ask(Command::Set(request))? {
            Outcome::Set(view) => Ok(*view),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Mount`], with the connection to be served.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn mount(
        &self,
        request: MountRequest,
        device: Option<BorrowedFd<'_>>,
    ) -> Result<MountReply, ClientError> {
        match self.ask_with(Command::Mount(request), device)? {
            Outcome::Mount(reply) => Ok(reply),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Shutdown`]. The daemon is still at work when this returns.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn shut_down(&self) -> Result<(), ClientError> {
        self.done(Command::Shutdown)
    }

    fn done(&self, command: Command) -> Result<(), ClientError> {
        match self.ask(command)? {
            Outcome::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&self, command: Command) -> Result<Outcome, ClientError> {
        self.ask_with(command, None)
    }

    fn ask_with(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Outcome, ClientError> {
        let stream = self.tell(command, descriptor)?;
        self.hear(&stream, None)
    }

    fn tell(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<UnixStream, ClientError> {
        let tell = || {
            let stream = UnixStream::connect(&self.path)?;
            server::send(&stream, command, descriptor)?;
            Ok(stream)
        };
        tell().map_err(|source| self.unreachable(source))
    }

    fn hear(&self, stream: &UnixStream, timeout: Option<Duration>) -> Result<Outcome, ClientError> {
        let line = server::read_line(stream, MAX_REPLY_LEN_BYTES, timeout)
            .map_err(|source| self.unreachable(source))?;
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

    fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable { path: self.path.clone(), source }
    }

    fn unexpected(&self, outcome: &Outcome) -> ClientError {
        self.malformed(format!("an answer to another question: {outcome:?}"))
    }

    fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { path: self.path.clone(), why }
    }
}
