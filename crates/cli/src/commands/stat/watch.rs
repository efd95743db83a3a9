//! `--watch`: the activity of a volume, in a line for each interval.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::{Client, Facts};
use dendro_daemon::metrics::requests::{self, Counts, Requests, Summary};
use dendro_daemon::text::{short_duration, short_size};
use serde::Serialize;

use super::statistics::Statistics;
use crate::failure::Failure;
use crate::output::local_time::clock_time;
use crate::output::{self, json};

/// On a terminal the header is repeated after so many lines.
const HEADER_EVERY: u64 = 20;
const HEADER: &str = "TIME       OPS/s   READ/s  WRITE/s  DEVICE/s     WA  MEDIAN     99%  LONGEST  \
                      CLEANED  FULL   CLEAN  STALLED\n";
/// What clients of NBD ask for.
const NBD_KINDS: [&str; 7] = ["read", "write", "zero", "trim", "flush", "block_status", "other"];
/// The shortest interval.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

pub(super) fn run(
    client: &Client,
    interval: Duration,
    count: Option<u64>,
    as_json: bool,
) -> Result<(), Failure> {
    let interval = interval.max(LEAST_INTERVAL);
    let mut before = Seen::from(&client.stat()?);
    let mut lines = 0;
    while count.is_none_or(|count| lines < count) {
        thread::sleep(interval);
        let now = Seen::from(&client.stat()?);
        let line = Line::between(&before, &now);
        if as_json {
            output::print(&json::line(&line)?)?;
        } else {
            let is_time = match io::stdout().is_terminal() {
                true => lines % HEADER_EVERY == 0,
                false => lines == 0,
            };
            let header = if is_time { HEADER } else { "" };
            output::print(&format!("{header}{line}\n"))?;
        }
        before = now;
        lines += 1;
    }
    Ok(())
}

/// The statistics that are watched.
#[derive(Clone, Debug, Default)]
struct Seen {
    unix_ns: i64,
    /// Time on the daemon's monotonic clock; 0 if an older daemon does not report it.
    mounted_ns: u64,
    requests: Requests,
    /// Those of clients of NBD, which are not timed.
    nbd_requests: u64,
    read_bytes: u64,
    user_bytes: u64,
    written_bytes: u64,
    cleaned_segments: u64,
    cleaned_live_bytes: u64,
    segment_bytes: u64,
    clean_segments: u64,
    stalled_ns: u64,
}

impl Seen {
    fn from(facts: &Facts) -> Self {
        let statistics = Statistics::of(facts);
        let number = |name: &str| statistics.number(name);
        Self {
            unix_ns: SystemClock.now().0,
            mounted_ns: number("mounted_ns"),
            requests: requests::of(facts),
            nbd_requests: NBD_KINDS
                .map(|kind| number(&format!("nbd_{kind}_requests")))
                .iter()
                .sum(),
            read_bytes: number("read_bytes") + number("nbd_read_bytes"),
            user_bytes: number("user_page_bytes") + number("user_record_bytes"),
            written_bytes: number("written_bytes"),
            cleaned_segments: number("cleaned_segments") + number("external_released_segments"),
            cleaned_live_bytes: number("cleaned_live_bytes") + number("external_moved_bytes"),
            segment_bytes: number("segment_bytes"),
            clean_segments: number("clean_segments"),
            stalled_ns: number("stalled_ns"),
        }
    }

    /// The time since `before`.
    fn seconds_since(&self, before: &Self) -> f64 {
        let by_daemon = self.mounted_ns.checked_sub(before.mounted_ns).filter(|&ns| ns > 0);
        let by_clock = || u64::try_from(self.unix_ns.saturating_sub(before.unix_ns)).unwrap_or(0);
        by_daemon.unwrap_or_else(by_clock).max(1) as f64 / 1e9
    }

    /// The requests of all kinds since `before`.
    fn requests_since(&self, before: &Self) -> Counts {
        let none = Counts::default();
        let since =
            |(kind, now): (&String, &Counts)| now.since(before.requests.get(kind).unwrap_or(&none));
        self.requests.iter().map(since).fold(Counts::default(), |all, kind| all.and(&kind))
    }
}

/// The activity in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    time_unix_ns: i64,
    requests_per_s: f64,
    read_bytes_per_s: f64,
    user_bytes_per_s: f64,
    device_bytes_per_s: f64,
    /// In the interval; `None` if nothing was written.
    write_amplification: Option<f64>,
    /// Since the mount.
    write_amplification_overall: Option<f64>,
    /// Of all requests in the interval.
    #[serde(flatten)]
    latency: Summary,
    /// By the daemon and by other cleaners.
    cleaned_segments: u64,
    /// Of these; `None` without any.
    cleaned_utilisation: Option<f64>,
    clean_segments: u64,
    stalled_ns: u64,
}

