//! The logical disk of the volume that is checked, and its versions.

use std::sync::Arc;

use dendro_base::SystemClock;
use dendro_device::{Device, ReadAhead, Retrying};
use dendro_disk::{Snapshot, Versions, View};
use dendro_fs::BEFORE_REPAIR;
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::volume::memory::default_cache_bytes;

/// The least memory for the map's nodes with which the engine works well, and the most with which a
/// check gets faster: one version is read in one walk, and of the others only what differs.
const CACHE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=128 << 20;

pub(super) fn open_disk(
    device: &Arc<dyn Device>,
    memory_bytes: u64,
) -> Result<LogDisk, dendro_disk::Error> {
    let (least, most) = CACHE_BYTES.into_inner();
    let cache_size_bytes = memory_bytes.min(default_cache_bytes()).clamp(least, most);
    // It is a copy in memory that is written to.
    let options = OpenOptions { cache_size_bytes, is_on_set: true, ..OpenOptions::default() };
    let below = Retrying::new(Arc::clone(device));
    let reading_ahead: Arc<dyn Device> =
        Arc::new(ReadAhead::with_memory(below, cache_size_bytes / 8));
    LogDisk::open(reading_ahead, options, Arc::new(SystemClock))
}

/// The versions that are checked, with their names: of each branch the snapshots in their order,
/// and then its head, so that versions which have much in common stand beside each other; one
/// client after the other. What was kept of the time before a repair is left out:
/// [`kept_before_repairs`].
pub(super) fn versions(disk: &LogDisk) -> Vec<(String, View)> {
    let table = disk.versions();
    let mut all = Vec::new();
    let mut left: Vec<_> = table.snapshots().filter(|of| !is_before_repair(of)).collect();
    let name_of = |snapshot: &Snapshot| {
        (version_text(Some(snapshot.epoch), snapshot.name.as_deref()), snapshot.view())
    };
    // What was not received completely is no version.
    for branch in table.branches().filter(|branch| !branch.is_receiving()) {
        let of_branch = |snapshot: &&Snapshot| snapshot.branch == branch.branch;
        let own = left.extract_if(.., |snapshot| of_branch(&&**snapshot));
        all.extend(own.map(&name_of));
        all.push((version_text(None, Some(&branch.name)), branch.head()));
    }
    // Snapshots of branches whose heads were deleted.
    all.extend(left.into_iter().map(name_of));
    all.sort_by_cached_key(|(_, view)| table.client_of(view.branch).0);
    all
}

/// The name of a version, as commands take it: of a branch's head, or of the snapshot that ended an
/// epoch.
pub(super) fn version_text(epoch: Option<u64>, name: Option<&str>) -> String {
    match (epoch, name) {
        (None, name) => format!(":{}", name.unwrap_or_default()),
        (Some(_), Some(name)) => format!("@{name}"),
        (Some(epoch), None) => format!("@{epoch}"),
    }
}

/// The snapshots of volumes as they were before a repair: what is wrong in them is known.
pub(super) fn kept_before_repairs(disk: &LogDisk) -> Vec<String> {
    let table = disk.versions();
    table.snapshots().filter(|of| is_before_repair(of)).filter_map(|of| of.name.clone()).collect()
}

fn is_before_repair(snapshot: &Snapshot) -> bool {
    snapshot.name.as_ref().is_some_and(|name| name.starts_with(BEFORE_REPAIR))
}
