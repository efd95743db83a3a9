//! Mounts that a command has made and the daemon then serves.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use dendro_control::{AdminError, MountReply, MountRequest, UnmountRequest, ViewInfo};
use dendro_disk::{LogicalDisk, Versions, View};
use dendro_fuse::{Mount, MountOptions as FuseOptions, Mounted, Order, UnmountMode};

use super::answers::version_text;
use super::refusal::refuse;
use crate::options::MountOptions;
use crate::serving::report;
use crate::state::Daemon;
use crate::views::{Closing, MountPlace, MountedView};

impl Daemon<'_> {
    /// Serves a mount that the client has made.
    pub(super) fn serve_received(
        &self,
        request: &MountRequest,
        device: Option<OwnedFd>,
    ) -> Result<MountReply, AdminError> {
        match self.views.arrive() {
            None => Ok(MountReply::Ending),
            Some(_arrival) => {
                let view = self.serve_one_more(request, device)?;
                Ok(MountReply::Served(Box::new(view)))
            }
        }
    }

    fn serve_one_more(
        &self,
        request: &MountRequest,
        device: Option<OwnedFd>,
    ) -> Result<ViewInfo, AdminError> {
        let options = MountOptions::parse([&*request.options]).map_err(AdminError)?;
        self.wait_for_unmounted(request);
        let _changes = self.changes.lock();
        let view = self.volume.resolve(&request.of).map_err(AdminError)?;
        self.check_free(view)?;
        self.check_writable(&options)?;
        check_order(&options, request.namespace == self.namespace)?;
        if request.dry_run {
            let View { branch, epoch } = view;
            let version = version_text(&self.volume.disk().versions(), view);
            return Ok(ViewInfo { branch, epoch, version, ..ViewInfo::default() });
        }
        let device = device.ok_or_else(|| AdminError("no connection came with it".into()))?;
        let place = MountPlace {
            id: self.views.new_id(),
            mount_point: request.mount_point.clone().into(),
            device: request.device.clone(),
            mount_id: request.mount_id,
            namespace: request.namespace.clone(),
            is_fuseblk: false,
            on_behalf_of: None,
        };
        let mounted = Mounted::received(
            device,
            Path::new(&request.mount_point),
            connection_number(&request.device),
            place.namespace != self.namespace,
        );
        let fs = self.volume.open_view(view, &options).map_err(refuse)?;
        let serving = FuseOptions {
            access: options.access.unwrap_or_default(),
            threads: options.threads,
            transport: options.transport,
            sync: options.sync,
            dirsync: options.dirsync,
            order: options.order,
            xattr: options.xattr,
            past: self.past(view, &options),
            timings: Some(Arc::clone(&self.timings)),
            ..FuseOptions::default()
        };
        let mount = Mount::serving(mounted.map_err(refuse)?, fs, &serving, report(self.volume));
        let mount = mount.map_err(refuse)?;
        let closing = Arc::new(Closing::new(mount.switch()));
        let view = self.add(mount, closing, place, &options);
        self.write_card();
        Ok(self.view_info(&view, &self.volume.disk().versions()))
    }

    /// The mount of `view` that prevents another one. Two writable mounts of one view would not see
    /// each other's changes, because the kernel caches what it has read of each.
    fn conflicting_mount(&self, view: View) -> Option<Arc<MountedView>> {
        let can_change = view.epoch.is_none() && self.volume.disk().read_only_reason().is_none();
        self.views.all_open().into_iter().find(|other| can_change && other.view() == view)
    }

    /// Waits until an earlier mount of the same view is closed. umount(2) returns before that.
    pub(super) fn wait_for_unmounted(&self, request: &MountRequest) {
        if let Ok(view) = self.volume.resolve(&request.of) {
            // If that takes too long, `check_free` refuses.
            let _ = self.views.settle(|other| other.view() == view);
        }
    }

    /// Refuses a writable mount if nothing can be written.
    pub(super) fn check_writable(&self, options: &MountOptions) -> Result<(), AdminError> {
        let Some(why) = self.volume.disk().read_only_reason().filter(|_| !options.read_only) else {
            return Ok(());
        };
        let pid = std::process::id();
        if self.volume.is_read_only() {
            return Err(AdminError(format!(
                "it is open for reading alone, by process {pid}, which serves {}: {why}; mount it \
                 with -o ro, or unmount what is mounted first",
                self.mount_point.display()
            )));
        }
        let places: Vec<_> = self.views.all().iter().map(|view| view.place()).collect();
        Err(AdminError(format!(
            "it takes no changes any more: {why}; unmount {}, which process {pid} serves, and mount \
             it again: that recovers all that was durable",
            places.join(" and ")
        )))
    }

    pub(super) fn check_free(&self, view: View) -> Result<(), AdminError> {
        match self.conflicting_mount(view) {
            None => Ok(()),
            Some(other) => Err(AdminError(format!(
                "{} is mounted already, on {}; `mount --bind` shows it in another place too, and \
                 `dendro clone` makes a branch of its own",
                version_text(&self.volume.disk().versions(), view),
                other.place()
            ))),
        }
    }
}

/// Refuses `order=close` for a mount that this process cannot reach, so that it could not ask for
/// what the kernel collects.
pub(super) fn check_order(options: &MountOptions, is_reached: bool) -> Result<(), AdminError> {
    match options.order {
        Order::Close if !is_reached => Err(AdminError(
            "order=close: only in the mount namespace of the daemon, and not for other users"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// The number of a FUSE connection: the minor device number of the mounted file system, unless that
/// is a block device.
fn connection_number(device: &str) -> Option<u32> {
    device.strip_prefix("0:")?.parse().ok()
}

/// Unmounts one mount.
pub(super) fn unmount(view: &MountedView, how: UnmountRequest) -> Result<(), AdminError> {
    let mode = if how.force { UnmountMode::Abort } else { UnmountMode::Idle };
    match view.is_elsewhere() {
        true => Err(AdminError(format!(
            "{}: goes when the processes in that namespace end",
            view.place()
        ))),
        false => view.unmount(mode).map_err(AdminError),
    }
}
