//! Checks the volume on a frozen state, while its users go on.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::check::{CheckProgress, CheckReport, Severity};
use dendro_device::Device;

use super::cleaner::lower_priority;
use super::scrub::{Pace, between};
use crate::check::online::{Job, endangers_data};
use crate::check::{CheckOptions, NotChecked, check};
use crate::state::Daemon;
use crate::volume::memory::default_check_bytes;

/// While clients use the volume, a check that nobody waits for may take this share of the time.
/// With a smaller one it would hold back segments for longer.
const BUSY_SHARE: u32 = 4;

/// So many findings of a kind are listed: the report goes over the control socket.
const MAX_FINDINGS_OF_A_KIND: usize = 100;

/// How often a state is frozen again for one who waits, when writers needed the room of the last.
const MAX_TRIES: u32 = 4;

/// How long a check that nobody waits for rests then.
const RETRY_REST: Duration = Duration::from_secs(60);

/// Why there is no result of one attempt.
enum Failed {
    /// Writers needed the room that the frozen state took.
    GaveWay,
    /// Anything else.
    Because(String),
}

impl Daemon<'_> {
    /// Makes checks until the daemon ends.
    pub(crate) fn check(&self) {
        lower_priority();
        while let Some(job) = self.checks.await_work() {
            let result = self.make_check(job);
            if job.is_own {
                self.act_on(&result);
            }
            self.checks.note_end(job, result);
        }
    }

    fn make_check(&self, job: Job) -> Result<CheckReport, String> {
        for tries in 1.. {
            match self.try_check(job) {
                Ok(report) => return Ok(report),
                Err(Failed::Because(why)) => return Err(why),
                Err(Failed::GaveWay) if job.is_own => {
                    if !self.checks.rest(RETRY_REST) {
                        break;
                    }
                }
                Err(Failed::GaveWay) if tries < MAX_TRIES => {}
                Err(Failed::GaveWay) => {
                    return Err(
                        "writers need the room that the frozen state takes: check it when \
                                less is written, or when it is not mounted"
                            .into(),
                    );
                }
            }
        }
        Err("the daemon ends".into())
    }

    /// Freezes the volume and checks that state.
    fn try_check(&self, job: Job) -> Result<CheckReport, Failed> {
        let disk = self.volume.disk();
        let frozen = disk.freeze().map_err(|error| Failed::Because(error.to_string()))?;
        let frozen = frozen.ok_or_else(|| Failed::Because("it is frozen already".into()))?;
        let frozen = Arc::new(frozen);
        let device: Arc<dyn Device> = Arc::clone(&frozen) as _;
        let options = CheckOptions {
            source: self.volume.source().display().to_string(),
            data: job.request.data,
            memory_bytes: job.request.memory_bytes.unwrap_or_else(|| default_check_bytes() / 2),
            max_findings_of_a_kind: MAX_FINDINGS_OF_A_KIND,
            with_two_threads: false,
        };
        let mut pace = Pace::new(disk.activity(), BUSY_SHARE);
        let mut began = SystemClock.now();
        let mut tell = |progress: CheckProgress| {
            self.checks.note_progress(progress)?;
            if job.is_own {
                let now = SystemClock.now();
                let rest = pace.rest(between(began, now), now, 0, disk.activity(), None);
                if !self.checks.rest(rest) {
                    return ControlFlow::Break(());
                }
                began = SystemClock.now();
            }
            if frozen.is_held() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let checked = check(&device, &options, &mut tell);
        if !frozen.is_held() {
            return Err(Failed::GaveWay);
        }
        match checked {
            Ok(report) => Ok(CheckReport { mounted: true, ..report }),
            Err(NotChecked::NoVolume(why) | NotChecked::NoRoom(why)) => Err(Failed::Because(why)),
            Err(NotChecked::Cancelled) => Err(Failed::Because("it was cancelled".into())),
        }
    }

    /// Logs the result of a check that nobody waits for, and closes the volume for writing if it is
    /// bad.
    fn act_on(&self, result: &Result<CheckReport, String>) {
        let report = match result {
            Ok(report) => report,
            Err(why) => return log::warn!("the check after an unclean end was not made: {why}"),
        };
        let wrong = report.findings.iter().filter(|of| of.is_wrong());
        for finding in wrong.filter(|of| of.severity == Severity::Error) {
            log::error!(
                "check: {}: {}: {}; that is in {:?}",
                finding.number,
                finding.title,
                finding.detail,
                finding.paths
            );
        }
        let Some(serious) = endangers_data(report) else {
            return log::info!(
                "the check after an unclean end has found {}",
                if report.sound { "nothing wrong" } else { "no danger; see `dendro stat`" }
            );
        };
        let why = format!(
            "the check after an unclean end has found damage ({}: {}); unmount it, and see \
             dendro check -y and dendro rebuild",
            serious.number, serious.title
        );
        match self.volume.disk().close_for_writing(&why) {
            Ok(()) => log::error!("the volume is read-only now: {why}"),
            Err(error) => log::error!("{why}; what was written last may be lost: {error}"),
        }
    }
}
