//! `dendro stat`: what a mounted volume has done, or, with `--watch`, does.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use dendro_control::Facts;
use serde::Serialize;

use crate::args::StatArgs;
use crate::failure::Failure;
use crate::{output, target, text};

/// A header is printed again after so many lines on a terminal.
const HEADER_EVERY: u64 = 20;
const HEADER: &str = "  USER/s  DEVICE/s     WA   WA ALL  CLEANED   FULL  CLEAN LEFT  STALLED\n";
/// The least pause between two looks.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    let client = target::find_mounted(&args.target)?.client.about_volume();
    if args.metrics {
        return output::print(&client.metrics()?);
    }
    let facts = client.stat()?;
    let Some(interval) = args.watch else { return print(&facts, args.json) };
    let interval = interval.max(LEAST_INTERVAL);
    let mut before = Figures::from(&facts);
    let mut lines = 0;
    while args.count.is_none_or(|count| lines < count) {
        thread::sleep(interval);
        let now = Figures::from(&client.stat()?);
        let line = Line::between(&before, &now, interval);
        if args.json {
            output::print(&(serde_json::to_string(&line)? + "\n"))?;
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

fn print(facts: &Facts, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(facts);
    }
    let rows: Vec<(&str, String)> = facts
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.as_str(), value.to_string()))
        .collect();
    output::print(&output::table(&rows))
}

/// What is watched.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    user_bytes: u64,
    written_bytes: u64,
    cleaned_segments: u64,
    cleaned_live_bytes: u64,
    segment_bytes: u64,
    clean_segments: u64,
    stalled_s: f64,
}

impl Figures {
    fn from(facts: &Facts) -> Self {
        let figure = |name: &str| facts.get(name).and_then(|value| value.as_u64()).unwrap_or(0);
        Self {
            user_bytes: figure("user_page_bytes") + figure("user_record_bytes"),
            written_bytes: figure("written_bytes"),
            cleaned_segments: figure("segments_cleaned") + figure("external_released_segments"),
            cleaned_live_bytes: figure("cleaned_live_bytes") + figure("external_moved_bytes"),
            segment_bytes: figure("segment_bytes"),
            clean_segments: figure("segments_clean"),
            stalled_s: facts.get("stalled_s").and_then(|value| value.as_f64()).unwrap_or(0.0),
        }
    }
}

/// What happened in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Line {
    user_bytes_per_s: f64,
    device_bytes_per_s: f64,
    /// In the interval; nothing when nothing was written.
    write_amplification: Option<f64>,
    /// Since the mount.
    write_amplification_overall: Option<f64>,
    /// By the daemon and by others.
    cleaned_segments: u64,
    /// Of these; nothing when there were none.
    cleaned_utilisation: Option<f64>,
    clean_segments: u64,
    stalled_ms: u64,
}

impl Line {
    fn between(before: &Figures, now: &Figures, interval: Duration) -> Self {
        // A daemon that was mounted anew counts from nothing.
        let grown = |figure: fn(&Figures) -> u64| figure(now).saturating_sub(figure(before));
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let per_s = |bytes: u64| bytes as f64 / interval.as_secs_f64();
        let user_bytes = grown(|figures| figures.user_bytes);
        let written_bytes = grown(|figures| figures.written_bytes);
        let cleaned_segments = grown(|figures| figures.cleaned_segments);
        let cleaned_live_bytes = grown(|figures| figures.cleaned_live_bytes);
        Self {
            user_bytes_per_s: per_s(user_bytes),
            device_bytes_per_s: per_s(written_bytes),
            write_amplification: ratio(written_bytes, user_bytes),
            write_amplification_overall: ratio(now.written_bytes, now.user_bytes),
            cleaned_segments,
            cleaned_utilisation: ratio(cleaned_live_bytes, cleaned_segments * now.segment_bytes),
            clean_segments: now.clean_segments,
            stalled_ms: ((now.stalled_s - before.stalled_s) * 1000.0).round().max(0.0) as u64,
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
        write!(
            f,
            "{:>8}  {:>8}  {:>5}  {:>7}  {:>7}  {:>5}  {:>10}  {:>7}",
            text::short_size(self.user_bytes_per_s as u64),
            text::short_size(self.device_bytes_per_s as u64),
            factor(self.write_amplification),
            factor(self.write_amplification_overall),
            self.cleaned_segments,
            percent(self.cleaned_utilisation),
            self.clean_segments,
            format!("{}ms", self.stalled_ms),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_its_interval_and_of_all() {
        let before = Figures { user_bytes: 100, written_bytes: 1000, ..Figures::default() };
        let now = Figures {
            user_bytes: 300,
            written_bytes: 1400,
            cleaned_segments: 2,
            cleaned_live_bytes: 100,
            segment_bytes: 100,
            clean_segments: 7,
            stalled_s: 0.005,
        };
        let line = Line::between(&before, &now, Duration::from_secs(2));
        assert_eq!(line.write_amplification, Some(2.0));
        assert_eq!(line.write_amplification_overall, Some(1400.0 / 300.0));
        assert_eq!((line.user_bytes_per_s, line.device_bytes_per_s), (100.0, 200.0));
        assert_eq!(line.cleaned_utilisation, Some(0.5));
        assert_eq!(line.to_string().len(), HEADER.trim_end().len());
        let still = Line::between(&now, &now, Duration::from_secs(1));
        assert_eq!((still.write_amplification, still.cleaned_utilisation), (None, None));
        // Mounted anew: nothing is negative.
        assert_eq!(Line::between(&now, &before, Duration::from_secs(1)).user_bytes_per_s, 0.0);
    }
}
