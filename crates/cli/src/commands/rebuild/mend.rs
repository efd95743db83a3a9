//! Repairs a version of a volume that was rebuilt in memory, so that what has lost its name can be
//! copied too.

use std::fmt::Display;
use std::sync::Arc;

use dendro_control::versions::VersionName;
use dendro_daemon::volume::{clock, random_bytes};
use dendro_device::Device;
use dendro_disk::{LogicalDisk, Versions, View};
use dendro_fs::RepairOptions;
use dendro_logdisk::{LogDisk, OpenOptions};
use dendro_versions::name;

use crate::offline::as_mounted;
use crate::output;

/// The branch that is made from a version that is no head.
const BRANCH: &str = "rebuilt-in-memory";

/// Repairs a version on `device` as `dendro check -y` does; one that is no head in a branch that is
/// made from it. Returns the name of what was repaired, as far as it could be.
pub(super) fn mend(
    device: &Arc<dyn Device>,
    version: &VersionName,
    memory_bytes: u64,
) -> VersionName {
    let mut name = version.clone();
    if let Err(why) = mend_as(device, &mut name, memory_bytes) {
        output::message(format_args!("what has lost its name may be missing: {why}"));
    }
    name
}

/// Does it; `name` becomes that of the branch as soon as there is one.
fn mend_as(
    device: &Arc<dyn Device>,
    name: &mut VersionName,
    memory_bytes: u64,
) -> Result<(), String> {
    // It is in memory.
    let options = OpenOptions { is_on_set: true, ..as_mounted() };
    let disk = LogDisk::open(Arc::clone(device), options, clock()).map_err(text)?;
    let done = mend_on(&disk, name, memory_bytes);
    let shut_down = disk.shut_down();
    done?;
    shut_down.map_err(text)
}

fn mend_on(disk: &LogDisk, name: &mut VersionName, memory_bytes: u64) -> Result<(), String> {
    let now = clock().now();
    let table = disk.versions();
    let mut view = name::resolve(&table, table.main_head(), name, now)?;
    if view.epoch.is_some() {
        view = disk.branch_off(view, BRANCH).map_err(text)?.head();
        *name = VersionName { branch: Some(BRANCH.to_owned()), moment: None };
    }
    let options = RepairOptions {
        safe_only: false,
        data: false,
        memory_bytes,
        now,
        hash_key: random_bytes().map_err(|failure| failure.message)?,
    };
    let versions: Vec<View> = table.views().collect();
    let mut rest = || Ok(disk.background_step().map(drop)?);
    let repaired = dendro_fs::repair(disk, view, &versions, &options, &mut rest).map_err(text)?;
    let failure = repaired.failures.first();
    failure.map_or(Ok(()), |(finding, error)| Err(format!("{finding}: {error}")))
}

fn text(error: impl Display) -> String {
    error.to_string()
}
