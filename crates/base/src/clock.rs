//! Time as a value that is passed in.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A point in time: nanoseconds since 1970-01-01T00:00:00Z, negative before it.
///
/// 64 bits reach from 1677 to 2262; times of files, which users set at will, are wider and are
/// the file system's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Whole seconds, rounded towards the past.
    #[must_use]
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds past [`Self::secs`], below 1,000,000,000.
    #[must_use]
    pub const fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// Time from `earlier` to here; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.secs(), self.subsec_nanos())
    }
}

/// Where a layer gets the time from.
pub trait Clock: Send + Sync {
    /// The time now. Later calls never return an earlier time than a simulation sets; the real
    /// clock can be set back by its administrator, so no order may hang on it.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the real clock")]
    fn now(&self) -> Timestamp {
        let nanos = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()),
            Err(before) => i64::try_from(before.duration().as_nanos()).map(|nanos| -nanos),
        };
        Timestamp(nanos.unwrap_or(i64::MAX))
    }
}

/// A clock that moves one microsecond at each reading and otherwise only when told: deterministic
/// time for tests and simulations.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that starts at `start`.
    #[must_use]
    pub const fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Default for ManualClock {
    /// Starts on 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self::new(Timestamp(1_767_225_600_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1_000, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_splits_into_a_floor_and_a_positive_rest() {
        let time = Timestamp(-1);
        assert_eq!((time.secs(), time.subsec_nanos()), (-1, 999_999_999));
    }

    #[test]
    fn a_manual_clock_repeats_itself() {
        let times = || {
            let clock = ManualClock::default();
            clock.advance(Duration::from_secs(1));
            (clock.now(), clock.now())
        };
        assert_eq!(times(), times());
        assert!(times().0 < times().1);
    }
}
