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
pub(crate) struct DamageTable {
    /// Held while places are added and the table is written: several threads ask for that. Locked
    /// before the state.
    changing: Mutex<()>,
    state: Mutex<State>,
}

impl DamageTable {
    /// Reads what is kept with the volume.
    pub(crate) fn of(volume: &Volume) -> Self {
        let disk = volume.disk();
        let kept = kept_damage(disk, disk.versions().main_head()).unwrap_or_else(|error| {
            log::warn!("what damage was met before cannot be read: {error}");
            Vec::new()
        });
        let known = kept.into_iter().map(|kept| KnownPlace { kept, seen_count: 0 }).collect();
        let state = Mutex::new(State { known, more_places: 0 });
        Self { changing: Mutex::new(()), state }
    }

    /// Adds what the disk has found, and writes the table to the volume if anything is new.
    ///
    /// # Errors
    /// Errors of the disk when it is written.
    pub(crate) fn record(&self, disk: &LogDisk, now: Timestamp) -> Result<(), dendro_disk::Error> {
        let _changing = self.changing.lock();
        if self.take_in(disk, now) { self.keep(disk) } else { Ok(()) }
    }

    /// Forgets all damage, here and on the volume.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub(crate) fn clear(&self, disk: &LogDisk) -> Result<(), dendro_disk::Error> {
        let _changing = self.changing.lock();
        disk.damage().forget();
        *self.state.lock() = State::default();
        self.keep(disk)
    }

    /// Searches again for damage whose version is gone, and writes the table to the volume, which
    /// may have another main branch now.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub(crate) fn look_again(&self, disk: &LogDisk) -> Result<(), dendro_disk::Error> {
        let _changing = self.changing.lock();
        self.find_again(disk);
        self.keep(disk)
    }

    fn find_again(&self, disk: &LogDisk) {
        let table = disk.versions();
        let mut state = self.state.lock();
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
            let state = self.state.lock();
            let kept: Vec<_> = state.known.iter().map(|known| known.kept.clone()).collect();
            (kept, state.more_places)
        };
        let mut info = report::info(&kept, disk, with_places);
        info.place_count += more_places;
        info
    }

    /// Adds what the disk has found; returns whether anything has changed.
    fn take_in(&self, disk: &LogDisk, now: Timestamp) -> bool {
        let mut has_changed = false;
        let mut more_places = 0;
        for met in disk.damage().places() {
            let is_known = {
                let mut state = self.state.lock();
                let known = state.known.iter_mut().find(|of| of.kept.addr_bytes == met.addr_bytes);
                known.map(|known| has_changed |= known.count(&met, now)).is_some()
            };
            if is_known {
                continue;
            }
            if self.state.lock().known.len() >= MAX_KEPT_DAMAGE {
                more_places += 1;
                continue;
            }
            let kept = locate(disk, &met, now);
            log::error!("damage: {}", report::line(&kept, &disk.versions()));
            self.state.lock().known.push(KnownPlace { kept, seen_count: met.met_count });
            has_changed = true;
        }
        let mut state = self.state.lock();
        if more_places > state.more_places {
            log::error!(
                "damage: more than {MAX_KEPT_DAMAGE} places; `dendro damage --clear` makes room for others"
            );
        }
        state.more_places = state.more_places.max(more_places);
        has_changed
    }

    /// Writes the table to the volume, if that is writable.
    fn keep(&self, disk: &LogDisk) -> Result<(), dendro_disk::Error> {
        if disk.read_only_reason().is_some() {
            return Ok(());
        }
        let kept: Vec<_> = self.state.lock().known.iter().map(|known| known.kept.clone()).collect();
        keep_damage(disk, disk.versions().main_head(), &kept).map_err(|error| match error {
            dendro_fs::FsError::Disk(error) => error,
            other => dendro_disk::Error::Corrupted(other.to_string()),
        })
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use dendro_base::{Clock, ManualClock};
    use dendro_device::{Device, MemoryDevice};
    use dendro_disk::{Aru, ListHints, PAGE_SIZE, View};
    use dendro_fs::format::VOLUME_LIST;
    use dendro_logdisk::{FormatOptions, OpenOptions, format};

    use super::*;

    const PAGES: u64 = 5;

    /// A disk on which this many pages were met that are damaged.
    fn disk_with_damage() -> LogDisk {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let below: Arc<dyn Device> = Arc::clone(&device) as _;
        format(&below, &FormatOptions::default(), &clock).unwrap();
        let disk = LogDisk::open(below, OpenOptions::default(), Arc::clone(&clock)).unwrap();
        let list = disk.allocate_list().unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(VOLUME_LIST, ListHints::default());
        aru.create_list(list, ListHints::default());
        for page in 0..PAGES {
            aru.write_pages(list, page, vec![0xa0 | page as u8; PAGE_SIZE]);
        }
        disk.commit(aru).unwrap();
        disk.shut_down().unwrap();
        drop(disk);
        let mut bytes = device.to_bytes();
        for page in bytes.chunks_mut(PAGE_SIZE) {
            if (0xa0..0xb0).contains(&page[0]) && page.iter().all(|byte| *byte == page[0]) {
                page[7] = 0;
            }
        }
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let disk = LogDisk::open(device, OpenOptions::default(), clock).unwrap();
        let mut page = vec![0; PAGE_SIZE];
        for index in 0..PAGES {
            assert!(disk.read_pages(View::HEAD, list, index, &mut page).is_err());
        }
        disk
    }

    #[test]
    fn what_several_threads_record_at_once_is_there_once() {
        let disk = disk_with_damage();
        for _ in 0..200 {
            let (table, barrier) = (DamageTable::default(), Barrier::new(2));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        barrier.wait();
                        table.record(&disk, Timestamp(1)).unwrap();
                    });
                }
            });
            let mut places: Vec<u64> =
                table.state.lock().known.iter().map(|known| known.kept.addr_bytes).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(table.state.lock().known.len(), places.len());
            assert_eq!(places.len() as u64, PAGES);
        }
    }
}
