//! Serving a mount, from the start to its end.
//!
//! - [`first`]: the mount that the process was started for. [`end`]: unmounting.

mod end;
mod first;

pub(crate) use end::not_shut_down;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Scope;

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock};
use dendro_disk::{Error as DiskError, View};
use dendro_fs::FsError;
use dendro_fuse::{Mount, Past, Report};

use self::end::detach;
use crate::failure::Failure;
use crate::options::MountOptions;
use crate::state::Daemon;
use crate::threads::spawn;
use crate::views::{AutomaticSnapshots, Closing, HiddenDirectory, MountedView};
use crate::volume::{Volume, clock};

/// Where a view is mounted.
pub(crate) struct MountPlace {
    pub(crate) id: u64,
    pub(crate) mount_point: PathBuf,
    pub(crate) device: String,
    pub(crate) mount_id: Option<u64>,
    pub(crate) namespace: String,
    pub(crate) is_fuseblk: bool,
    pub(crate) on_behalf_of: Option<u32>,
}

/// Logs errors of the file system that an errno alone does not explain.
pub(crate) fn report(volume: &Volume) -> Arc<Report> {
    let (disk, _) = volume.parts();
    Arc::new(move |operation: &str, error: &FsError| {
        // Damaged blocks are logged once, by the damage table, with their place.
        let is_told = match error {
            FsError::Disk(DiskError::Corrupted(why) | DiskError::Io(why)) => {
                disk.damage().knows(why)
            }
            _ => false,
        };
        if !is_told {
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
            Arc::new(HiddenDirectory::new(disk, clock())) as _
        })
    }

    pub(crate) fn add(
        &self,
        mount: Mount,
        closing: Arc<Closing>,
        place: MountPlace,
        options: &MountOptions,
    ) -> Arc<MountedView> {
        let MountPlace { id, mount_point, device, mount_id, namespace, is_fuseblk, on_behalf_of } =
            place;
        let retain = options.retain.clone().filter(|_| !options.read_only);
        let view = MountedView {
            id,
            switch: mount.switch(),
            closing,
            options: Mutex::new(options.clone()),
            kernel_options: Mutex::default(),
            mount_point,
            device,
            mount_id,
            is_fuseblk,
            on_behalf_of,
            is_elsewhere: namespace != self.namespace,
            namespace,
            since_unix_s: SystemClock.now().secs(),
            transport: mount.transport().to_string(),
            automatic: Mutex::new(retain.map(AutomaticSnapshots::new)),
        };
        self.views.add(mount, view)
    }

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
        view.closing.begin();
        self.write_card();
        if view.is_fuseblk && !view.closing.has_shut_down() {
            // The mount had the claim on the device. Other views still need it; so does this one if
            // it was cut off.
            if let Err(failure) = self.volume.take_claim() {
                log::error!("{}; nothing more is written to it", failure.message);
                std::process::exit(1);
            }
        }
        let closed = view.closing.close(|| None);
        let failures = [
            served.err().map(|error| format!("{}: serving ended: {error}", view.place())),
            closed.err().map(|error| not_shut_down(self.volume, &error)),
        ];
        for message in failures.into_iter().flatten() {
            log::error!("{message}");
            self.failure.lock().get_or_insert(Failure::new(message));
        }
        self.views.remove(view);
        self.write_card();
    }
}
