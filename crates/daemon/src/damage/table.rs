//! The table of damage that was found in use. Each place is logged once, counted, and kept with the
//! volume until a user acknowledges it.
//!
//! The disk notes each block that does not hold what was written there, no matter which thread
//! reads it. A thread waits for such notes, searches for the version and the file, logs them, and
//! writes the table to the main branch's head. A volume that is open read-only keeps the table in
//! memory.

use dendro_base::Timestamp;
use dendro_base::sync::Mutex;
use dendro_control::damage::DamageInfo;
use dendro_disk::{Lid, LogicalDisk, Versions};
use dendro_fs::{DamagedPart, KeptDamage, MAX_KEPT_DAMAGE, keep_damage, kept_damage};
use dendro_logdisk::{Damage, LogDisk, Part};

use super::report;
use crate::volume::Volume;

/// A place, and how often the disk had found it at the last look.
struct KnownPlace {
    kept: KeptDamage,
    seen_count: u64,
}

#[derive(Default)]
struct State {
    known: Vec<KnownPlace>,
    /// Places for which the table has no room.
    more_places: u64,
}

/// All damage that is known.
#[derive(Default)]
pub(crate) struct DamageTable(Mutex<State>);

impl DamageTable {
    /// Reads what is kept with the volume.
    pub(crate) fn of(volume: &Volume) -> Self {
        let disk = volume.disk();
        let kept = kept_damage(disk, disk.versions().main_head()).unwrap_or_else(|error| {
            log::warn!("what damage was met before cannot be read: {error}");
            Vec::new()
        });
        let known = kept.into_iter().map(|kept| KnownPlace { kept, seen_count: 0 }).collect();
        Self(Mutex::new(State { known, more_places: 0 }))
    }

    /// Searches again for damage whose version is gone.
    pub(crate) fn look_again(&self, disk: &LogDisk) {
        let table = disk.versions();
        let mut state = self.0.lock();
        for known in &mut state.known {
            let is_there = known.kept.view.is_some_and(|view| table.check(view).is_ok());
            let Some((list, page)) = known.kept.part.page().filter(|_| !is_there) else { continue };
            if let Some((view, path)) = report::find(disk, Lid(list), page, known.kept.addr_bytes) {
                (known.kept.view, known.kept.path) = (Some(view), path);
            }
        }
    }

    /// The report of what is known; with all places if `with_places`.
    pub(crate) fn info(&self, disk: &LogDisk, with_places: bool) -> DamageInfo {
        let (kept, more_places) = {
            let state = self.0.lock();
            let kept: Vec<_> = state.known.iter().map(|known| known.kept.clone()).collect();
            (kept, state.more_places)
        };
        let mut info = report::info(&kept, disk, with_places);
        info.place_count += more_places;
        info
    }

    /// Adds what the disk has found; returns whether anything has changed.
    pub(crate) fn take_in(&self, disk: &LogDisk, now: Timestamp) -> bool {
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
            log::error!("damage: {}", report::line(&kept, &disk.versions()));
            self.0.lock().known.push(KnownPlace { kept, seen_count: met.met_count });
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

    /// Writes the table to the volume, if that is writable.
    pub(crate) fn keep(&self, disk: &LogDisk) -> Result<(), dendro_disk::Error> {
        if disk.read_only_reason().is_some() {
            return Ok(());
        }
        let kept: Vec<_> = self.0.lock().known.iter().map(|known| known.kept.clone()).collect();
        keep_damage(disk, disk.versions().main_head(), &kept).map_err(|error| match error {
            dendro_fs::FsError::Disk(error) => error,
            other => dendro_disk::Error::Corrupted(other.to_string()),
        })
    }

    pub(crate) fn forget(&self, disk: &LogDisk) {
        disk.damage().forget();
        *self.0.lock() = State::default();
    }
}

impl KnownPlace {
    /// Adds how often the disk has found the place since the last look; returns whether it has.
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

/// The report of what the disk has found since it was opened.
pub fn found_on(disk: &LogDisk, now: Timestamp) -> DamageInfo {
    let kept: Vec<_> = disk.damage().places().iter().map(|met| locate(disk, met, now)).collect();
    report::info(&kept, disk, true)
}

/// Searches for the version and the file that the damage is in.
fn locate(disk: &LogDisk, met: &Damage, now: Timestamp) -> KeptDamage {
    let (part, found) = match met.part {
        Part::Page(list, page) => {
            (DamagedPart::Page(list.0, page), report::find(disk, list, page, met.addr_bytes))
        }
        Part::Node => (DamagedPart::Node, None),
        Part::Records => (DamagedPart::Records, None),
        Part::Checkpoint => (DamagedPart::Checkpoint, None),
        Part::Superblock => (DamagedPart::Superblock, None),
        Part::MirroredNode => (DamagedPart::NodeCopy, None),
    };
    let (view, path) = found.map_or((None, Vec::new()), |(view, path)| (Some(view), path));
    KeptDamage {
        addr_bytes: met.addr_bytes,
        part,
        view,
        path,
        problem: met.problem.clone(),
        first: now,
        last: now,
        met_count: met.met_count,
    }
}
