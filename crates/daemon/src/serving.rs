//! Mounts from their beginning to their end.
//!
//! - [`first`]: the mount that the process was started for. [`end`]: how mounts are taken away.

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
    pub(crate) lent_to: Option<u32>,
}

/// Where file systems say what a bare errno does not.
pub(crate) fn report(volume: &Volume) -> Arc<Report> {
    let (disk, _) = volume.parts();
    Arc::new(move |operation: &str, error: &FsError| {
        // Of damaged blocks it is told once, and where they are.
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
    /// What a mount of `view` shows of the past.
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
        let MountPlace { id, mount_point, device, mount_id, namespace, is_fuseblk, lent_to } =
            place;
        let retain = options.retain.clone().filter(|_| !options.read_only);
        let view = MountedView {
            id,
            switch: mount.switch(),
            closing,
            options: Mutex::new(options.clone()),
            told: Mutex::default(),
            mount_point,
            device,
            mount_id,
            is_fuseblk,
            lent_to,
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
            // The connection is closed by now; who uses the mount gets errors.
            log::error!("{}: cannot be served: {error}", view.place());
            detach(&view);
            self.views.remove(&view);
        }
    }

    /// Serves a mount to its end.
    fn serve(&self, mount: Mount, view: &Arc<MountedView>) {
        let served = mount.serve();
        view.closing.begin();
        self.leave_card();
        if view.is_fuseblk && !view.closing.has_shut_down() {
            // The mount had the claim on the device, and other views still need it, or this one, which
            // was cut off.
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
        self.leave_card();
    }
}
