//! Brings devices up that lack something, at a pace that leaves the volume to its users, and logs
//! what happens to devices.

use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_set::BringUp;

use super::pace::ERROR_REST;
use super::scrub::{Pace, between};
use crate::state::Daemon;
use crate::volume::devices::Devices;

/// While clients use the volume, a step may take this share of the time.
const BUSY_SHARE: u32 = 2;

/// So many pieces are copied before a rest.
const PIECES: usize = 8;

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
            let rest = match self.bring_up(&devices) {
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

    /// Copies some pieces, up to the last of a device.
    fn bring_up(&self, devices: &Devices) -> dendro_device::Result<Option<BringUp>> {
        let mut copied_bytes = 0;
        let mut last = None;
        for _ in 0..PIECES {
            let Some(step) = devices.bring_up_step()? else { break };
            copied_bytes += step.copied_bytes;
            let is_done = step.is_done;
            last = Some(BringUp { copied_bytes, ..step });
            if is_done || self.stop.is_set() {
                break;
            }
        }
        Ok(last)
    }

    fn log_devices(&self) {
        for note in self.volume.devices().take_notes() {
            log::warn!("{note}");
        }
    }
}
