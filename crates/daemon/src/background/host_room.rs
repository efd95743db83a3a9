//! Room below the device, for example in the file system that holds an image.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::state::Daemon;

/// The pause before a write is repeated that found no room below the device.
pub(super) const ROOM_REST: Duration = Duration::from_millis(250);

impl Daemon<'_> {
    /// Logs once that there is no room below the device, and once that there is room again.
    pub(super) fn log_host_room(&self) {
        let waits = self.volume.disk().waits_for_host();
        if self.is_host_full.swap(waits, Ordering::Relaxed) == waits {
            return;
        }
        if waits {
            log::error!(
                "{}: changes answer ENOSPC until there is room again; what was accepted waits for it",
                self.volume.host_is_full()
            );
        } else {
            log::info!("{}: there is room again, it goes on", self.volume.source().display());
        }
    }

    /// Drops an error that only says that there is no room below the device, which is logged
    /// elsewhere.
    pub(super) fn unless_host_is_full<T>(
        &self,
        done: Result<T, dendro_disk::Error>,
        none: T,
    ) -> Result<T, dendro_disk::Error> {
        match done {
            Err(dendro_disk::Error::NoSpace { .. }) if self.volume.disk().waits_for_host() => {
                Ok(none)
            }
            done => done,
        }
    }
}
