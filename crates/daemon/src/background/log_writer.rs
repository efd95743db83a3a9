//! Writes full buffers of the log.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::host_room::ROOM_REST;
use super::pace::{ERROR_REST, Failing};
use crate::state::Daemon;

/// How long a writer waits for a buffer. It is woken for a buffer and for the end.
const WRITER_WAIT: Duration = Duration::from_secs(5);

impl Daemon<'_> {
    pub(crate) fn write_log(&self) {
        let mut failing = Failing::new("writing the log");
        let disk = self.volume.disk();
        while !self.stop.is_set() {
            let step = disk.write_step(WRITER_WAIT);
            self.log_host_room();
            self.log_retired();
            let is_waiting = matches!(step, Err(dendro_disk::Error::NoSpace { .. }));
            if is_waiting || failing.note(step).is_none() {
                self.stop.wait(if is_waiting { ROOM_REST } else { ERROR_REST });
            }
        }
    }

    /// Logs when segments were retired because the device cannot write them. The first time it
    /// also tells of those of earlier mounts.
    fn log_retired(&self) {
        let count = self.volume.disk().retired_segment_count();
        if self.logged_retired_count.swap(count, Ordering::Relaxed) < count {
            log::error!(
                "{}: the device cannot write some places; {count} segments are out of use. No data \
                 is lost by that, but the device should be replaced",
                self.volume.source().display()
            );
        }
    }
}
