//! Pauses of background threads, and what they log of failures.

use std::time::Duration;

/// How long a thread rests after an error that does not go away.
pub(super) const ERROR_REST: Duration = Duration::from_secs(1);

/// Measures how long a number has not changed.
#[derive(Default)]
pub(super) struct Quiet {
    last: u64,
    rested: Duration,
}

impl Quiet {
    /// Takes the number after a rest of at most `rest`.
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

/// Logs once that an activity fails, and once that it works again.
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
