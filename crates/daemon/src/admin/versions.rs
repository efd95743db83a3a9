//! Requests about versions.

use std::sync::Arc;

use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{AdminError, MountNamed};
use dendro_versions::{Asker, Service};

use crate::state::Daemon;
use crate::views::MountedView;

impl Daemon<'_> {
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
            shown.for_each(|switch| switch.tell_new_name(parent, name));
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
}
