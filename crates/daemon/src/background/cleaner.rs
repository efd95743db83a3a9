//! Checkpoints and cleaning; while nobody writes, also cleaning in advance.

use std::time::Duration;

use dendro_base::priority;
use dendro_logdisk::CLEANER_NICENESS;

use super::pace::{ERROR_REST, Failing, Quiet};
use crate::state::Daemon;

/// How long the background thread rests if there is nothing to do. A commit wakes it earlier.
const BACKGROUND_REST: Duration = Duration::from_millis(100);

/// The same after a quiet time: an unused volume must not wake a CPU often.
const LONG_REST: Duration = Duration::from_secs(1);

/// After so long without writes the daemon cleans in advance.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Lowers the priority of this thread, except while it does what clients wait for.
pub(super) fn lower_priority() {
    priority::lower_thread(CLEANER_NICENESS);
}

impl Daemon<'_> {
    /// Cleans beside the background thread when few segments are clean. While one of the two reads,
    /// the other moves what it has read, and neither waits for the other's checkpoint.
    pub(crate) fn clean(&self) {
        lower_priority();
        let mut failing = Failing::new("cleaning");
        let disk = self.volume.disk();
        while !self.stop.is_set() {
            match failing.note(disk.clean_step()) {
                Some(true) => {}
                // A commit that takes clean segments wakes it.
                Some(false) => drop(disk.wait_for_background_work(LONG_REST)),
                None => drop(self.stop.wait(ERROR_REST)),
            }
        }
    }

    pub(crate) fn work_in_background(&self) {
        lower_priority();
        let mut failing = Failing::new("background work");
        let disk = self.volume.disk();
        // Writers profit from cleaning soon; readers are disturbed by more I/O.
        let (mut unwritten, mut unused) = (Quiet::default(), Quiet::default());
        loop {
            let done = match disk.background_step() {
                Ok(false) if unwritten.lasts_for() >= IDLE_AFTER => disk.idle_step(),
                other => other,
            };
            let done = match done {
                Ok(false) if unused.lasts_for() >= disk.clean_settings().coalescing.after => {
                    disk.coalesce_step()
                }
                other => other,
            };
            self.log_host_room();
            let rest = match failing.note(self.unless_host_is_full(done, false)) {
                Some(true) => Duration::ZERO,
                Some(false) => {
                    let is_quiet = unused.lasts_for() > IDLE_AFTER;
                    let rest = if is_quiet { LONG_REST } else { BACKGROUND_REST };
                    disk.wait_for_background_work(rest);
                    rest
                }
                None => {
                    self.stop.wait(ERROR_REST);
                    ERROR_REST
                }
            };
            if self.stop.is_set() {
                return;
            }
            unwritten.note(disk.stats().commit_seq, rest);
            unused.note(disk.activity(), rest);
        }
    }
}
