//! The control socket's requests, and how the daemon carries them out.
//!
//! - [`answers`]: facts about the volume. [`versions`]: requests about versions, which a
//!   [`service`] carries out, and [`handover`], which replaces a mounted head by another.
//! - [`mounting`]: mounts that commands have made. [`user_mounts`]: mounts that the daemon makes
//!   for other users. [`other_users`]: requests of these.
//! - [`streams`]: send streams. [`options`]: changes of options. [`damage`]: damage found in use.
//!   [`devices`]: the devices that the volume lies on. [`block_devices`]: those that lie in it.
//!   [`refusal`]: refusals of requests.

mod answers;
mod block_devices;
mod damage;
mod devices;
mod handover;
mod mounting;
mod options;
mod other_users;
mod refusal;
mod service;
mod streams;
mod user_mounts;
mod versions;

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use dendro_control::block_devices::{
    BlockDeviceInfo, BlockDevicesRequest, ServeBlockDevicesRequest, ServingInfo,
};
use dendro_control::check::{CheckProgress, CheckReport, CheckRequest};
use dendro_control::cleaning::{
    Blocks, BlocksRequest, CleanerChange, CleanerSettings, CleaningStatus, Marked, NamedBlock,
    Places, Released, Segments, SegmentsRequest,
};
use dendro_control::coalescing::{CoalesceRequest, Coalesced};
use dendro_control::damage::{DamageInfo, DamageRequest};
use dendro_control::devices::{DevicesInfo, DevicesRequest};
use dendro_control::resizing::{ResizeProgress, ResizeRequest, Resized};
use dendro_control::scrub::{ScrubInfo, ScrubRequest};
use dendro_control::streams::{ReceiveRequest, ReceivedInfo, SendRequest, SentInfo};
use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Caller, Cleaning, Facts, MountNamed, MountReply, MountRequest, Outcome,
    Pong, Request, SetRequest, UnmountRequest, ViewInfo, VolumeInfo,
};
use dendro_disk::Versions;
use dendro_fuse::UnmountMode;
use mounting::unmount;
use refusal::refuse;

use crate::state::Daemon;
use crate::{cleaning, resizing};

impl Admin for Daemon<'_> {
    fn ping(&self) -> Pong {
        self.pong()
    }

    fn info(&self) -> Result<VolumeInfo, AdminError> {
        self.volume_info()
    }

    fn stat(&self) -> Result<Facts, AdminError> {
        self.statistics()
    }

    fn metrics(&self) -> Result<String, AdminError> {
        self.metrics_text()
    }

    fn change_cleaner(&self, change: &CleanerChange) -> Result<CleanerSettings, AdminError> {
        cleaning::change_cleaner(self.volume.disk(), change)
    }

    fn coalesce(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &CoalesceRequest,
    ) -> Result<Coalesced, AdminError> {
        let view = match mount {
            None => self.volume.disk().versions().main_head(),
            Some(mount) => self.mounted(mount)?.view(),
        };
        cleaning::coalesce(self.volume.disk(), view, request)
    }

    fn versions(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
    ) -> Result<VersionsReply, AdminError> {
        self.versions_for(mount, request, None)
    }

    fn for_other(
        &self,
        caller: &Caller,
        request: &Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<(Outcome, Option<OwnedFd>), AdminError> {
        self.serve_other(caller, request, descriptor)
    }

    fn mount(
        &self,
        request: &MountRequest,
        device: Option<OwnedFd>,
    ) -> Result<MountReply, AdminError> {
        self.serve_received(request, device)
    }

    fn unmount(
        &self,
        mount: Option<MountNamed<'_>>,
        request: UnmountRequest,
    ) -> Result<(), AdminError> {
        let mount = mount.ok_or_else(|| AdminError("say which mount".into()))?;
        unmount(&*self.mounted(mount)?, request)
    }

    fn damage(&self, request: DamageRequest) -> Result<DamageInfo, AdminError> {
        self.answer_damage(request)
    }

    fn scrub(&self, request: ScrubRequest) -> Result<ScrubInfo, AdminError> {
        self.scrub.answer(self.volume.disk(), &request)
    }

    fn check(
        &self,
        request: CheckRequest,
        tell: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
    ) -> Result<CheckReport, AdminError> {
        self.checks.ask(request, tell).map_err(AdminError)
    }

    fn send(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &SendRequest,
        to: Option<OwnedFd>,
    ) -> Result<SentInfo, AdminError> {
        self.send_stream(mount, request, to)
    }

    fn resize(
        &self,
        request: &ResizeRequest,
        tell: &mut dyn FnMut(ResizeProgress) -> ControlFlow<()>,
    ) -> Result<Resized, AdminError> {
        let (disk, device) = self.volume.parts();
        let mut tell = |progress| match self.stop.is_set() {
            true => ControlFlow::Break(()),
            false => tell(progress),
        };
        resizing::resize(&disk, &device, request, &mut tell).map_err(AdminError)
    }

    fn devices(&self, request: &DevicesRequest) -> Result<DevicesInfo, AdminError> {
        self.change_devices(request)
    }

    fn block_devices(
        &self,
        request: &BlockDevicesRequest,
    ) -> Result<Vec<BlockDeviceInfo>, AdminError> {
        self.answer_block_devices(request)
    }

    fn serve_block_devices(
        &self,
        request: &ServeBlockDevicesRequest,
        listener: Option<OwnedFd>,
        tell: &mut dyn FnMut(Option<ServingInfo>) -> ControlFlow<()>,
    ) -> Result<(), AdminError> {
        self.serve_block_devices_at(request, listener, tell)
    }

    fn receive(
        &self,
        request: &ReceiveRequest,
        from: Option<OwnedFd>,
    ) -> Result<ReceivedInfo, AdminError> {
        self.receive_stream(request, from)
    }

    fn set(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &SetRequest,
    ) -> Result<ViewInfo, AdminError> {
        let view = match mount {
            Some(mount) => self.mounted(mount)?,
            None => {
                let first = self.views.all().into_iter().next();
                first.ok_or_else(|| AdminError("it is no longer mounted".into()))?
            }
        };
        self.set_options(&view, request)?;
        Ok(self.view_info(&view, &self.volume.disk().versions()))
    }

    fn sync(&self) -> Result<(), AdminError> {
        self.sync_all()
    }

    fn shut_down(&self) -> Result<(), AdminError> {
        let views = self.views.all();
        if let Some(view) = views.iter().find(|view| view.is_elsewhere()) {
            return Err(AdminError(format!(
                "{}: goes when the processes in that namespace end",
                view.place()
            )));
        }
        views.iter().try_for_each(|view| view.unmount(UnmountMode::Idle).map_err(refuse))
    }
}

impl Cleaning for Daemon<'_> {
    fn present(&self) -> CleaningStatus {
        cleaning::present(self.volume.disk())
    }

    fn segments(&self, request: &SegmentsRequest) -> Result<Segments, AdminError> {
        Ok(cleaning::segments(self.volume.disk(), request))
    }

    fn blocks(&self, request: &BlocksRequest) -> Result<Blocks, AdminError> {
        cleaning::blocks(self.volume.disk(), request)
    }

    fn bmapv(&self, blocks: &[NamedBlock]) -> Result<Places, AdminError> {
        cleaning::bmapv(self.volume.disk(), blocks)
    }

    fn markv(&self, blocks: &[NamedBlock]) -> Result<Marked, AdminError> {
        cleaning::markv(self.volume.disk(), blocks)
    }

    fn segclean(&self, segments: &[u32]) -> Result<Released, AdminError> {
        cleaning::segclean(self.volume.disk(), segments)
    }
}
