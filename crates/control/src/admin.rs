//! What the daemon implements: the operations behind the requests.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use crate::messages::block_devices::{
    BlockDeviceInfo, BlockDevicesRequest, ServeBlockDevicesRequest, ServingInfo,
};
use crate::messages::check::{CheckProgress, CheckReport, CheckRequest};
use crate::messages::cleaning::{
    Blocks, BlocksRequest, CleanerChange, CleanerSettings, CleaningStatus, Marked, NamedBlock,
    Places, Released, Segments, SegmentsRequest,
};
use crate::messages::coalescing::{CoalesceRequest, Coalesced};
use crate::messages::damage::{DamageInfo, DamageRequest};
use crate::messages::devices::{DevicesInfo, DevicesRequest};
use crate::messages::resizing::{ResizeProgress, ResizeRequest, Resized};
use crate::messages::scrub::{ScrubInfo, ScrubRequest};
use crate::messages::streams::{ReceiveRequest, ReceivedInfo, SendRequest, SentInfo};
use crate::messages::versions::{VersionsReply, VersionsRequest};
use crate::messages::{
    AdminError, Facts, MountNamed, MountReply, MountRequest, Outcome, Pong, Request, SetRequest,
    UnmountRequest, ViewInfo, VolumeInfo,
};
use crate::socket::Caller;

/// The operations behind the requests, but for a cleaner's ([`Cleaning`]). Calls come from several
/// threads at once.
pub trait Admin: Cleaning {
    /// The daemon's identity. Must not wait for anything.
    fn ping(&self) -> Pong;

    /// A description of the volume.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn info(&self) -> Result<VolumeInfo, AdminError>;

    /// Counters since the mount.
    ///
    /// # Errors
    /// When they cannot be read.
    fn stat(&self) -> Result<Facts, AdminError>;

    /// These and more counters, in Prometheus's text format.
    ///
    /// # Errors
    /// When they cannot be read.
    fn metrics(&self) -> Result<String, AdminError>;

    /// Changes settings of the daemon's own cleaner, and returns all of them.
    ///
    /// # Errors
    /// When there is no policy of this name; then nothing is changed.
    fn change_cleaner(&self, change: &CleanerChange) -> Result<CleanerSettings, AdminError>;

    /// Coalesces a part of what the request names, which takes some seconds at most. `mount` is the
    /// mount whose version is meant; `None`: the main branch's head.
    ///
    /// # Errors
    /// When the disk is read-only, the map cannot be read, or there is no such mount.
    fn coalesce(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &CoalesceRequest,
    ) -> Result<Coalesced, AdminError> {
        Err(AdminError("nothing is coalesced here".into()))
    }

    /// Carries out a request about versions. Names of versions without a branch refer to the branch
    /// of `mount`; `None`: the main branch.
    ///
    /// # Errors
    /// Why it was not done.
    fn versions(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &VersionsRequest,
    ) -> Result<VersionsReply, AdminError> {
        Err(AdminError("this volume has no versions".into()))
    }

    /// The damage that was found and that nobody has acknowledged.
    ///
    /// # Errors
    /// When the record of it, which lies in the volume, cannot be changed.
    fn damage(&self, _request: DamageRequest) -> Result<DamageInfo, AdminError> {
        Ok(DamageInfo::default())
    }

    /// Begins, pauses, resumes or ends a scrub, and reports it.
    ///
    /// # Errors
    /// When what is asked for is not possible as the scrub stands.
    fn scrub(&self, _request: ScrubRequest) -> Result<ScrubInfo, AdminError> {
        Err(AdminError("nothing is scrubbed here".into()))
    }

    /// Checks the volume. `tell` is called with how far the check is, and may break it off.
    ///
    /// # Errors
    /// Why it was not done, or not to its end.
    fn check(
        &self,
        _request: CheckRequest,
        _tell: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
    ) -> Result<CheckReport, AdminError> {
        Err(AdminError("nothing is checked here".into()))
    }

    /// Writes a send stream to the socket `to`, and closes it. Names of versions without a branch
    /// refer to the branch of `mount`; `None`: the main branch.
    ///
    /// # Errors
    /// Why it was not done, or not to its end.
    fn send(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &SendRequest,
        _to: Option<OwnedFd>,
    ) -> Result<SentInfo, AdminError> {
        Err(AdminError("nothing is sent from here".into()))
    }

    /// Makes the volume longer or shorter. `tell` is called with how far it is, and may have it
    /// given up.
    ///
    /// # Errors
    /// Why it was not done; the volume is as before.
    fn resize(
        &self,
        _request: &ResizeRequest,
        _tell: &mut dyn FnMut(ResizeProgress) -> ControlFlow<()>,
    ) -> Result<Resized, AdminError> {
        Err(AdminError("nothing is resized here".into()))
    }

