//! The disk of an open volume, which is shut down when nobody has it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dendro_disk::LogicalDisk;
use dendro_logdisk::LogDisk;

/// The disk of an open volume.
pub(crate) struct OpenDisk {
    disk: Arc<LogDisk>,
    had_runner: AtomicBool,
}

impl OpenDisk {
    pub(crate) fn new(disk: LogDisk) -> Self {
        Self { disk: Arc::new(disk), had_runner: AtomicBool::new(false) }
    }

    pub(crate) const fn disk(&self) -> &Arc<LogDisk> {
        &self.disk
    }

    /// Notes that it has a runner. Returns whether it had none before.
    pub(crate) fn take_runner(&self) -> bool {
        !self.had_runner.swap(true, Ordering::Relaxed)
    }
}

impl Drop for OpenDisk {
    fn drop(&mut self) {
        if let Err(error) = self.disk.shut_down() {
            log::error!("a volume could not be closed: {error}");
        }
    }
}
