//! The hidden directory in the root of a mount, which shows the disk's snapshots.

use std::fmt;
use std::sync::Arc;

use dendro_base::{Clock, Timestamp};
use dendro_disk::{Snapshot, Versions, View};
use dendro_fs::{FileSystem, Options};
use dendro_fuse::{Past, SnapshotId};
use dendro_versions::name;
use jiff::Zoned;
use jiff::tz::TimeZone;

/// How many i-nodes each view keeps in memory. There may be many views, and the kernel caches what
/// is used.
const INODE_CACHE_LEN: usize = 1024;

/// The hidden directory of a disk with versions: those of one client.
pub(crate) struct HiddenDirectory {
    disk: Arc<dyn Versions>,
    client: u32,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for HiddenDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HiddenDirectory").finish_non_exhaustive()
    }
}

const fn id_of(snapshot: &Snapshot) -> SnapshotId {
    SnapshotId { branch: snapshot.branch, epoch: snapshot.epoch }
}

/// A time as [`HiddenDirectory::at`] reads it, to the nanosecond.
fn time_name(time: Timestamp) -> Option<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(time.0)).ok()?;
    Some(time.to_string())
}

impl HiddenDirectory {
    /// That of a mount of `view`.
    pub(crate) fn new(disk: Arc<dyn Versions>, view: View, clock: Arc<dyn Clock>) -> Self {
        let (client, _) = disk.versions().client_of(view.branch);
        Self { disk, client, clock }
    }

    /// The time that `text` means in the daemon's time zone.
    fn time(&self, text: &str) -> Option<Timestamp> {
        let now = jiff::Timestamp::from_nanosecond(i128::from(self.clock.now().0)).ok()?;
        let now: Zoned = now.to_zoned(TimeZone::system());
        name::parse_moment(text, &now).ok()?.unix_ns.map(Timestamp)
    }
}

impl Past for HiddenDirectory {
    fn snapshots(&self) -> Vec<(String, SnapshotId)> {
        let table = self.disk.versions();
        let named = |of: &Snapshot| of.name.clone().map(|name| (name, SnapshotId { ..id_of(of) }));
        let is_own = |of: &&Snapshot| table.client_of(of.branch).0 == self.client;
        table.snapshots().filter(is_own).filter_map(named).collect()
    }

    fn snapshot(&self, name: &str) -> Option<SnapshotId> {
        let table = self.disk.versions();
        let found = table.snapshot_named(name)?;
        (table.client_of(found.branch).0 == self.client).then(|| id_of(found))
    }

    fn moments(&self, head: &FileSystem) -> Vec<(String, SnapshotId)> {
        let table = self.disk.versions();
        let past = table.past(head.view()).into_iter();
        past.filter_map(|of| Some((time_name(of.time)?, id_of(of)))).collect()
    }

    fn at(&self, head: &FileSystem, time: &str) -> Option<SnapshotId> {
        let time = self.time(time).filter(|time| *time <= self.clock.now())?;
        self.disk.versions().at(head.view(), time).map(id_of)
    }

    fn open(&self, id: SnapshotId) -> dendro_fs::Result<FileSystem> {
        let options = Options {
            view: View { branch: id.branch, epoch: Some(id.epoch) },
            read_only: true,
            inode_cache_len: INODE_CACHE_LEN,
            lookups_keep_files: true,
            ..Options::default()
        };
        let disk = Arc::clone(&self.disk);
        FileSystem::mount(disk, options, Arc::clone(&self.clock))
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::{ManualClock, SystemClock};
    use dendro_disk::model::ModelDisk;
    use dendro_fs::FormatOptions;

    use super::*;

    #[test]
    fn a_snapshot_is_found_by_its_name_and_under_the_time_it_is_listed_by() {
        let clock = Arc::new(ManualClock::default());
        let disk = Arc::new(ModelDisk::new(None).with_clock(Arc::clone(&clock) as _));
        let options =
            FormatOptions { uid: 0, gid: 0, mode: 0o755, label: String::new(), hash_key: [1; 16] };
        FileSystem::create_on(&*disk, &options, &SystemClock).unwrap();
        for name in [Some("one"), None, Some("two")] {
            disk.snapshot(0, name).unwrap();
        }
        let past = HiddenDirectory::new(Arc::clone(&disk) as _, View::HEAD, clock);
        let head = Options::default();
        let head = FileSystem::mount(disk, head, Arc::new(SystemClock)).unwrap();
        let names: Vec<_> = past.snapshots().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["one", "two"]);
        for (name, moment) in past.snapshots() {
            assert_eq!(past.snapshot(&name), Some(moment));
            assert_eq!(past.open(moment).unwrap().view().epoch, Some(moment.epoch));
        }
        assert_eq!(past.snapshot("three"), None);
        let moments = past.moments(&head);
        assert_eq!(moments.len(), 3);
        for (name, moment) in moments {
            assert_eq!(past.at(&head, &name), Some(moment), "{name}");
        }
        for none in ["2200-01-01", "1970-01-01", "one", "head", "1", ""] {
            assert_eq!(past.at(&head, none), None, "{none}");
        }
        assert!(past.open(SnapshotId { branch: 0, epoch: 99 }).is_err());
    }
}
