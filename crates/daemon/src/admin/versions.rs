//! Requests about versions.

use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{AdminError, MountNamed};
use dendro_versions::Asker;

use crate::state::Daemon;

impl Daemon<'_> {
    /// Carries out a request about versions with the rights of `asker`; without one, with all
    /// rights.
    pub(super) fn versions_for(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &VersionsRequest,
        asker: Option<Asker>,
    ) -> Result<VersionsReply, AdminError> {
        use VersionsRequest::{Delete, DeleteClient, Promote, Replace, Rollback, Snapshot};
        // What is looked at, or kept, has what programs had written by now.
        if request.sees_files() {
            self.take_collected();
        }
        // No view is mounted, or opened as a block device, while it is being deleted.
        match request {
            Promote { .. } | Replace { .. } | Rollback { .. } => {
                self.settle()?;
                let _changes = self.changes.lock();
                let _changing = self.block_devices.changing();
                let reply = self.hand_over(mount, request, asker)?;
                // The main branch may have a new head, which has no record of the damage
                // and the scrub.
                self.scrub.keep(self.volume.disk());
                let kept = self.damage.look_again(self.volume.disk());
                if let Err(error) = kept.and_then(|()| self.volume.commit()) {
                    log::warn!("the damage that was met cannot be written down again: {error}");
                }
                Ok(reply)
            }
            Delete { .. } | DeleteClient { .. } => {
                self.settle()?;
                let _changes = self.changes.lock();
                let _changing = self.block_devices.changing();
                self.service(mount, None)?.asked_by(asker).answer(request)
            }
            // The owner of the next snapshot is recorded before the snapshot is made.
            Snapshot { .. } => {
                let _changes = self.changes.lock();
                self.service(mount, None)?.asked_by(asker).answer(request)
            }
            _ => self.service(mount, None)?.asked_by(asker).answer(request),
        }
    }
}
