//! The service that carries out requests about versions.

use std::sync::Arc;

use dendro_control::{AdminError, MountNamed};
use dendro_versions::Service;

use crate::state::Daemon;
use crate::views::MountedView;

impl Daemon<'_> {
    /// The service for requests in `mount`. It does not take the mount `but` into account.
    pub(super) fn service(
        &self,
        mount: Option<MountNamed<'_>>,
        but: Option<&Arc<MountedView>>,
    ) -> Result<Service, AdminError> {
        let views = self.views.all_open();
        let switches: Vec<_> = views.iter().map(|view| view.switch().clone()).collect();
        let service = self.volume.versions().with_exported(self.block_devices.open_views());
        let mut service = service.on_new_name(move |view, parent, name| {
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

    /// Waits until everything is written that was unmounted, before versions are deleted or
    /// replaced.
    pub(super) fn settle(&self) -> Result<(), AdminError> {
        match self.views.settle(|_| true) {
            true => Ok(()),
            false => Err(AdminError(
                "a mount of it is being unmounted, and not all of that is written yet; try again"
                    .into(),
            )),
        }
    }
}
