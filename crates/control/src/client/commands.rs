//! One method for each command.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::ClientError;
use super::exchange::Client;
use crate::messages::check::{CheckProgress, CheckReport, CheckRequest};
use crate::messages::cleaning::{
    Blocks, BlocksNamed, BlocksRequest, CleanerChange, CleanerSettings, Marked, NamedBlock, Places,
    Released, Segments, SegmentsNamed, SegmentsRequest, SegwaitRequest, Waited,
};
use crate::messages::coalescing::{CoalesceRequest, Coalesced};
use crate::messages::damage::{DamageInfo, DamageRequest};
use crate::messages::devices::{DevicesInfo, DevicesRequest};
use crate::messages::resizing::{ResizeProgress, ResizeRequest, Resized};
use crate::messages::scrub::{ScrubInfo, ScrubRequest};
use crate::messages::versions::{VersionsAsked, VersionsReply, VersionsRequest};
use crate::messages::{
    Command, Facts, MountReply, MountRequest, Outcome, SetRequest, UnmountRequest, ViewInfo,
    VolumeInfo,
};

impl Client {
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

    /// [`Command::Segments`], repeated until all are listed.
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
    pub fn bmapv(&self, blocks: Vec<NamedBlock>) -> Result<Places, ClientError> {
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
    pub fn markv(&self, blocks: Vec<NamedBlock>) -> Result<Marked, ClientError> {
        let count = blocks.len();
        match self.ask(Command::Markv(BlocksNamed { blocks }))? {
            Outcome::Marked(marked) if marked.blocks.len() == count => Ok(marked),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Segwait`]: waits as long as the request says.
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

    /// [`Command::Scrub`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn scrub(&self, request: ScrubRequest) -> Result<ScrubInfo, ClientError> {
        match self.ask(Command::Scrub(request))? {
            Outcome::Scrub(info) => Ok(info),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Check`]; `tell` is called with how far it is.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn check(
        &self,
        request: CheckRequest,
        mut tell: impl FnMut(&CheckProgress),
    ) -> Result<CheckReport, ClientError> {
        self.follow(Command::Check(request), |outcome| match outcome {
            Outcome::Checking(progress) => {
                tell(&progress);
                Ok(None)
            }
            Outcome::Checked(report) => Ok(Some(*report)),
            other => Err(self.unexpected(&other)),
        })
    }

    /// [`Command::Resize`]; `tell` is called with how far it is.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn resize(
        &self,
        request: ResizeRequest,
        mut tell: impl FnMut(ResizeProgress),
    ) -> Result<Resized, ClientError> {
        self.follow(Command::Resize(request), |outcome| match outcome {
            Outcome::Resizing(progress) => {
                tell(progress);
                Ok(None)
            }
            Outcome::Resized(resized) => Ok(Some(resized)),
            other => Err(self.unexpected(&other)),
        })
    }

    /// [`Command::Devices`].
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn devices(&self, request: DevicesRequest) -> Result<DevicesInfo, ClientError> {
        match self.ask(Command::Devices(request))? {
            Outcome::Devices(info) => Ok(info),
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

    /// [`Command::Mount`], with the FUSE connection to be served. It is sent only to a daemon of
    /// this process's user: whoever has the connection decides what is in the mount, root's
    /// set-user-ID programs included.
    ///
    /// # Errors
    /// [`ClientError`]; refused with the reason.
    pub fn mount(
        &self,
        request: MountRequest,
        device: Option<BorrowedFd<'_>>,
    ) -> Result<MountReply, ClientError> {
        let owner = self.foreign_owner().map_err(|error| self.unreachable(error))?;
        if let Some(uid) = owner {
            return Err(ClientError::Refused(format!(
                "a daemon of user {uid} says that it has it mounted, and {} lies in a directory of that \
                 user's; unmount it there, or mount it as that user",
                self.path().display()
            )));
        }
        match self.ask_with(Command::Mount(request), device)? {
            Outcome::Mount(reply) => Ok(reply),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Mount`] to the daemon of another user, which makes the mount itself: on
    /// `directory`, which belongs to this process's user. Without a directory, it returns a
    /// descriptor of a mount that is not attached anywhere yet.
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
}