    /// Lists or changes the devices that the volume lies on.
    ///
    /// # Errors
    /// Why it was not done; nothing has changed then.
    fn devices(&self, _request: &DevicesRequest) -> Result<DevicesInfo, AdminError> {
        Err(AdminError("nothing is known of devices here".into()))
    }

    /// Lists, makes, resizes or deletes block devices in the volume. Returns all that there are, or
    /// those that were made, resized or deleted.
    ///
    /// # Errors
    /// Why it was not done.
    fn block_devices(
        &self,
        _request: &BlockDevicesRequest,
    ) -> Result<Vec<BlockDeviceInfo>, AdminError> {
        Err(AdminError("nothing is known of block devices here".into()))
    }

    /// Serves the block devices at the socket `listener`. `tell` is called when clients can
    /// connect, and then now and again with `None`; it says when to end.
    ///
    /// # Errors
    /// Why they are not served, or no longer.
    fn serve_block_devices(
        &self,
        _request: &ServeBlockDevicesRequest,
        _listener: Option<OwnedFd>,
        _tell: &mut dyn FnMut(Option<ServingInfo>) -> ControlFlow<()>,
    ) -> Result<(), AdminError> {
        Err(AdminError("no block devices are served here".into()))
    }

    /// Receives the version of the stream that comes from the socket `from`.
    ///
    /// # Errors
    /// Why it was not done; then nothing has changed.
    fn receive(
        &self,
        _request: &ReceiveRequest,
        _from: Option<OwnedFd>,
    ) -> Result<ReceivedInfo, AdminError> {
        Err(AdminError("nothing is received here".into()))
    }

    /// Serves one more view, whose requests arrive by the descriptor `device`.
    ///
    /// # Errors
    /// Why it is not done. The client unmounts it again.
    fn mount(
        &self,
        _request: &MountRequest,
        _device: Option<OwnedFd>,
    ) -> Result<MountReply, AdminError> {
        Err(AdminError("this daemon serves one view".into()))
    }

    /// Unmounts the mount that is meant.
    ///
    /// # Errors
    /// When the request names no mount, or the mount cannot be unmounted.
    fn unmount(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: UnmountRequest,
    ) -> Result<(), AdminError> {
        Err(AdminError("this daemon unmounts nothing".into()))
    }

    /// Changes options of `mount`, or of the first one if that is `None`.
    ///
    /// # Errors
    /// When some of the options cannot be changed while it is mounted (then none is), or there is
    /// no such mount.
    fn set(
        &self,
        _mount: Option<MountNamed<'_>>,
        _request: &SetRequest,
    ) -> Result<ViewInfo, AdminError> {
        Err(AdminError("nothing can be changed here".into()))
    }

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// When the disk no longer accepts writes.
    fn sync(&self) -> Result<(), AdminError>;

    /// Begins to unmount and end; returns at once.
    ///
    /// # Errors
    /// When the volume cannot be unmounted.
    fn shut_down(&self) -> Result<(), AdminError>;

    /// Carries out a request of another user than the daemon's own and root, as far as that user is
    /// allowed to. `descriptor` came with the request; one may go with the reply.
    ///
    /// # Errors
    /// Why it was not done: that it is not allowed, for every request not known to be allowed.
    fn for_other(
        &self,
        _caller: &Caller,
        _request: &Request,
        _descriptor: Option<OwnedFd>,
    ) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        Err(AdminError("this needs the user who mounted it, or root".into()))
    }
}

/// The operations for cleaners. Calls come from several threads at once.
///
/// A wrong address or name in a request is no error: the outcome for that block reports it. An
/// error means that the disk cannot answer, or is read-only.
pub trait Cleaning: Send + Sync {
    /// The volume as it is now. Must not wait for anything, because clients wait for the answer.
    fn present(&self) -> CleaningStatus;

    /// Some of the segments.
    ///
    /// # Errors
    /// When they cannot be read.
    fn segments(&self, request: &SegmentsRequest) -> Result<Segments, AdminError>;

    /// Some of a segment's blocks.
    ///
    /// # Errors
    /// When there is no such segment, or it is clean or open, or cannot be read, or the cursor is
    /// invalid.
    fn blocks(&self, request: &BlocksRequest) -> Result<Blocks, AdminError>;

    /// Where blocks lie now.
    ///
    /// # Errors
    /// When the map cannot be read.
    fn bmapv(&self, blocks: &[NamedBlock]) -> Result<Places, AdminError>;

    /// Writes blocks again.
    ///
    /// # Errors
    /// When the disk is read-only.
    fn markv(&self, blocks: &[NamedBlock]) -> Result<Marked, AdminError>;

    /// Makes empty segments clean.
    ///
    /// # Errors
    /// When the disk is read-only.
    fn segclean(&self, segments: &[u32]) -> Result<Released, AdminError>;
}
