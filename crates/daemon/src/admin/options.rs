//! Changes of a mount's options while it is mounted.

use dendro_control::cleaning::CleanerChange;
use dendro_control::{AdminError, SetRequest};

use crate::cleaning;
use crate::state::Daemon;
use crate::views::MountedView;

impl Daemon<'_> {
    /// Changes what `request` asks for: all of it, or nothing.
    pub(super) fn set_options(
        &self,
        view: &MountedView,
        request: &SetRequest,
    ) -> Result<(), AdminError> {
        // One change at a time, and none while a snapshot is made by the old rule.
        let _changes = self.changes.lock();
        if !request.told.is_empty() {
            view.note_kernel_options(&request.told);
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
        cleaning::change_cleaner(self.volume.disk(), &cleaner)?;
        view.change_options(&now, &new);
        self.options.lock().commit_interval = new.commit_interval;
        if new.commit_interval != now.commit_interval {
            self.stop.wake();
        }
        Ok(())
    }
}