impl Line {
    fn between(before: &Seen, now: &Seen) -> Self {
        // After a new mount the daemon counts from 0.
        let grown = |number: fn(&Seen) -> u64| number(now).saturating_sub(number(before));
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let seconds = now.seconds_since(before);
        let per_s = |number: u64| number as f64 / seconds;
        let user_bytes = grown(|seen| seen.user_bytes);
        let written_bytes = grown(|seen| seen.written_bytes);
        let cleaned_segments = grown(|seen| seen.cleaned_segments);
        let cleaned_live_bytes = grown(|seen| seen.cleaned_live_bytes);
        let latency = now.requests_since(before).summary();
        Self {
            time_unix_ns: now.unix_ns,
            requests_per_s: per_s(latency.requests + grown(|seen| seen.nbd_requests)),
            read_bytes_per_s: per_s(grown(|seen| seen.read_bytes)),
            user_bytes_per_s: per_s(user_bytes),
            device_bytes_per_s: per_s(written_bytes),
            write_amplification: ratio(written_bytes, user_bytes),
            write_amplification_overall: ratio(now.written_bytes, now.user_bytes),
            latency,
            cleaned_segments,
            cleaned_utilisation: ratio(cleaned_live_bytes, cleaned_segments * now.segment_bytes),
            clean_segments: now.clean_segments,
            stalled_ns: grown(|seen| seen.stalled_ns),
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let factor = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let percent = |value: Option<f64>| match value {
            Some(value) => format!("{:.0}%", value * 100.0),
            None => "-".into(),
        };
        let longest = match self.latency.longest_ns {
            Some(u64::MAX) => "minutes".into(),
            other => short_duration(other),
        };
        write!(
            f,
            "{:8}  {:>6}  {:>7}  {:>7}  {:>8}  {:>5}  {:>6}  {:>6}  {:>7}  {:>7}  {:>4}  {:>6}  {:>7}",
            clock_time(self.time_unix_ns),
            format!("{:.0}", self.requests_per_s),
            short_size(self.read_bytes_per_s as u64),
            short_size(self.user_bytes_per_s as u64),
            short_size(self.device_bytes_per_s as u64),
            factor(self.write_amplification),
            short_duration(self.latency.median_ns),
            short_duration(self.latency.p99_ns),
            longest,
            self.cleaned_segments,
            percent(self.cleaned_utilisation),
            self.clean_segments,
            short_duration(Some(self.stalled_ns).filter(|&ns| ns > 0)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_its_interval_and_of_all() {
        let reads = |count| {
            let counts = Counts { total_ns: 0, counts: vec![(Some(2000), count)] };
            Requests::from([("read".to_owned(), counts)])
        };
        let before = Seen {
            user_bytes: 100,
            written_bytes: 1000,
            mounted_ns: 1_000_000_000,
            requests: reads(10),
            ..Seen::default()
        };
        let now = Seen {
            mounted_ns: 3_000_000_000,
            requests: reads(30),
            nbd_requests: 4,
            read_bytes: 64,
            user_bytes: 300,
            written_bytes: 1400,
            cleaned_segments: 2,
            cleaned_live_bytes: 100,
            segment_bytes: 100,
            clean_segments: 7,
            stalled_ns: 5_000_000,
            ..Seen::default()
        };
        let line = Line::between(&before, &now);
        assert_eq!(line.write_amplification, Some(2.0));
        assert_eq!(line.write_amplification_overall, Some(1400.0 / 300.0));
        assert_eq!((line.user_bytes_per_s, line.device_bytes_per_s), (100.0, 200.0));
        assert_eq!((line.requests_per_s, line.read_bytes_per_s), (12.0, 32.0));
        assert_eq!((line.latency.requests, line.latency.p99_ns), (20, Some(2000)));
        assert_eq!(line.cleaned_utilisation, Some(0.5));
        assert_eq!(line.to_string().len(), HEADER.trim_end().len());
        let still = Line::between(&now, &now);
        assert_eq!((still.write_amplification, still.cleaned_utilisation), (None, None));
        // After a new mount nothing is negative.
        assert_eq!(Line::between(&now, &before).user_bytes_per_s, 0.0);
    }
}
