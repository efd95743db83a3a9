//! Records damage as soon as the disk finds it.

use std::time::Duration;

use dendro_base::{Clock, SystemClock};

use crate::state::Daemon;

/// The longest wait. New damage ends it.
const LONG_WAIT: Duration = Duration::from_secs(3600);

/// The pause between two looks. A broken device reports damage all the time.
const REST: Duration = Duration::from_millis(200);

impl Daemon<'_> {
    /// Records damage until the daemon ends.
    pub(crate) fn watch_damage(&self) {
        let disk = self.volume.disk();
        let mut met_count = 0;
        while !self.stop.is_set() {
            let now_met = disk.damage().wait(met_count, LONG_WAIT);
            if now_met != met_count
                && self.damage.take_in(disk, SystemClock.now())
                && let Err(error) = self.damage.keep(disk)
            {
                log::warn!("the damage that was met cannot be written down: {error}");
            }
            met_count = disk.damage().met_count();
            self.stop.wait(REST);
        }
    }
}
