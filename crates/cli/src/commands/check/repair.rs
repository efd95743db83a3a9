//! Repairs the files of all branches: what `-y` does, and `-p -f` as far as nothing is to be
//! decided.

use std::path::Path;

use dendro_daemon::volume::{clock, random_bytes};
use dendro_disk::{Error as DiskError, LogicalDisk};
use dendro_fs::{FsError, RepairOptions, Repaired, repair_branches};
use dendro_logdisk::OpenOptions;

use super::told::Told;
use crate::failure::Failure;
use crate::offline::{as_mounted, open_for_writing};

/// What a repair may do.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// Only what takes no decision about data.
    pub(super) safe_only: bool,
    /// Contents of files are looked at too.
    pub(super) data: bool,
    /// The memory for what is kept about files, about.
    pub(super) memory_bytes: u64,
}

/// Repairs the heads of all branches.
pub(super) fn run(source: &Path, wish: Wish, told: &Told) -> Result<Repaired, Failure> {
    let Wish { safe_only, data, memory_bytes } = wish;
    let options = as_mounted();
    let cache_size_bytes = options.cache_size_bytes.min(memory_bytes);
    let (_, disk) = open_for_writing(source, OpenOptions { cache_size_bytes, ..options })?;
    let hash_key = random_bytes()?;
    let options = RepairOptions { safe_only, data, memory_bytes, now: clock().now(), hash_key };
    let mut show = |branch: &str| told.show(format!("repair of :{branch}"));
    // A daemon does this at the same time.
    let mut rest = || Ok(disk.background_step().map(drop)?);
    let repaired = repair_branches(&disk, &options, &mut show, &mut rest);
    let shut_down = disk.shut_down();
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let repaired = repaired.map_err(|error| {
        let advice = match error {
            FsError::Disk(DiskError::NoSpace { .. }) => {
                "; delete files or snapshots, also those of earlier repairs, and repeat it"
            }
            _ => "",
        };
        fail(&format_args!(
            "the repair ended early: {error}; what was mended until then stays{advice}"
        ))
    })?;
    shut_down.map_err(|error| fail(&error))?;
    Ok(repaired)
}
