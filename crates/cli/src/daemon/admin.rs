//! What a daemon answers at the control socket.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::cleaning::{
    Block, Blocks, BlocksRequest, CleanerChange, CleanerSettings, Cleaning, Marked, Places,
    Present, Released, Segments, SegmentsRequest,
};
use dendro_control::coalescing::{CoalesceRequest, Coalesced};
use dendro_control::damage::{DamageInfo, DamageRequest};
use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Caller, Facts, MountInfo, MountNamed, MountReply, MountRequest, Outcome,
    Pong, Request, SetRequest, UnmountRequest, ViewInfo, VolumeInfo,
};
use dendro_disk::{LogicalDisk, VersionTable, Versions, View};
use dendro_fs::MemoryUse;
use dendro_fuse::{Mount, MountOptions as FuseOptions, Mounted, UnmountMode};
use dendro_versions::{Asker, Service};

use super::views::{Closing, MountedView};
use super::{Daemon, MountPlace, others, report};
use crate::cleaning::service;
use crate::counters;
use crate::damage;
use crate::logging;
use crate::memory::resident_bytes;
use crate::mount_options::MountOptions;

pub(super) fn refuse(why: impl std::fmt::Display) -> AdminError {
    AdminError(why.to_string())
}

/// What a version is called.
fn version_text(table: &VersionTable, view: View) -> String {
    let branch = table.branch_of(view).map(|branch| format!(":{}", branch.name));
    let snapshot = || {
        let name = table.snapshot_of(view).and_then(|snapshot| snapshot.name.clone());
        name.or_else(|| view.epoch.map(|epoch| epoch.to_string())).map(|name| format!("@{name}"))
    };
    branch.or_else(snapshot).unwrap_or_default()
}

