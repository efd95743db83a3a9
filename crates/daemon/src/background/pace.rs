//! When threads of the background rest, and what they report of failures.

use std::time::Duration;

/// How long a thread rests after an error, which does not go away.
pub(super) const ERROR_REST: Duration = Duration::from_secs(1);

/// How long something has not changed.
#[derive(Default)]
pub(super) struct Quiet {
    last: u64,
    rested: Duration,
}

impl Quiet {
    /// Notes how it is after a rest of so long, at most.
    pub(super) fn note(&mut self, now: u64, rest: Duration) {
        if std::mem::replace(&mut self.last, now) == now {
            self.rested = self.rested.saturating_add(rest);
        } else {
            self.rested = Duration::ZERO;
        }
    }

    pub(super) const fn lasts_for(&self) -> Duration {
        self.rested
    }
}

/// Says once that something has begun to fail, and once that it goes on again.
pub(super) struct Failing {
    what: &'static str,
    is_failing: bool,
}

impl Failing {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, is_failing: false }
    }

    pub(super) fn note<T>(&mut self, answer: Result<T, dendro_disk::Error>) -> Option<T> {
        let was_failing = std::mem::replace(&mut self.is_failing, answer.is_err());
        match answer {
            Ok(value) => {
                if was_failing {
                    log::info!("{} works again", self.what);
                }
                Some(value)
            }
            Err(error) => {
                if !was_failing {
                    log::error!("{}: {error}", self.what);
                }
                None
            }
        }
    }
}
