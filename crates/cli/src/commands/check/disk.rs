//! The logical disk of the volume that is checked, and its versions.

use std::sync::Arc;

use dendro_base::SystemClock;
use dendro_daemon::volume::memory::default_cache_bytes;
use dendro_device::{Device, ReadAhead, Retrying};
use dendro_disk::{Versions, View};
use dendro_logdisk::{LogDisk, OpenOptions};

pub(super) fn open_disk(device: &Arc<dyn Device>) -> Result<LogDisk, dendro_disk::Error> {
    let options = OpenOptions { cache_size_bytes: default_cache_bytes(), ..OpenOptions::default() };
    let reading_ahead: Arc<dyn Device> =
        Arc::new(ReadAhead::new(Retrying::new(Arc::clone(device))));
    LogDisk::open(reading_ahead, options, Arc::new(SystemClock))
}

/// The versions that are checked, with their names: of each branch the snapshots in their order, and
/// then its head, so that versions which have much in common stand beside each other. What was kept
/// of the time before a repair is left out: [`kept_before_repairs`].
pub(super) fn versions(disk: &LogDisk) -> Vec<(String, View)> {
    let table = disk.versions();
    let mut all = Vec::new();
    let mut left: Vec<_> = table.snapshots().filter(|of| !is_before_repair(of)).collect();
    for branch in table.branches() {
        let of_branch = |snapshot: &&dendro_disk::Snapshot| snapshot.branch == branch.branch;
        for snapshot in left.extract_if(.., |snapshot| of_branch(&&**snapshot)) {
            let name = snapshot.name.clone().unwrap_or_else(|| snapshot.epoch.to_string());
            all.push((format!("@{name}"), snapshot.view()));
        }
        all.push((format!(":{}", branch.name), branch.head()));
    }
    // Snapshots of branches whose heads were deleted.
    for snapshot in left {
        let name = snapshot.name.clone().unwrap_or_else(|| snapshot.epoch.to_string());
        all.push((format!("@{name}"), snapshot.view()));
    }
    all
}

/// The beginning of the names of snapshots that a repair makes before it changes anything.
pub(super) const BEFORE_REPAIR: &str = "before-repair-";

/// The snapshots of volumes as they were before a repair: what is wrong in them is known.
pub(super) fn kept_before_repairs(disk: &LogDisk) -> Vec<String> {
    let table = disk.versions();
    table.snapshots().filter(|of| is_before_repair(of)).filter_map(|of| of.name.clone()).collect()
}

fn is_before_repair(snapshot: &dendro_disk::Snapshot) -> bool {
    snapshot.name.as_ref().is_some_and(|name| name.starts_with(BEFORE_REPAIR))
}
