//! Reports of the scrub.

use dendro_base::Timestamp;
use dendro_control::Facts;
use dendro_control::scrub::{ScrubInfo, ScrubPass, ScrubState};
use dendro_fs::{KeptScrub, ScrubState as KeptState};
use dendro_logdisk::{LogDisk, Scrub};

use crate::metrics::exposition::gauges;

/// The report of what is recorded of a scrub.
pub(super) fn info(kept: Option<&KeptScrub>, disk: &LogDisk) -> ScrubInfo {
    let live_bytes = disk.stats().live_bytes;
    let Some(kept) = kept else { return ScrubInfo { live_bytes, ..ScrubInfo::default() } };
    let progress = Scrub::resume(&kept.position).unwrap_or_default().progress();
    ScrubInfo {
        state: match kept.state {
            KeptState::Running => ScrubState::Running,
            KeptState::Paused => ScrubState::Paused,
            KeptState::Finished => ScrubState::Finished,
            KeptState::Cancelled => ScrubState::Cancelled,
        },
        rate_bytes_per_sec: kept.rate_bytes_per_sec,
        memory_bytes: kept.memory_bytes,
        started_unix_ns: Some(kept.started.0),
        checked_bytes: progress.checked_bytes,
        live_bytes,
        found_count: progress.found_count,
        problem: None,
        last_complete: kept.last_complete.map(|last| ScrubPass {
            started_unix_ns: last.started.0,
            ended_unix_ns: last.ended.0,
            checked_bytes: last.checked_bytes,
            found_count: last.found_count,
        }),
    }
}

/// Names and numbers, for `dendro stat`.
pub(crate) fn facts(info: &ScrubInfo) -> Facts {
    let last = info.last_complete;
    Facts::from([
        ("scrub_running".to_owned(), (info.state == ScrubState::Running).into()),
        ("scrub_checked_bytes".to_owned(), info.checked_bytes.into()),
        ("scrub_found".to_owned(), info.found_count.into()),
        ("scrub_last_unix_ns".to_owned(), last.map(|last| last.ended_unix_ns).into()),
        ("scrub_last_found".to_owned(), last.map(|last| last.found_count).into()),
    ])
}

/// The same in Prometheus's text format.
pub(crate) fn exposition(info: &ScrubInfo) -> String {
    let last = info.last_complete.unwrap_or_default();
    let metrics = [
        (
            "running",
            "Whether a scrub runs.",
            u64::from(info.state == ScrubState::Running).to_string(),
        ),
        ("checked_bytes", "Bytes that the newest scrub has read.", info.checked_bytes.to_string()),
        ("found", "Damaged places that it has found.", info.found_count.to_string()),
        (
            "last_timestamp_seconds",
            "When a scrub last reached the end; 0: never.",
            Timestamp(last.ended_unix_ns).secs().to_string(),
        ),
        ("last_found", "Damaged places that this one found.", last.found_count.to_string()),
    ];
    gauges("scrub", metrics.map(|(name, help, value)| (name, help, Some(value))))
}
