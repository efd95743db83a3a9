//! The logical disk of the volume that is checked, and its versions.

use std::sync::Arc;

use dendro_base::SystemClock;
use dendro_daemon::volume::memory::default_cache_bytes;
use dendro_device::{Device, ReadAhead};
use dendro_disk::{Versions, View};
use dendro_logdisk::{LogDisk, OpenOptions};

pub(super) fn open_disk(device: &Arc<dyn Device>) -> Result<LogDisk, dendro_disk::Error> {
    let options = OpenOptions { cache_size_bytes: default_cache_bytes(), ..OpenOptions::default() };
    let reading_ahead: Arc<dyn Device> = Arc::new(ReadAhead::new(Arc::clone(device)));
    LogDisk::open(reading_ahead, options, Arc::new(SystemClock))
}

/// The versions whose trees are checked: heads, snapshots with names, and with `all` the others.
pub(super) fn versions(disk: &LogDisk, all: bool) -> Vec<(String, View)> {
    let table = disk.versions();
    let heads = table.branches().map(|branch| (format!(":{}", branch.name), branch.head()));
    let snapshots = table.snapshots().filter(|of| all || of.name.is_some()).map(|of| {
        let name = of.name.clone().unwrap_or_else(|| of.epoch.to_string());
        (format!("@{name}"), of.view())
    });
    heads.chain(snapshots).collect()
}
