//! The facts of a volume that has no mount: one that nobody has open, or whose block devices are
//! served.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, SystemClock, Timestamp};
use dendro_control::Facts;
use dendro_control::check::CheckInfo;
use dendro_control::damage::DamageInfo;
use dendro_disk::{LogicalDisk, Versions};
use dendro_fs::{FsError, kept_damage};
use dendro_fuse::Timings;
use dendro_logdisk::LogDisk;
use dendro_nbd::Activity;

use crate::metrics::{self, Context, Memory};
use crate::volume::memory::resident_bytes;
use crate::{check, damage, scrub};

/// What the statistics of a volume whose block devices are served need besides those of its disk.
#[derive(Debug)]
pub struct Unmounted {
    /// No requests of the kernel.
    timings: Timings,
    blocks: Arc<Activity>,
    since: Timestamp,
    is_read_only: bool,
}

impl Unmounted {
    /// Of a volume that has been served `since` then, and was opened for reading only if it
    /// `is_read_only`. `blocks` counts what clients of NBD ask for.
    #[must_use]
    pub fn new(since: Timestamp, is_read_only: bool, blocks: Arc<Activity>) -> Self {
        Self { timings: Timings::default(), blocks, since, is_read_only }
    }

    fn context(&self, disk: &LogDisk) -> Context<'_> {
        let now = SystemClock.now();
        let served_ns = u64::try_from(now.0.saturating_sub(self.since.0)).unwrap_or(0);
        Context {
            memory: Memory { resident_bytes: resident_bytes(), ..Memory::default() },
            timings: &self.timings,
            blocks: &self.blocks,
            mounted_for: Duration::from_nanos(served_ns),
            is_latched: !self.is_read_only && disk.read_only_reason().is_some(),
            now,
        }
    }

    /// Names and numbers, for `dendro stat`. Of damage and scrubs they tell what is kept with the
    /// volume.
    ///
    /// # Errors
    /// What is kept cannot be read.
    pub fn facts(&self, disk: &LogDisk) -> Result<Facts, FsError> {
        let mut facts = metrics::facts(disk, &self.context(disk));
        facts.extend(damage::facts(&met_damage(disk, false)?));
        facts.extend(scrub::facts(&scrub::kept_info(disk)?));
        facts.extend(check::report::facts(&CheckInfo::default()));
        Ok(facts)
    }

    /// The same in Prometheus's text format; `source` is the image file or device.
    ///
    /// # Errors
    /// As [`Self::facts`].
    pub fn exposition(&self, disk: &LogDisk, source: &str) -> Result<String, FsError> {
        let damage = damage::exposition(&met_damage(disk, false)?);
        let scrub = scrub::exposition(&scrub::kept_info(disk)?);
        let check = check::report::exposition(&CheckInfo::default());
        Ok(metrics::exposition(disk, &self.context(disk), source, "") + &damage + &scrub + &check)
    }
}

/// The damage that is kept with a volume.
///
/// # Errors
/// It cannot be read.
pub fn met_damage(disk: &LogDisk, with_places: bool) -> Result<DamageInfo, FsError> {
    let kept = kept_damage(disk, disk.versions().main_head())?;
    Ok(damage::info(&kept, disk, with_places))
}
