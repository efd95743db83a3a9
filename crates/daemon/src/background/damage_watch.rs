//! Records damage as soon as the disk finds it.

use std::time::Duration;

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
            if now_met != met_count {
                self.record_damage();
            }
            // Damage that is found while this is recorded is recorded the next time.
            met_count = now_met;
            self.stop.wait(REST);
        }
        // Damage found since then.
        self.record_damage();
    }
}
