//! Time as a value that is passed in.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A point in time: nanoseconds since 1970-01-01T00:00:00Z, negative before it.
///
/// 64 bits cover the years 1677 to 2262. Times of files, which users set at will, have a wider
/// range and a type of their own in the file system.
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

    /// Date and time of day in UTC, to the second: `2026-01-31 12:00:00Z`.
    #[must_use]
    pub fn utc(self) -> String {
        let (date, time) = self.date_and_time();
        format!("{date} {time}Z")
    }

    /// The same as RFC 3339 writes it, with nanoseconds: `2026-01-31T12:00:00.000000000Z`.
    #[must_use]
    pub fn rfc3339(self) -> String {
        let (date, time) = self.date_and_time();
        format!("{date}T{time}.{:09}Z", self.subsec_nanos())
    }

    /// Date and time of day in UTC.
    fn date_and_time(self) -> (String, String) {
        let (days, seconds) = (self.secs().div_euclid(86_400), self.secs().rem_euclid(86_400));
        let (year, month, day) = civil_date(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
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

/// Year, month and day of the day `days` after 1970-01-01, in the Gregorian calendar.
fn civil_date(days: i64) -> (i64, i64, i64) {
    // Years begin on 1 March here, so that the leap day is the last day. An era has 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A source of the time.
pub trait Clock: Send + Sync {
    /// The time now. An administrator can set the real clock back, so no order may depend on it.
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

/// A clock that advances by one microsecond at each reading, and otherwise only by
/// [`Self::advance`]: deterministic time for tests and simulations.
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
    fn times_print_as_the_calendar_has_them() {
        let at = |secs: i64| Timestamp(secs * 1_000_000_000).rfc3339();
        assert_eq!(at(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59.000000000Z");
        assert_eq!(Timestamp(-1).rfc3339(), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(at(-2_203_977_600), "1900-02-28T00:00:00.000000000Z");
        assert_eq!(Timestamp(i64::MAX).rfc3339(), "2262-04-11T23:47:16.854775807Z");
        assert_eq!(Timestamp(i64::MIN).rfc3339(), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(Timestamp(951_782_400_000_000_000).utc(), "2000-02-29 00:00:00Z");
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
