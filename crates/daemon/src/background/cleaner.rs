//! Checkpoints, and cleans; when nobody writes also for later.

use std::time::Duration;

use dendro_logdisk::CLEANER_NICENESS;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::pace::{ERROR_REST, Failing, Quiet};
use crate::state::Daemon;

/// How long the background thread rests when there is nothing to do, unless a commit wakes it.
const BACKGROUND_REST: Duration = Duration::from_millis(100);

/// The same when nothing has happened for a while: a volume that nobody uses should wake no CPU.
const LONG_REST: Duration = Duration::from_secs(1);

/// After so long in which nobody wrote, what can be cleaned for later is.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Lets others have the CPU before this thread. That it may not is no reason not to clean.
fn give_way() {
    let _ = setpriority_process(Some(gettid()), CLEANER_NICENESS);
}

impl Daemon<'_> {
    /// Cleans beside the background thread when segments get few: one of the two reads while the
    /// other moves what it has read, and neither waits for the other's checkpoint.
    pub(crate) fn clean(&self) {
        give_way();
        let mut failing = Failing::new("cleaning");
        let disk = self.volume.disk();
        while !self.stop.is_set() {
            match failing.note(disk.clean_step()) {
                Some(true) => {}
                // Whatever makes segments few wakes it.
                Some(false) => disk.wait_for_background_work(LONG_REST),
                None => drop(self.stop.wait(ERROR_REST)),
            }
        }
    }

    pub(crate) fn work_in_background(&self) {
        give_way();
        let mut failing = Failing::new("background work");
        let disk = self.volume.disk();
        // Who writes is soon helped; who only reads is disturbed by more reading and writing.
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
            self.tell_whether_it_waits_for_room();
            let rest = match failing.note(self.unless_it_waits(done, false)) {
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
