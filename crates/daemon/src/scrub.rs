//! The scrub of the volume: requests about it, what is recorded of it with the volume, and what is
//! reported. A thread (`background`) does the work.
//!
//! - `report`: names and numbers. `offline`: a pass over a volume that nobody has mounted.

mod offline;
mod report;

pub use offline::scrub_to_end;
pub(crate) use report::{exposition, facts};

use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_base::{Clock, SystemClock};
use dendro_control::AdminError;
use dendro_control::scrub::{ScrubAction, ScrubInfo, ScrubRequest};
use dendro_disk::{LogicalDisk, Versions};
use dendro_fs::{KeptScrub, ScrubPass, ScrubState, keep_scrub, kept_scrub};
use dendro_logdisk::{LogDisk, Scrub};

use crate::volume::Volume;

#[derive(Default)]
struct State {
    /// The newest pass; its position is that of the last step.
    kept: Option<KeptScrub>,
    /// Counts requests that begin or change a pass. The thread that works drops the result of a
    /// step that it began before.
    change_count: u64,
    /// Why the pass cannot continue at the moment.
    problem: Option<String>,
    is_ending: bool,
}

/// The scrub of the volume.
#[derive(Default)]
pub(crate) struct Scrubber {
    state: Mutex<State>,
    changed: Condvar,
}

/// The pass that a thread works on, and the request that it follows.
pub(crate) struct Work {
    pub(crate) pass: Scrub,
    pub(crate) rate_bytes_per_sec: Option<u64>,
    change_count: u64,
}

impl Scrubber {
    /// Reads what is recorded with the volume.
    pub(crate) fn of(volume: &Volume) -> Self {
        let disk = volume.disk();
        let kept = kept_scrub(disk, disk.versions().main_head()).unwrap_or_else(|error| {
            log::warn!("where the scrub was cannot be read: {error}");
            None
        });
        Self { state: Mutex::new(State { kept, ..State::default() }), changed: Condvar::new() }
    }

    /// Carries out a request; returns what there is to record.
    fn change(&self, request: &ScrubRequest) -> Result<Option<KeptScrub>, AdminError> {
        let refuse = |why: &str| Err(AdminError(why.into()));
        let mut state = self.state.lock();
        let now_state = state.kept.as_ref().map(|kept| kept.state);
        let is_under_way = matches!(now_state, Some(ScrubState::Running | ScrubState::Paused));
        match request.action {
            ScrubAction::Status => return Ok(None),
            ScrubAction::Start if is_under_way => {
                return refuse(
                    "a scrub is under way; `dendro scrub resume` continues it, and `cancel` ends it",
                );
            }
            ScrubAction::Start => {
                let last_complete = state.kept.as_ref().and_then(|kept| kept.last_complete);
                state.kept = Some(KeptScrub {
                    state: ScrubState::Running,
                    started: SystemClock.now(),
                    rate_bytes_per_sec: request.rate_bytes_per_sec,
                    memory_bytes: request.memory_bytes,
                    position: Scrub::new().position(),
                    last_complete,
                });
            }
            _ if !is_under_way => return refuse("no scrub is under way"),
            ScrubAction::Pause | ScrubAction::Resume | ScrubAction::Cancel => {
                let kept = state.kept.as_mut().expect("a scrub is under way");
                kept.state = match request.action {
                    ScrubAction::Pause => ScrubState::Paused,
                    ScrubAction::Cancel => ScrubState::Cancelled,
                    _ => ScrubState::Running,
                };
                if request.action == ScrubAction::Resume {
                    let rate = request.rate_bytes_per_sec;
                    kept.rate_bytes_per_sec = rate.or(kept.rate_bytes_per_sec);
                    kept.memory_bytes = request.memory_bytes.or(kept.memory_bytes);
                }
            }
        }
        state.change_count += 1;
        state.problem = None;
        self.changed.notify_all();
        Ok(state.kept.clone())
    }

    /// Carries out a request, records the result with the volume, and reports it.
    pub(crate) fn answer(
        &self,
        disk: &LogDisk,
        request: &ScrubRequest,
    ) -> Result<ScrubInfo, AdminError> {
        if let Some(kept) = self.change(request)? {
            record(disk, &kept);
        }
        Ok(self.info(disk))
    }

    /// The report of the scrub.
    pub(crate) fn info(&self, disk: &LogDisk) -> ScrubInfo {
        let (kept, problem) = {
            let state = self.state.lock();
            (state.kept.clone(), state.problem.clone())
        };
        ScrubInfo { problem, ..report::info(kept.as_ref(), disk) }
    }

