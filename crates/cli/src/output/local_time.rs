//! Times in the time zone of this process, for users.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time: `2026-11-21 10:00:00`.
pub(crate) fn time(unix_ns: i64) -> String {
    match Timestamp::from_nanosecond(i128::from(unix_ns)) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => unix_ns.to_string(),
    }
}

/// A time of day: `10:00:00`.
pub(crate) fn clock_time(unix_ns: i64) -> String {
    let time = time(unix_ns);
    time.split_once(' ').map_or(time.clone(), |(_, clock)| clock.to_owned())
}
