//! Scrubs the volume at a pace that leaves it to its users.

use std::time::Duration;

use dendro_base::{Clock, SystemClock, Timestamp};

use super::cleaner::lower_priority;
use super::pace::ERROR_REST;
use crate::scrub::Work;
use crate::state::Daemon;

/// While clients use the volume, a step may take this share of the time.
const BUSY_SHARE: u32 = 20;

/// The volume counts as used for so long after a client has read or written.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// How often the position is recorded. A kill loses no more than this.
const RECORD_INTERVAL: Duration = Duration::from_secs(10);

/// Shorter rests are saved up, because a sleep takes longer than it is asked to.
const LEAST_REST: Duration = Duration::from_millis(5);

/// The longest rest, so that the pace follows the use of the volume.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Decides how long to rest after a step.
pub(super) struct Pace {
    activity: u64,
    /// While clients use the volume, steps take one part of so many of the time.
    busy_share: u32,
    active_at: Option<Timestamp>,
    owed: Duration,
}

/// From `earlier` to `later`; nothing if the clock was set back.
pub(super) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::from_nanos(u64::try_from(later.0.saturating_sub(earlier.0)).unwrap_or(0))
}

impl Pace {
    pub(super) const fn new(activity: u64, busy_share: u32) -> Self {
        Self { activity, busy_share, active_at: None, owed: Duration::ZERO }
    }

    /// The rest after a step that took `took`, ended at `now`, and has read `read_bytes`.
    /// `activity` grows as clients use the volume.
    pub(super) fn rest(
        &mut self,
        took: Duration,
        now: Timestamp,
        read_bytes: u64,
        activity: u64,
        rate_bytes_per_sec: Option<u64>,
    ) -> Duration {
        if std::mem::replace(&mut self.activity, activity) != activity {
            self.active_at = Some(now);
        }
        let is_busy = self.active_at.is_some_and(|at| between(at, now) < BUSY_FOR);
        self.owed += match rate_bytes_per_sec {
            Some(rate) => {
                let due = Duration::from_secs_f64(read_bytes as f64 / rate.max(1) as f64);
                due.saturating_sub(took)
            }
            None if is_busy => took.saturating_mul(self.busy_share - 1),
            None => took,
        };
        if self.owed < LEAST_REST {
            return Duration::ZERO;
        }
        let rest = self.owed.min(LONGEST_REST);
        // With a rate, what was not rested yet is rested later.
        self.owed = match rate_bytes_per_sec {
            Some(_) => self.owed - rest,
            None => Duration::ZERO,
        };
        rest
    }
}

impl Daemon<'_> {
    /// Works on scrubs until the daemon ends.
    pub(crate) fn scrub(&self) {
        lower_priority();
        while let Some(work) = self.scrub.await_work() {
            self.work_on(work);
            // At the end of the daemon too, so that the next mount continues.
            self.scrub.keep(self.volume.disk());
        }
    }

    /// Works on a pass until it ends, or a request changes it.
    fn work_on(&self, mut work: Work) {
        let disk = self.volume.disk();
        let mut pace = Pace::new(disk.activity(), BUSY_SHARE);
        let mut recorded = SystemClock.now();
        loop {
            let (began, before) = (SystemClock.now(), work.pass.progress());
            let stepped = disk.scrub_step(&mut work.pass);
            let now = SystemClock.now();
            let problem = stepped.as_ref().err().map(ToString::to_string);
            if let (Ok(false), None) = (&stepped, &problem) {
                let found = work.pass.progress().found_count;
                log::info!("the scrub has ended; damaged places: {found}");
                self.record_damage();
                return self.scrub.note_end(&work);
            }
            let rest = match problem {
                Some(_) => ERROR_REST,
                None => {
                    let read_bytes = work.pass.progress().checked_bytes - before.checked_bytes;
                    let took = between(began, now);
                    pace.rest(took, now, read_bytes, disk.activity(), work.rate_bytes_per_sec)
                }
            };
            if !self.scrub.note_step(&work, problem) {
                return;
            }
            if between(recorded, now) >= RECORD_INTERVAL {
                self.scrub.keep(disk);
                recorded = now;
            }
            self.scrub.rest(&work, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: i64) -> Timestamp {
        Timestamp(secs * 1_000_000_000)
    }

    #[test]
    fn a_step_takes_a_twentieth_of_the_time_while_the_volume_is_used_and_half_otherwise() {
        let mut pace = Pace::new(5, BUSY_SHARE);
        let took = Duration::from_millis(10);
        assert_eq!(pace.rest(took, secs(0), 1, 5, None), took);
        assert_eq!(pace.rest(took, secs(1), 1, 6, None), 19 * took);
        assert_eq!(pace.rest(took, secs(1), 1, 6, None), 19 * took);
        assert_eq!(pace.rest(took, secs(3), 1, 6, None), took);
        assert_eq!(pace.rest(Duration::from_secs(9), secs(4), 1, 7, None), LONGEST_REST);
        // Short steps are rested for together.
        let short = Duration::from_millis(2);
        assert_eq!(pace.rest(short, secs(9), 1, 7, None), Duration::ZERO);
        assert_eq!(pace.rest(short, secs(9), 1, 7, None), Duration::ZERO);
        assert_eq!(pace.rest(short, secs(9), 1, 7, None), 3 * short);
    }

    #[test]
    fn a_rate_is_kept_whatever_others_do() {
        let mut pace = Pace::new(0, BUSY_SHARE);
        let mut rested = Duration::ZERO;
        for at in 0..1000 {
            rested += pace.rest(Duration::from_millis(1), secs(at), 4096, at as u64, Some(1 << 20));
        }
        // 4,096,000 bytes take 3.9 s, of which 1 s was work.
        assert!((2.8..3.0).contains(&rested.as_secs_f64()), "{rested:?}");
    }
}
