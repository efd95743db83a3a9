//! The options of mounts: which are in force, and how they are changed while it is mounted.

use dendro_control::cleaning::CleanerChange;
use dendro_control::{AdminError, SetRequest};
use dendro_fuse::Access;
use dendro_logdisk::OpenOptions;

use super::Daemon;
use super::views::MountedView;
use crate::cleaning::service;
use crate::memory::default_cache_bytes;
use crate::mount_options::MountOptions;
use crate::versions::Automatic;

impl Daemon<'_> {
    /// The options of a mount with those of the whole volume, as they are now.
    pub(super) fn in_force(&self, view: &MountedView) -> MountOptions {
        let own = view.options.lock().clone();
        let of_volume = self.options.lock().clone();
        let disk = self.volume.disk();
        let default = OpenOptions::default();
        let access = if rustix::process::geteuid().is_root() { Access::All } else { Access::Owner };
        let mut in_force = MountOptions {
            read_only: own.read_only || self.volume.is_read_only(),
            access: own.access.or(Some(access)),
            commit_interval: of_volume.commit_interval,
            cache_bytes: of_volume.cache_bytes.or_else(|| Some(default_cache_bytes())),
            checkpoint_bytes: of_volume.checkpoint_bytes.or(Some(default.checkpoint_log_bytes)),
            policy: Some(disk.policy().kind()),
            reserve_percent: of_volume.reserve_percent.or(Some(default.reserve_percent)),
            coalesce: Some(disk.clean_settings().coalescing.is_on),
            discard: of_volume.discard,
            metrics: of_volume.metrics,
            direct: of_volume.direct,
            on_loss: of_volume.on_loss,
            ..own
        };
        in_force.note_told(&view.told.lock());
        in_force
    }

    /// Changes what `request` asks for, all of it or nothing.
    pub(super) fn set_options(
        &self,
        view: &MountedView,
        request: &SetRequest,
    ) -> Result<(), AdminError> {
        // One at a time, and none while a snapshot is made by the rule that was.
        let _changes = self.changes.lock();
        if !request.told.is_empty() {
            view.told.lock().clone_from(&request.told);
        }
        let now = self.in_force(view);
        let lists = request.options.iter().map(String::as_str);
        let new = now.changed(lists, request.remount).map_err(AdminError)?;
        if new == now {
            return Ok(());
        }
        if self.volume.is_read_only() {
            return Err(AdminError(
                "it is open for reading alone: these options do nothing".into(),
            ));
        }
        if new.delegates != now.delegates {
            new.check_delegation().map_err(AdminError)?;
        }
        let cleaner = CleanerChange {
            policy: new.policy.filter(|_| new.policy != now.policy).map(|kind| kind.name().into()),
            coalesce: new.coalesce.filter(|_| new.coalesce != now.coalesce),
            ..CleanerChange::default()
        };
        service::change_cleaner(self.volume.disk(), &cleaner)?;
        if new.retain != now.retain {
            let rule = new.retain.clone().filter(|_| !new.read_only);
            *view.automatic.lock() = rule.map(Automatic::new);
        }
        view.fs().set_atime_policy(new.atime);
        self.options.lock().commit_interval = new.commit_interval;
        {
            let mut own = view.options.lock();
            own.retain.clone_from(&new.retain);
            own.atime = new.atime;
            own.delegates.clone_from(&new.delegates);
        }
        if new.commit_interval != now.commit_interval {
            self.stop.wake();
        }
        Ok(())
    }
}
