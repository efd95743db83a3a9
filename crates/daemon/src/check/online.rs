//! Checks of the mounted volume, one at a time: requests, how far one is, and the last result. A
//! thread (`background`) does the work.

use std::ops::ControlFlow;
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_base::{Clock, SystemClock};
use dendro_control::check::{CheckFinding, CheckInfo, CheckProgress, CheckReport, Severity};
use dendro_control::check::{CheckRequest, CheckState};

/// How often the one who asked is told how far the check is.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

/// A check that is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job {
    pub(crate) request: CheckRequest,
    /// Nobody waits for it: it was begun by the mount.
    pub(crate) is_own: bool,
}

#[derive(Default)]
struct State {
    wanted: Option<Job>,
    running: Option<Job>,
    progress: CheckProgress,
    is_cancelled: bool,
    /// The result, for the one who waits for it.
    result: Option<Result<CheckReport, String>>,
    last: CheckInfo,
    is_ending: bool,
}

/// The checks of the volume.
#[derive(Default)]
pub(crate) struct Checks {
    state: Mutex<State>,
    changed: Condvar,
}

impl Checks {
    /// Has the volume checked soon, with nobody who waits for it.
    pub(crate) fn begin_own(&self) {
        self.state.lock().wanted = Some(Job { is_own: true, ..Job::default() });
        self.changed.notify_all();
    }

    /// Has the volume checked, and waits for the result. `tell` is called with how far the check
    /// is, several times a second, and may break it off.
    pub(crate) fn ask(
        &self,
        request: CheckRequest,
        tell: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
    ) -> Result<CheckReport, String> {
        let mut state = self.state.lock();
        if state.wanted.is_some() || state.running.is_some() || state.result.is_some() {
            return Err("a check is under way; `dendro stat` says how far it is".into());
        }
        state.wanted = Some(Job { request, is_own: false });
        (state.is_cancelled, state.progress) = (false, CheckProgress::default());
        self.changed.notify_all();
        loop {
            let _ = self.changed.wait_for(&mut state, TELL_INTERVAL);
            if let Some(result) = state.result.take() {
                return result;
            }
            if state.is_ending && state.running.is_none() {
                return Err("the daemon ends".into());
            }
            let progress = state.progress.clone();
            drop(state);
            let told = tell(progress);
            state = self.state.lock();
            state.is_cancelled |= told.is_break();
        }
    }

    /// Waits for a check to be made; `None` if the daemon ends.
    pub(crate) fn await_work(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_ending {
                return None;
            }
            if let Some(job) = state.wanted.take() {
                state.running = Some(job);
                state.last.state = CheckState::Running;
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes over how far the check is; returns whether it is to go on.
    pub(crate) fn note_progress(&self, progress: CheckProgress) -> ControlFlow<()> {
        let mut state = self.state.lock();
        state.progress = progress;
        let is_over = state.is_cancelled || state.is_ending;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Rests for at most `timeout`; returns whether the check is to go on.
    pub(crate) fn rest(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !timeout.is_zero() && !state.is_ending && !state.is_cancelled {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
        !state.is_ending && !state.is_cancelled
    }

    /// Takes over the result.
    pub(crate) fn note_end(&self, job: Job, result: Result<CheckReport, String>) {
        let mut state = self.state.lock();
        state.running = None;
        state.last = match &result {
            Ok(report) => info_of(report),
            Err(problem) => CheckInfo {
                state: CheckState::NotDone,
                problem: Some(problem.clone()),
                ..CheckInfo::default()
            },
        };
        state.last.ended_unix_ns = Some(SystemClock.now().0);
        if !job.is_own {
            state.result = Some(result);
        }
        self.changed.notify_all();
    }

    /// The report of the last check, or of the one under way.
    pub(crate) fn info(&self) -> CheckInfo {
        let state = self.state.lock();
        let progress = state.running.map(|_| state.progress.text.clone());
        CheckInfo { progress, ..state.last.clone() }
    }

    /// Ends all waiting permanently.
    pub(crate) fn end_waiting(&self) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
    }
}

fn info_of(report: &CheckReport) -> CheckInfo {
    let count = |severity| {
        let of_severity = |of: &&CheckFinding| of.is_wrong() && of.severity == severity;
        report.findings.iter().filter(of_severity).count() as u64
    };
    let worst = report.findings.iter().filter(|of| of.is_wrong()).max_by_key(|of| of.severity);
    CheckInfo {
        state: CheckState::Ended,
        error_count: Some(count(Severity::Error)),
        warning_count: Some(count(Severity::Warning)),
        problem: worst.map(|of| format!("{}: {}: {}", of.number, of.title, of.detail)),
        ..CheckInfo::default()
    }
}

/// The first finding because of which nobody should go on writing: the map or the log is wrong, or
/// files of a head are. Damaged contents of files, and what snapshots alone have, concern only
/// those who read them.
pub(crate) fn endangers_data(report: &CheckReport) -> Option<&CheckFinding> {
    const OF_CONTENTS: [u16; 3] = [31, 32, 219];
    report.findings.iter().find(|of| {
        of.severity == Severity::Error && !of.in_past && !OF_CONTENTS.contains(&of.number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::all_kinds;

    #[test]
    fn contents_of_files_and_snapshots_do_not_close_a_volume() {
        let with = |number, in_past| {
            let kind = all_kinds().into_iter().find(|kind| kind.number == number);
            let finding = kind.expect("there is this kind").finding(String::new());
            let findings = vec![CheckFinding { in_past, ..finding }];
            CheckReport { findings, ..CheckReport::default() }
        };
        for number in [31, 32, 219, 51, 210] {
            assert_eq!(endangers_data(&with(number, false)), None, "{number}");
        }
        for number in [10, 22, 34, 100, 202, 207] {
            assert!(endangers_data(&with(number, false)).is_some(), "{number}");
        }
        assert_eq!(endangers_data(&with(207, true)), None);
        let info = info_of(&with(207, false));
        assert_eq!((info.error_count, info.warning_count), (Some(1), Some(0)));
        assert!(info.problem.is_some_and(|problem| problem.starts_with("207: ")));
    }

    #[test]
    fn one_check_at_a_time_and_the_end_ends_all_waits() {
        let checks = Checks::default();
        checks.begin_own();
        let mut go_on = |_| ControlFlow::Continue(());
        assert!(checks.ask(CheckRequest::default(), &mut go_on).is_err());
        let job = checks.await_work().expect("there is work");
        assert!(job.is_own && checks.note_progress(CheckProgress::default()).is_continue());
        assert_eq!(checks.info().state, CheckState::Running);
        checks.note_end(job, Ok(CheckReport::default()));
        assert_eq!(checks.info().state, CheckState::Ended);
        checks.end_waiting();
        assert!(checks.await_work().is_none());
        assert!(checks.note_progress(CheckProgress::default()).is_break());
    }
}
