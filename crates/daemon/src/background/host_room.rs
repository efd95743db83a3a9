//! Whether what is below the device has room for what is written.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::state::Daemon;

/// How long until a write is tried again for which there was no room below the device.
pub(super) const ROOM_REST: Duration = Duration::from_millis(250);

impl Daemon<'_> {
    /// Says once that what is below the device is full, and once that there is room again.
    pub(super) fn tell_whether_it_waits_for_room(&self) {
        let waits = self.volume.disk().waits_for_host();
        if self.waits_for_room.swap(waits, Ordering::Relaxed) == waits {
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

    /// What background work failed for, unless it is told of otherwise.
    pub(super) fn unless_it_waits<T>(
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
