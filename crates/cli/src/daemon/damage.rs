//! Damage that was met: told once for each place, counted, and kept with the volume until somebody has taken
//! note of it.
//!
//! The disk notes what does not hold what was written there, whoever reads it. A thread waits for that, looks
//! where in which version it is, says so in the log, and writes it to the main branch's head. A volume that
//! is open for reading alone counts in memory.

use std::time::Duration;

use dendro_base::sync::Mutex;
use dendro_base::{Clock, SystemClock, Timestamp};
use dendro_control::AdminError;
use dendro_control::damage::{DamageInfo, DamageRequest};
use dendro_disk::{Lid, LogicalDisk, Versions};
use dendro_fs::{KeptDamage, MAX_KEPT_DAMAGE, keep_damage, kept_damage};
use dendro_logdisk::{Damage, LogDisk};

use super::Daemon;
use super::admin::refuse;
use crate::damage;
use crate::volume::Volume;

/// How long one wait lasts at most; what is met ends it.
const LONG_WAIT: Duration = Duration::from_secs(3600);
/// A broken device is met all the time; so often it is looked what there is.
const REST: Duration = Duration::from_millis(200);

/// A place, and how often the disk had met it when it was looked last.
struct Known {
    kept: KeptDamage,
    seen_count: u64,
}

#[derive(Default)]
struct State {
    known: Vec<Known>,
    /// Places that there was no room for.
    more_places: u64,
}

/// What is known of damage.
#[derive(Default)]
pub(super) struct DamageTable(Mutex<State>);

impl DamageTable {
    /// What is kept with the volume.
    pub(super) fn of(volume: &Volume) -> Self {
        let disk = volume.disk();
        let kept = kept_damage(disk, disk.versions().main_head()).unwrap_or_else(|error| {
            log::warn!("what damage was met before cannot be read: {error}");
            Vec::new()
        });
        let known = kept.into_iter().map(|kept| Known { kept, seen_count: 0 }).collect();
        Self(Mutex::new(State { known, more_places: 0 }))
    }

    /// Looks where that damage is now that was in versions which are gone.
    pub(super) fn look_again(&self, disk: &LogDisk) {
        let table = disk.versions();
        let mut state = self.0.lock();
        for known in &mut state.known {
            let is_there = known.kept.view.is_some_and(|view| table.check(view).is_ok());
            let Some((list, page)) = known.kept.page.filter(|_| !is_there) else { continue };
            if let Some((view, path)) = damage::find(disk, Lid(list), page) {
                (known.kept.view, known.kept.path) = (Some(view), path);
            }
            // That has met it some times more.
            let met = disk.damage().places();
            let met = met.iter().find(|of| of.addr_bytes == known.kept.addr_bytes);
            known.seen_count = met.map_or(known.seen_count, |of| of.met_count);
        }
    }

    /// What is known, with all places if they are wanted.
    pub(super) fn info(&self, disk: &LogDisk, with_places: bool) -> DamageInfo {
        let state = self.0.lock();
        let kept: Vec<_> = state.known.iter().map(|known| known.kept.clone()).collect();
        let mut info = damage::info(&kept, &disk.versions());
        info.place_count += state.more_places;
        if !with_places {
            info.places.clear();
        }
        info
    }

    /// Takes in what the disk has met; says whether anything has changed.
    fn take_in(&self, disk: &LogDisk, now: Timestamp) -> bool {
        let mut has_changed = false;
        let mut more_places = 0;
        for met in disk.damage().places() {
            let is_known = {
                let mut state = self.0.lock();
                let known = state.known.iter_mut().find(|of| of.kept.addr_bytes == met.addr_bytes);
                known.map(|known| has_changed |= known.count(&met, now)).is_some()
            };
            if is_known {
                continue;
            }
            if self.0.lock().known.len() >= MAX_KEPT_DAMAGE {
                more_places += 1;
                continue;
            }
            let kept = locate(disk, &met, now);
            log::error!("damage: {}", damage::text(&kept, &disk.versions()));
            // To look where it is met it some times more.
            let again =
                disk.damage().places().into_iter().find(|of| of.addr_bytes == met.addr_bytes);
            let seen_count = again.map_or(met.met_count, |of| of.met_count);
            self.0.lock().known.push(Known { kept, seen_count });
            has_changed = true;
        }
        let mut state = self.0.lock();
        if more_places > state.more_places {
            log::error!(
                "damage: more than {MAX_KEPT_DAMAGE} places; `dendro damage --clear` makes room for others"
            );
        }
        state.more_places = state.more_places.max(more_places);
        has_changed
    }

    /// Writes down what is known, if that can be.
    pub(super) fn keep(&self, disk: &LogDisk) -> Result<(), dendro_disk::Error> {
        if disk.read_only_reason().is_some() {
            return Ok(());
        }
        let kept: Vec<_> = self.0.lock().known.iter().map(|known| known.kept.clone()).collect();
        keep_damage(disk, disk.versions().main_head(), &kept).map_err(|error| match error {
            dendro_fs::FsError::Disk(error) => error,
            other => dendro_disk::Error::Corrupted(other.to_string()),
        })
    }

    fn forget(&self, disk: &LogDisk) {
        disk.damage().forget();
        *self.0.lock() = State::default();
    }
}

impl Known {
    /// Adds how often the disk has met it since it was looked last; whether it has.
    fn count(&mut self, met: &Damage, now: Timestamp) -> bool {
        let more = met.met_count.saturating_sub(self.seen_count);
        self.seen_count = met.met_count;
        if more > 0 {
            self.kept.met_count = self.kept.met_count.saturating_add(more);
            self.kept.last = now;
        }
        more > 0
    }
}

/// Where the damage is, as far as that can be found.
fn locate(disk: &LogDisk, met: &Damage, now: Timestamp) -> KeptDamage {
    let found = met.page.and_then(|(list, page)| damage::find(disk, list, page));
    let (view, path) = found.map_or((None, Vec::new()), |(view, path)| (Some(view), path));
    KeptDamage {
        addr_bytes: met.addr_bytes,
        page: met.page.map(|(list, page)| (list.0, page)),
        view,
        path,
        problem: met.problem.clone(),
        first: now,
        last: now,
        met_count: met.met_count,
    }
}

impl Daemon<'_> {
    /// Sees to damage as it is met.
    pub(super) fn watch_damage(&self) {
        let disk = self.volume.disk();
        let mut met_count = 0;
        while !self.stop.is_set() {
            let now_met = disk.damage().wait(met_count, LONG_WAIT);
            if now_met != met_count {
                self.note_damage();
            }
            // What is met while that is noted is looked at the next time.
            met_count = now_met;
            self.stop.wait(REST);
        }
        // What was met since.
        self.note_damage();
    }

    /// Takes in what was met, and writes it down if there is anything new.
    fn note_damage(&self) {
        let disk = self.volume.disk();
        if self.damage.take_in(disk, SystemClock.now())
            && let Err(error) = self.damage.keep(disk)
        {
            log::warn!("the damage that was met cannot be written down: {error}");
        }
    }

    /// Tells what is known, and forgets it if that is asked.
    pub(super) fn tell_damage(&self, request: DamageRequest) -> Result<DamageInfo, AdminError> {
        let disk = self.volume.disk();
        self.note_damage();
        let info = self.damage.info(disk, true);
        if request.clear {
            self.damage.forget(disk);
            self.damage.keep(disk).map_err(refuse)?;
            self.volume.commit().map_err(refuse)?;
        }
        Ok(info)
    }
}
