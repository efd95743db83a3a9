//! Unmounting: at a signal, or if a mount cannot be served.

use std::fs::File;

use dendro_fuse::UnmountMode;

use crate::state::Daemon;
use crate::views::MountedView;
use crate::volume::Volume;

pub(crate) fn not_shut_down(volume: &Volume, error: &dyn std::fmt::Display) -> String {
    if volume.disk().waits_for_host() {
        return format!(
            "{}, so the last of it could not be written; the next mount recovers what was synced",
            volume.host_is_full()
        );
    }
    format!(
        "{}: could not be shut down cleanly, the next mount recovers it: {error}",
        volume.source().display()
    )
}

/// Detaches a mount from the directory tree, if that is possible from here.
pub(super) fn detach(view: &MountedView) {
    let _ = view.unmount(UnmountMode::Detach);
}

impl Daemon<'_> {
    pub(crate) fn detach_all(&self) {
        self.views.all_open().iter().for_each(|view| detach(view));
    }

    /// Handles Ctrl-C and SIGTERM. All accepted data are kept. Open files do not keep the daemon
    /// running.
    pub(crate) fn unmount_on_signal(&self) {
        let views = self.views.all();
        let mut stays_mounted = false;
        for view in &views {
            if view.is_elsewhere() {
                log::warn!("{}: goes with its processes", view.place());
                continue;
            }
            if view.is_at_hand() {
                // The kernel still holds pages that programs have mapped and changed.
                let synced = File::open(view.mount_point()).map(|root| rustix::fs::syncfs(&root));
                if let Ok(Err(error)) = synced {
                    log::error!("changes to mapped files are lost: {error}");
                }
            }
            let unmounted = view.unmount(UnmountMode::Idle).or_else(|error| {
                log::warn!("{error}; cutting it off");
                view.unmount(UnmountMode::Abort)
            });
            // A mount that has gone meanwhile is no failure.
            if let Err(error) = unmounted
                && view.switch().is_mounted()
            {
                let place = view.place();
                log::error!(
                    "{error}; {place} stays there, dead: `dendro umount {place}` clears it away"
                );
                stays_mounted = true;
            }
        }
        if stays_mounted || views.iter().any(|view| view.is_elsewhere()) {
            self.end_without_unmounting();
        }
    }

    /// Ends the process while mounts remain. A mount in another namespace cannot be unmounted from
    /// here, nor can a user's mount for which fusermount3 fails. The kernel cuts it off when the
    /// process ends, so all data must be written before.
    fn end_without_unmounting(&self) -> ! {
        self.block_server.end();
        let closed =
            self.views.all_open().iter().try_for_each(|view| view.closing().close(|| None));
        let ended =
            closed.and_then(|()| self.volume.shut_down().map_err(|error| error.to_string()));
        if let Err(error) = &ended {
            log::error!("{}", not_shut_down(self.volume, error));
        }
        std::process::exit(i32::from(ended.is_err()))
    }
}
