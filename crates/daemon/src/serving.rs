//! Serving a mount, from the start to its end.
//!
//! - [`first`]: the mount that the process was started for. [`end`]: unmounting.

mod end;
mod first;

pub(crate) use end::not_shut_down;

use std::sync::Arc;
use std::thread::Scope;

use dendro_disk::{Error as DiskError, View};
use dendro_fs::FsError;
use dendro_fuse::{Mount, Past, Report};

use self::end::detach;
use crate::failure::Failure;
use crate::options::MountOptions;
use crate::state::Daemon;
use crate::threads::spawn;
use crate::views::{Closing, HiddenDirectory, MountPlace, MountedView};
use crate::volume::{Volume, clock};

/// Logs errors of the file system that an errno alone does not explain.
pub(crate) fn report(volume: &Volume) -> Arc<Report> {
    let (disk, _) = volume.parts();
    Arc::new(move |operation: &str, error: &FsError| {
        // Damaged blocks are logged once, by the damage table, with their place.
        let is_recorded = match error {
            FsError::Disk(DiskError::Corrupted(why) | DiskError::Io(why)) => {
                disk.damage().knows(why)
            }
            _ => false,
        };
        if !is_recorded {
            log::error!("{operation}: {error}");
        }
    })
}

impl Daemon<'_> {
    /// The hidden directory of a mount of `view`.
    pub(crate) fn past(&self, view: View, options: &MountOptions) -> Option<Arc<dyn Past>> {
        let is_shown = view.epoch.is_none() && options.snapdir;
        is_shown.then(|| {
            let (disk, _) = self.volume.parts();
            Arc::new(HiddenDirectory::new(disk, view, clock())) as _
        })
    }

    /// Adds a mount, which the main thread then has served.
    pub(crate) fn add(
        &self,
        mount: Mount,
        closing: Arc<Closing>,
        place: MountPlace,
        options: &MountOptions,
    ) -> Arc<MountedView> {
        let view = MountedView::new(&mount, closing, place, options, &self.namespace);
        self.views.add(mount, view)
    }

    /// Starts the thread that serves a mount.
    pub(crate) fn start_serving<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mount: Mount,
        view: Arc<MountedView>,
    ) {
        let served = Arc::clone(&view);
        if let Err(error) = spawn(scope, "view", move || self.serve(mount, &served)) {
            // The connection is closed, so programs that use the mount get errors.
            log::error!("{}: cannot be served: {error}", view.place());
            detach(&view);
            self.views.remove(&view);
        }
    }

    /// Serves a mount until it ends.
    fn serve(&self, mount: Mount, view: &Arc<MountedView>) {
        let served = mount.serve();
        view.closing().begin();
        self.write_card();
        if view.is_fuseblk() && !view.closing().has_shut_down() {
            // The mount had the claim on the device. Other views still need it; so does this one if
            // it was cut off.
            if let Err(failure) = self.volume.take_claim() {
                log::error!("{}; nothing more is written to it", failure.message);
                std::process::exit(1);
            }
        }
        let closed = view.closing().close(|| None);
        let failures = [
            served.err().map(|error| format!("{}: serving ended: {error}", view.place())),
            closed.err().map(|error| not_shut_down(self.volume, &error)),
        ];
        for message in failures.into_iter().flatten() {
            log::error!("{message}");
            self.note_failure(Failure::new(message));
        }
        self.views.remove(view);
        self.write_card();
    }
}
