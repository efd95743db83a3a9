//! The command's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::addressee::Addressee;
use crate::cleaning::{
    Block, Blocks, BlocksNamed, BlocksRequest, CleanerChange, CleanerSettings, Marked, Places,
    Released, Segments, SegmentsNamed, SegmentsRequest, SegwaitRequest, Waited,
};
use crate::coalescing::{CoalesceRequest, Coalesced};
use crate::damage::{DamageInfo, DamageRequest};
use crate::mounts::{MountReply, MountRequest, SetRequest, UnmountRequest, ViewInfo};
use crate::ping::{self, Found, Mute, PING_TIMEOUT};
use crate::protocol::{
    Command, Facts, MAX_REPLY_LEN_BYTES, Outcome, PROTOCOL_VERSION, Pong, Reply, Request,
    VolumeInfo,
};
use crate::versions::{VersionsAsked, VersionsReply, VersionsRequest};
use crate::wait::now;
use crate::{card, server, socket};

/// How often a daemon that has been asked something is asked whether it is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After so long in which a daemon has not even said who it is, nobody waits for it any longer.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long the rest of an answer may take that has begun to arrive.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// After what pause a daemon is tried again that too many ask.
const OVERRUN_PAUSE: Duration = Duration::from_millis(50);

/// One daemon.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    /// Whom its requests are meant for.
    addressee: Option<Addressee>,
    /// The daemon's process, if it has said so.
    pid: Option<u32>,
    /// The root of the mount that requests are about.
    root: Option<Arc<OwnedFd>>,
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
    /// The daemon is there, and has not answered anything for some time.
    #[error("{0}")]
    Mute(Mute),
    /// Another daemon has the socket by now, or the mount that was meant is gone.
    #[error("{0}")]
    NotMeant(String),
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
    /// Whatever daemon listens at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), addressee: None, pid: None, root: None }
    }

    /// The same, for requests that are meant for the daemon alone that has said `pong`.
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

    /// The same with a descriptor of that mount's root, which goes with each request: the daemon of
    /// another user is shown by it that this process can reach the mount.
    #[must_use]
    pub fn reaching(self, root: OwnedFd) -> Self {
        Self { root: Some(Arc::new(root)), ..self }
    }

    /// The same without that descriptor, which keeps the mount in use.
    #[must_use]
    pub fn letting_go(self) -> Self {
        Self { root: None, ..self }
    }

    /// The user whose daemon it is, if that is another one than this process's.
    ///
    /// # Errors
    /// When the socket's directory cannot be looked at.
    pub fn foreign_owner(&self) -> io::Result<Option<u32>> {
        socket::foreign_owner(&self.path)
    }

    /// The same, whatever becomes of the mount.
    #[must_use]
    pub fn about_volume(self) -> Self {
        let addressee = self.addressee.map(|of| Addressee { view: None, ..of });
        Self { addressee, ..self }
    }

    /// Looks among all daemons that this process may talk to for the one that `is_it`. All are asked at
    /// once. `may_be` says of what a daemon said earlier whether it may be the one; others are not waited
    /// for, and one that is and does not answer is told. Its requests will be meant for this daemon alone.
    pub fn find(is_it: impl Fn(&Pong) -> bool, may_be: impl Fn(&Pong) -> bool) -> Found {
        let sockets = socket::directories().into_iter().flat_map(|dir| socket::in_directory(&dir));
        match ping::find(sockets.collect(), is_it, may_be) {
            Found::Daemon(found) => {
                let (client, pong) = *found;
                Found::Daemon(Box::new((client.meaning(&pong), pong)))
            }
            other => other,
        }
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
        // The daemon tells which mounts there are.
        let addressee = self.clone().about_volume().addressee;
        let request = Request::new(Command::Ping).meant_for(addressee);
        let stream = self.tell(&request, None, PING_TIMEOUT)?;
        self.hear_pong(&stream, PING_TIMEOUT)
    }

    /// The answer to [`Command::Ping`].
    pub(crate) fn hear_pong(
        &self,
        stream: &UnixStream,
        timeout: Duration,
    ) -> Result<Pong, ClientError> {
        match self.hear(stream, timeout)?.0 {
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

    /// [`Command::Damage`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn damage(&self, request: DamageRequest) -> Result<DamageInfo, ClientError> {
        match self.ask(Command::Damage(request))? {
            Outcome::Damage(info) => Ok(info),
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

    /// [`Command::Mount`], with the connection to be served. Only a daemon of this process's user gets it:
    /// whoever has the connection decides what is in the mount, set-user-ID programs of root's included.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn mount(
        &self,
        request: MountRequest,
        device: Option<BorrowedFd<'_>>,
    ) -> Result<MountReply, ClientError> {
        let owner = socket::foreign_owner(&self.path).map_err(|error| self.unreachable(error))?;
        if let Some(uid) = owner {
            return Err(ClientError::Refused(format!(
                "a daemon of user {uid} says that it has it mounted, and {} lies in a directory of that \
                 user's; unmount it there, or mount it as that user",
                self.path.display()
            )));
        }
        match self.ask_with(Command::Mount(request), device)? {
            Outcome::Mount(reply) => Ok(reply),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Mount`] to the daemon of another user, which mounts by itself: on `directory`, which
    /// belongs to this process's user, or nowhere yet, and answers with a descriptor of the mount then.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn mount_by_daemon(
        &self,
        request: MountRequest,
        directory: Option<BorrowedFd<'_>>,
    ) -> Result<(MountReply, Option<OwnedFd>), ClientError> {
        match self.exchange(Command::Mount(request), directory)? {
            (Outcome::Mount(reply), mount) => Ok((reply, mount)),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Unmount`], of the mount that requests are about.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn unmount(&self, request: UnmountRequest) -> Result<(), ClientError> {
        self.done(Command::Unmount(request))
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
        self.ask_with(command, self.root.as_ref().map(AsFd::as_fd))
    }

    fn ask_with(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Outcome, ClientError> {
        self.exchange(command, descriptor).map(|(outcome, _)| outcome)
    }

    fn exchange(
        &self,
        command: Command,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Outcome, Option<OwnedFd>), ClientError> {
        let request = Request::new(command).meant_for(self.addressee.clone());
        let deadline = now() + PATIENCE;
        loop {
            let stream = self.tell(&request, descriptor, PATIENCE)?;
            self.wait_for(&stream)?;
            match self.hear(&stream, REPLY_TIMEOUT)? {
                (Outcome::Busy(_), _) if now() < deadline => thread::sleep(OVERRUN_PAUSE),
                (Outcome::Busy(why), _) => return Err(ClientError::Refused(why)),
                answer => return Ok(answer),
            }
        }
    }

    /// Waits until the answer begins to arrive, however long that takes, as long as the daemon is there.
    fn wait_for(&self, stream: &UnixStream) -> Result<(), ClientError> {
        let mut heard_at = now();
        loop {
            match ping::is_readable(stream, LOOK_EVERY) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(source) => return Err(self.unreachable(source)),
            }
            match self.ping() {
                Err(ClientError::Mute(mute)) if heard_at.elapsed() >= PATIENCE => {
                    return Err(ClientError::Mute(mute));
                }
                Err(ClientError::Mute(_)) => {}
                // Whatever it says, it is not silent. It listens no more when it is about to end.
                _ => heard_at = now(),
            }
        }
    }

    fn tell(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<UnixStream, ClientError> {
        let deadline = now() + timeout;
        let tell = || {
            let stream = ping::connect_at_once(&self.path)?;
            server::send(&stream, request, descriptor)?;
            Ok(stream)
        };
        loop {
            match tell() {
                Err(error) if ping::is_overrun(&error) && now() < deadline => {
                    thread::sleep(OVERRUN_PAUSE);
                }
                outcome => return outcome.map_err(|source| self.unreachable(source)),
            }
        }
    }

    /// The answer, which arrives within `timeout`, and what descriptor comes with it.
    fn hear(
        &self,
        stream: &UnixStream,
        timeout: Duration,
    ) -> Result<(Outcome, Option<OwnedFd>), ClientError> {
        let (line, descriptor) = server::read_line(stream, MAX_REPLY_LEN_BYTES, Some(timeout))
            .map_err(|source| self.unreachable(source))?;
        let reply: Reply =
            serde_json::from_slice(&line).map_err(|error| self.malformed(error.to_string()))?;
        match reply.outcome {
            Outcome::Error(why) => Err(ClientError::Refused(why)),
            Outcome::NotMeant(why) => Err(ClientError::NotMeant(why)),
            _ if reply.version != PROTOCOL_VERSION => {
                Err(self.malformed(format!("protocol version {}", reply.version)))
            }
            outcome => Ok((outcome, descriptor)),
        }
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        let is_late = matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        let pid = || self.pid.or_else(|| card::read(&self.path).map(|card| card.pid));
        if is_late && let Some(pid) = pid() {
            return ClientError::Mute(Mute { pid });
        }
        ClientError::Unreachable { path: self.path.clone(), source }
    }

    fn unexpected(&self, outcome: &Outcome) -> ClientError {
        self.malformed(format!("an answer to another question: {outcome:?}"))
    }

    fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { path: self.path.clone(), why }
    }
}