impl Daemon<'_> {
    /// What is in memory beside what the disk knows of.
    fn memory(&self) -> counters::Memory {
        let mut mounts = MemoryUse::default();
        for view in self.views.all() {
            mounts += view.fs().memory_use();
        }
        let read_ahead_bytes = self.volume.read_ahead_bytes();
        counters::Memory { mounts, read_ahead_bytes, resident_bytes: resident_bytes() }
    }

    /// What counters are made of.
    fn known(&self) -> counters::Known<'_> {
        let now = SystemClock.now();
        let since_ns = now.0.saturating_sub(self.since.0);
        let disk = self.volume.disk();
        counters::Known {
            memory: self.memory(),
            timings: &self.timings,
            mounted_for: Duration::from_nanos(u64::try_from(since_ns).unwrap_or(0)),
            is_latched: !self.volume.is_read_only() && disk.read_only_reason().is_some(),
            now,
        }
    }

    /// What carries out requests about versions in `mount`. It does not know of `but`.
    pub(super) fn service(
        &self,
        mount: Option<MountNamed<'_>>,
        but: Option<&Arc<MountedView>>,
    ) -> Result<Service, AdminError> {
        let views = self.views.all_open();
        let switches: Vec<_> = views.iter().map(|view| view.switch.clone()).collect();
        let mut service = self.volume.versions().telling(move |view, parent, name| {
            let shown = switches.iter().filter(|switch| switch.fs().view() == view);
            shown.for_each(|switch| switch.notify_new_name(parent, name));
        });
        for view in views {
            if !but.is_some_and(|but| Arc::ptr_eq(but, &view)) {
                service = service.with_mounted(view.fs(), view.place());
            }
        }
        match mount {
            None => Ok(service),
            Some(mount) => Ok(service.at(self.mounted(mount)?.view())),
        }
    }

    /// The mount that is meant.
    pub(super) fn mounted(&self, mount: MountNamed<'_>) -> Result<Arc<MountedView>, AdminError> {
        let view = self.views.find(mount);
        view.ok_or_else(|| AdminError("it is no longer mounted there".into()))
    }

    /// Does what `asker` asks about versions; without one, somebody who may ask for everything.
    pub(super) fn versions_for(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
        asker: Option<Asker>,
    ) -> Result<VersionsReply, AdminError> {
        use VersionsRequest::{Delete, Promote, Replace, Rollback, Snapshot};
        // No view is mounted while it is being taken away.
        match request {
            Promote { .. } | Replace { .. } | Rollback { .. } => {
                self.settle()?;
                let _changes = self.changes.lock();
                let reply = self.succeed(mount, request, asker)?;
                // The main branch may have another head now, which does not know of it.
                self.damage.look_again(self.volume.disk());
                let kept = self.damage.keep(self.volume.disk());
                if let Err(error) = kept.and_then(|()| self.volume.commit()) {
                    log::warn!("the damage that was met cannot be written down again: {error}");
                }
                Ok(reply)
            }
            Delete { .. } => {
                self.settle()?;
                let _changes = self.changes.lock();
                self.service(mount, None)?.asked_by(asker).answer(request)
            }
            // Whose the next snapshot will be is written down before it is made.
            Snapshot { .. } => {
                let _changes = self.changes.lock();
                self.service(mount, None)?.asked_by(asker).answer(request)
            }
            _ => self.service(mount, None)?.asked_by(asker).answer(request),
        }
    }

    /// Waits until what was unmounted is written, before versions are taken away or exchanged.
    fn settle(&self) -> Result<(), AdminError> {
        match self.views.settle(|_| true) {
            true => Ok(()),
            false => Err(AdminError(
                "a mount of it is being unmounted, and not all of that is written yet; try again"
                    .into(),
            )),
        }
    }

    /// A mount with what takes a look at the disk.
    pub(super) fn view_info(&self, view: &MountedView, table: &VersionTable) -> ViewInfo {
        let mut info = view.info();
        info.version = version_text(table, view.view());
        info.is_main = info.branch == table.main;
        info.options = self.in_force(view).in_force();
        info.read_only = self.volume.disk().read_only_reason().or_else(|| match info.epoch {
            Some(_) => Some("it shows the past".into()),
            None => info.read_only,
        });
        info
    }

    /// Two mounts of what can be changed would not see each other's changes, since the kernel caches
    /// what it has read of each.
    fn in_the_way(&self, view: View) -> Option<Arc<MountedView>> {
        let can_change = view.epoch.is_none() && self.volume.disk().read_only_reason().is_none();
        self.views.all_open().into_iter().find(|other| can_change && other.view() == view)
    }

    /// umount(2) does not wait for the file system to be closed; the next mount does.
    pub(super) fn wait_for_unmounted(&self, request: &MountRequest) {
        if let Ok(view) = self.volume.resolve(&request.of) {
            // Where that takes too long, it is in the way.
            let _ = self.views.settle(|other| other.view() == view);
        }
    }

    /// Refuses a mount for writing where nothing can be written.
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
        match self.in_the_way(view) {
            None => Ok(()),
            Some(other) => Err(AdminError(format!(
                "{} is mounted already, on {}; `mount --bind` shows it in another place too, and \
                 `dendro clone` makes a branch of its own",
                version_text(&self.volume.disk().versions(), view),
                other.place()
            ))),
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
            lent_to: None,
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
            past: self.past(view, &options),
            timings: Some(Arc::clone(&self.timings)),
            ..FuseOptions::default()
        };
        let mount = Mount::serving(mounted.map_err(refuse)?, fs, &serving, report(self.volume));
        let mount = mount.map_err(refuse)?;
        let closing = Arc::new(Closing::new(mount.switch()));
        let view = self.add(mount, closing, place, &options);
        self.leave_card();
        Ok(self.view_info(&view, &self.volume.disk().versions()))
    }
}

/// The number of a connection: the minor one of the mounted file system, unless that is a block
/// device.
fn connection_number(device: &str) -> Option<u32> {
    device.strip_prefix("0:")?.parse().ok()
}

