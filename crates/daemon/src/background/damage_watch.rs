//! Takes note of damage as it is met.

use std::time::Duration;

use dendro_base::{Clock, SystemClock};

use crate::state::Daemon;

/// How long one wait lasts at most; what is met ends it.
const LONG_WAIT: Duration = Duration::from_secs(3600);

/// A broken device is met all the time; so often it is looked what there is.
const REST: Duration = Duration::from_millis(200);

impl Daemon<'_> {
    /// Sees to damage as it is met.
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
