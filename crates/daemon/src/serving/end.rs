//! How mounts are taken away: at a signal, or where they cannot be served.

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

/// Takes a mount out of the tree, as far as that can be done from here.
pub(super) fn detach(view: &MountedView) {
    let _ = view.unmount(UnmountMode::Detach);
}

impl Daemon<'_> {
    pub(crate) fn detach_all(&self) {
        self.views.all_open().iter().for_each(|view| detach(view));
    }

    /// Ctrl-C and SIGTERM: everything accepted is kept, and files that are open are no reason to
    /// stay.
    pub(crate) fn unmount_on_signal(&self) {
        let views = self.views.all();
        let mut stays_mounted = false;
        for view in &views {
            if view.is_elsewhere {
                log::warn!("{}: goes with its processes", view.place());
                continue;
            }
            if view.is_at_hand() {
                // Pages that programs have mapped and changed are in the kernel still.
                let synced = File::open(&view.mount_point).map(|root| rustix::fs::syncfs(&root));
                if let Ok(Err(error)) = synced {
                    log::error!("changes to mapped files are lost: {error}");
                }
            }
            let unmounted = view.unmount(UnmountMode::Idle).or_else(|error| {
                log::warn!("{error}; cutting it off");
                view.unmount(UnmountMode::Abort)
            });
            // What has gone meanwhile need not be taken away.
            if let Err(error) = unmounted
                && view.switch.is_mounted()
            {
                let place = view.place();
                log::error!(
                    "{error}; {place} stays there, dead: `dendro umount {place}` clears it away"
                );
                stays_mounted = true;
            }
        }
        if stays_mounted || views.iter().any(|view| view.is_elsewhere) {
            self.end_without_unmounting();
        }
    }

    /// A mount in another namespace cannot be taken away from here, nor can a user's that fusermount3 fails for.
    /// It is cut off when its connection
    /// is closed, with the process; so nothing must be left to write by then.
    fn end_without_unmounting(&self) -> ! {
        let closed = self.views.all_open().iter().try_for_each(|view| view.closing.close(|| None));
        let ended =
            closed.and_then(|()| self.volume.shut_down().map_err(|error| error.to_string()));
        if let Err(error) = &ended {
            log::error!("{}", not_shut_down(self.volume, error));
        }
        std::process::exit(i32::from(ended.is_err()))
    }
}