impl Admin for Daemon<'_> {
    fn ping(&self) -> Pong {
        let views = self.views.all();
        let has_gone = |view: &Arc<MountedView>| !views.iter().any(|of| Arc::ptr_eq(of, view));
        let closing = self.views.all_open().into_iter().filter(has_gone);
        let closing = closing.map(|view| view.info()).collect();
        Pong {
            software: env!("CARGO_PKG_VERSION").into(),
            daemon: self.name.clone(),
            pid: std::process::id(),
            uuid: self.volume.uuid().to_string(),
            source: self.volume.source().display().to_string(),
            mount_point: self.mount_point.display().to_string(),
            views: views.iter().map(|view| view.info()).collect(),
            closing,
        }
    }

    fn info(&self) -> Result<VolumeInfo, AdminError> {
        let mut info = self.volume.info();
        let met = self.damage.info(self.volume.disk(), false);
        info.met_damage = Some(met).filter(|met| met.place_count > 0);
        let table = self.volume.disk().versions();
        let views: Vec<_> =
            self.views.all().iter().map(|view| self.view_info(view, &table)).collect();
        info.mount = Some(MountInfo {
            mount_point: self.mount_point.display().to_string(),
            pid: std::process::id(),
            software: env!("CARGO_PKG_VERSION").into(),
            read_only: self.volume.disk().read_only_reason(),
            since_unix_s: self.since.secs(),
            transport: views.first().map(|view| view.transport.clone()).unwrap_or_default(),
            log: logging::place(),
            // The one who asks knows.
            socket: String::new(),
            views,
        });
        Ok(info)
    }

    fn stat(&self) -> Result<Facts, AdminError> {
        let disk = self.volume.disk();
        let mut facts = counters::facts(disk, &self.known());
        facts.extend(damage::facts(&self.damage.info(disk, false)));
        Ok(facts)
    }

    fn metrics(&self) -> Result<String, AdminError> {
        let source = self.volume.source().display().to_string();
        let mount_point = self.mount_point.display().to_string();
        let disk = self.volume.disk();
        let damage = damage::metrics(&self.damage.info(disk, false));
        Ok(counters::metrics(disk, &self.known(), &source, &mount_point) + &damage)
    }

    fn change_cleaner(&self, change: &CleanerChange) -> Result<CleanerSettings, AdminError> {
        service::change_cleaner(self.volume.disk(), change)
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
        service::coalesce(self.volume.disk(), view, request)
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
        match self.views.arrive() {
            None => Ok(MountReply::Ending),
            Some(_arrival) => {
                let view = self.serve_one_more(request, device)?;
                Ok(MountReply::Served(Box::new(view)))
            }
        }
    }

    fn unmount(
        &self,
        mount: Option<MountNamed<'_>>,
        request: UnmountRequest,
    ) -> Result<(), AdminError> {
        let mount = mount.ok_or_else(|| AdminError("say which mount".into()))?;
        others::unmount(&*self.mounted(mount)?, request)
    }

    fn damage(&self, request: DamageRequest) -> Result<DamageInfo, AdminError> {
        self.tell_damage(request)
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
        self.views.all().iter().try_for_each(|view| view.fs().sync_all()).map_err(refuse)?;
        self.volume.commit().map_err(refuse)
    }

    fn shut_down(&self) -> Result<(), AdminError> {
        let views = self.views.all();
        if let Some(view) = views.iter().find(|view| view.is_elsewhere) {
            return Err(AdminError(format!(
                "{}: goes when the processes in that namespace end",
                view.place()
            )));
        }
        views.iter().try_for_each(|view| view.unmount(UnmountMode::Idle).map_err(refuse))
    }
}

impl Cleaning for Daemon<'_> {
    fn present(&self) -> Present {
        service::present(self.volume.disk())
    }

    fn segments(&self, request: &SegmentsRequest) -> Result<Segments, AdminError> {
        Ok(service::segments(self.volume.disk(), request))
    }

    fn blocks(&self, request: &BlocksRequest) -> Result<Blocks, AdminError> {
        service::blocks(self.volume.disk(), request)
    }

    fn bmapv(&self, blocks: &[Block]) -> Result<Places, AdminError> {
        service::bmapv(self.volume.disk(), blocks)
    }

    fn markv(&self, blocks: &[Block]) -> Result<Marked, AdminError> {
        service::markv(self.volume.disk(), blocks)
    }

    fn segclean(&self, segments: &[u32]) -> Result<Released, AdminError> {
        service::segclean(self.volume.disk(), segments)
    }
}
