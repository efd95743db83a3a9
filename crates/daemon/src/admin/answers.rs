//! What the daemon reports about the volume and its mounts.

use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::{AdminError, Facts, MountInfo, ViewInfo, VolumeInfo};
use dendro_disk::{LogicalDisk, VersionTable, Versions, View};
use dendro_fs::MemoryUse;

use super::refusal::refuse;
use crate::state::Daemon;
use crate::views::MountedView;
use crate::volume::compression_kinds;
use crate::volume::memory::resident_bytes;
use crate::{check, damage, logging, metrics, scrub};

/// The name of a version, as commands take it.
pub(super) fn version_text(table: &VersionTable, view: View) -> String {
    let branch = table.branch_of(view).map(|branch| format!(":{}", branch.name));
    let snapshot = || {
        let name = table.snapshot_of(view).and_then(|snapshot| snapshot.name.clone());
        name.or_else(|| view.epoch.map(|epoch| epoch.to_string())).map(|name| format!("@{name}"))
    };
    branch.or_else(snapshot).unwrap_or_default()
}

impl Daemon<'_> {
    /// Memory that the disk does not count itself.
    fn memory(&self) -> metrics::Memory {
        let mut mounts = MemoryUse::default();
        for view in self.views.all() {
            mounts += view.fs().memory_use();
        }
        let read_ahead_bytes = self.volume.read_ahead_bytes();
        metrics::Memory { mounts, read_ahead_bytes, resident_bytes: resident_bytes() }
    }

    /// What the metrics need besides the disk's own statistics.
    fn context(&self) -> metrics::Context<'_> {
        let now = SystemClock.now();
        let since_ns = now.0.saturating_sub(self.since.0);
        let disk = self.volume.disk();
        metrics::Context {
            memory: self.memory(),
            timings: &self.timings,
            blocks: &self.block_activity,
            mounted_for: Duration::from_nanos(u64::try_from(since_ns).unwrap_or(0)),
            is_latched: !self.volume.is_read_only() && disk.read_only_reason().is_some(),
            now,
        }
    }

    /// Describes a mount, with the facts that need a look at the disk.
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

    pub(super) fn volume_info(&self) -> Result<VolumeInfo, AdminError> {
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
            // The client knows it already.
            socket: String::new(),
            views,
        });
        info.served = self.block_server.info();
        info.compression_in_force = Some(compression_kinds(self.compression_in_force()));
        Ok(info)
    }

    pub(super) fn statistics(&self) -> Result<Facts, AdminError> {
        let disk = self.volume.disk();
        let mut facts = metrics::facts(disk, &self.context());
        facts.extend(damage::facts(&self.damage.info(disk, false)));
        facts.extend(scrub::facts(&self.scrub.info(disk)));
        facts.extend(check::report::facts(&self.checks.info()));
        Ok(facts)
    }

    pub(super) fn metrics_text(&self) -> Result<String, AdminError> {
        let source = self.volume.source().display().to_string();
        let mount_point = self.mount_point.display().to_string();
        let disk = self.volume.disk();
        let damage = damage::exposition(&self.damage.info(disk, false));
        let scrub = scrub::exposition(&self.scrub.info(disk));
        let check = check::report::exposition(&self.checks.info());
        let own = metrics::exposition(disk, &self.context(), &source, &mount_point);
        Ok(own + &damage + &scrub + &check)
    }

    pub(super) fn sync_all(&self) -> Result<(), AdminError> {
        self.take_collected();
        self.views.all().iter().try_for_each(|view| view.fs().sync_all()).map_err(refuse)?;
        self.volume.commit().map_err(refuse)
    }
}
