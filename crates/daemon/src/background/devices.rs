//! Brings devices up that lack something, at a pace that leaves the volume to its users, and logs
//! what happens to devices.

use std::time::Duration;

use dendro_base::{Clock, SystemClock};

use super::pace::ERROR_REST;
use super::scrub::{Pace, between};
use crate::state::Daemon;

/// While clients use the volume, a step may take this share of the time.
const BUSY_SHARE: u32 = 4;

/// How often to look whether there is something to do.
const IDLE_REST: Duration = Duration::from_secs(1);

impl Daemon<'_> {
    /// Looks after the volume's devices until the daemon ends.
    pub(crate) fn look_after_devices(&self) {
        let (disk, devices) = self.volume.parts();
        let mut pace = Pace::new(disk.activity(), BUSY_SHARE);
        let mut is_failing = false;
        while !self.stop.is_set() {
            self.log_devices();
            let began = SystemClock.now();
            let rest = match devices.bring_up_step() {
                Ok(Some(step)) => {
                    if step.is_done {
                        // The volume may have another name now.
                        self.write_card();
                    }
                    let now = SystemClock.now();
                    let took = between(began, now);
                    pace.rest(took, now, step.copied_bytes, disk.activity(), None)
                }
                Ok(None) => IDLE_REST,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        log::error!("a device cannot be brought up: {error}");
                    }
                    ERROR_REST
                }
            };
            if !rest.is_zero() {
                self.stop.wait(rest);
            }
        }
        self.log_devices();
    }

    fn log_devices(&self) {
        for note in self.volume.devices().take_notes() {
            log::warn!("{note}");
        }
    }
}