    /// Waits until a pass is to be worked on; `None` if the daemon ends.
    pub(crate) fn await_work(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if state.is_ending {
                return None;
            }
            if let Some(kept) = state.kept.as_ref().filter(|of| of.state == ScrubState::Running) {
                // A position that is none can only come from newer software.
                let pass = Scrub::resume(&kept.position).unwrap_or_default();
                let pass = with_memory(pass, kept.memory_bytes);
                let rate_bytes_per_sec = kept.rate_bytes_per_sec;
                return Some(Work { pass, rate_bytes_per_sec, change_count: state.change_count });
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes over what a step has done. Returns whether the pass is to continue: no request has
    /// changed it.
    pub(crate) fn note_step(&self, work: &Work, problem: Option<String>) -> bool {
        let mut state = self.state.lock();
        // If a request came meanwhile, this step is done again or not needed.
        let is_same = state.change_count == work.change_count;
        if is_same && let Some(kept) = &mut state.kept {
            kept.position = work.pass.position();
            state.problem = problem;
        }
        is_same && !state.is_ending
    }

    /// Notes that the pass has reached the end.
    pub(crate) fn note_end(&self, work: &Work) {
        let mut state = self.state.lock();
        if state.change_count != work.change_count {
            return;
        }
        if let Some(kept) = &mut state.kept {
            let progress = work.pass.progress();
            kept.state = ScrubState::Finished;
            kept.position = work.pass.position();
            kept.last_complete = Some(ScrubPass {
                started: kept.started,
                ended: SystemClock.now(),
                checked_bytes: progress.checked_bytes,
                found_count: progress.found_count,
            });
        }
    }

    /// Waits for at most `timeout`, until a request changes the pass or the daemon ends.
    pub(crate) fn rest(&self, work: &Work, timeout: Duration) {
        let mut state = self.state.lock();
        if !timeout.is_zero() && state.change_count == work.change_count && !state.is_ending {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
    }

    /// Records with the volume how the scrub stands, if there was one.
    pub(crate) fn keep(&self, disk: &LogDisk) {
        let kept = self.state.lock().kept.clone();
        if let Some(kept) = kept {
            record(disk, &kept);
        }
    }

    /// Ends all waiting permanently.
    pub(crate) fn end_waiting(&self) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
    }
}

fn with_memory(pass: Scrub, memory_bytes: Option<u64>) -> Scrub {
    match memory_bytes {
        Some(bytes) => pass.with_memory(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => pass,
    }
}

/// The report of the scrub that is recorded with a volume that nobody has mounted.
///
/// # Errors
/// Errors of the disk.
pub fn kept_info(disk: &LogDisk) -> Result<ScrubInfo, dendro_fs::FsError> {
    let kept = kept_scrub(disk, disk.versions().main_head())?;
    Ok(report::info(kept.as_ref(), disk))
}

/// Records the scrub with the volume, if that is writable.
fn record(disk: &LogDisk, kept: &KeptScrub) {
    if disk.read_only_reason().is_some() {
        return;
    }
    if let Err(error) = keep_scrub(disk, disk.versions().main_head(), kept) {
        log::warn!("where the scrub is cannot be recorded: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(action: ScrubAction) -> ScrubRequest {
        ScrubRequest { action, ..ScrubRequest::default() }
    }

    #[test]
    fn a_pass_follows_requests_and_keeps_its_place() {
        let scrubber = Scrubber::default();
        for action in [ScrubAction::Pause, ScrubAction::Resume, ScrubAction::Cancel] {
            assert!(scrubber.change(&ask(action)).is_err());
        }
        scrubber.change(&ask(ScrubAction::Start)).unwrap();
        assert!(scrubber.change(&ask(ScrubAction::Start)).is_err());
        let work = scrubber.await_work().unwrap();
        assert!(scrubber.note_step(&work, None));
        let paused = scrubber.change(&ask(ScrubAction::Pause)).unwrap().unwrap();
        assert_eq!(paused.state, ScrubState::Paused);
        assert!(!scrubber.note_step(&work, None));
        // The end of a step that began before a request changes nothing.
        scrubber.note_end(&work);
        assert_eq!(scrubber.state.lock().kept.as_ref().unwrap().state, ScrubState::Paused);
        let memory = ScrubRequest { memory_bytes: Some(8 << 20), ..ask(ScrubAction::Resume) };
        scrubber.change(&memory).unwrap();
        let rate = ScrubRequest { rate_bytes_per_sec: Some(7), ..ask(ScrubAction::Resume) };
        let kept = scrubber.change(&rate).unwrap().unwrap();
        assert_eq!(kept.memory_bytes, Some(8 << 20));
        let work = scrubber.await_work().unwrap();
        assert_eq!(work.rate_bytes_per_sec, Some(7));
        scrubber.note_end(&work);
        let kept = scrubber.state.lock().kept.clone().unwrap();
        assert_eq!(kept.state, ScrubState::Finished);
        assert_eq!(kept.last_complete.unwrap().started, kept.started);
        assert!(scrubber.change(&ask(ScrubAction::Cancel)).is_err());
        scrubber.end_waiting();
        assert!(scrubber.await_work().is_none());
    }
}
