//! A scrub of a volume that nobody has mounted.

use dendro_base::{Clock, SystemClock};
use dendro_control::damage::DamageInfo;
use dendro_control::scrub::{ScrubInfo, ScrubPass, ScrubState};
use dendro_disk::Error;
use dendro_logdisk::{LogDisk, Scrub};

use crate::damage;

/// Performs a whole pass over `disk`, and calls `show` after each step. `memory_bytes` is for what
/// it reads next; `None`: 16 MiB. Returns the pass and the damage that it found.
///
/// # Errors
/// The map cannot be read beyond some place.
pub fn scrub_to_end(
    disk: &LogDisk,
    memory_bytes: Option<u64>,
    mut show: impl FnMut(&ScrubInfo),
) -> Result<(ScrubInfo, DamageInfo), Error> {
    let mut pass = super::with_memory(Scrub::new(), memory_bytes);
    let mut info = ScrubInfo {
        state: ScrubState::Running,
        memory_bytes,
        started_unix_ns: Some(SystemClock.now().0),
        live_bytes: disk.stats().live_bytes,
        ..ScrubInfo::default()
    };
    while disk.scrub_step(&mut pass)? {
        let progress = pass.progress();
        (info.checked_bytes, info.found_count) = (progress.checked_bytes, progress.found_count);
        show(&info);
    }
    let progress = pass.progress();
    let ended = SystemClock.now();
    info = ScrubInfo {
        state: ScrubState::Finished,
        checked_bytes: progress.checked_bytes,
        found_count: progress.found_count,
        last_complete: Some(ScrubPass {
            started_unix_ns: info.started_unix_ns.unwrap_or(0),
            ended_unix_ns: ended.0,
            checked_bytes: progress.checked_bytes,
            found_count: progress.found_count,
        }),
        ..info
    };
    Ok((info, damage::found_on(disk, ended)))
}
