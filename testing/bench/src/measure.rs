//! Timing and printing.

use std::time::Duration;

/// How long `work` takes.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn time(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

/// Runs two pieces of work in turn, `rounds` times, and returns the median seconds of each.
pub(crate) fn beside(
    rounds: usize,
    mut ours: impl FnMut() -> Duration,
    mut theirs: impl FnMut() -> Duration,
) -> (f64, f64) {
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our_times.push(ours().as_secs_f64());
        their_times.push(theirs().as_secs_f64());
    }
    (median(our_times), median(their_times))
}

/// The one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a line of rates, and their ratio.
pub(crate) fn print(what: &str, unit: &str, ours: f64, theirs: f64) {
    let ratio = ours / theirs;
    println!(
        "{what:<58} {:>14} {:>14} {ratio:>7.2}x",
        with_unit(ours, unit),
        with_unit(theirs, unit)
    );
}

/// Prints a line that stands for itself.
pub(crate) fn print_alone(what: &str, unit: &str, value: f64) {
    println!("{what:<58} {:>14}", with_unit(value, unit));
}

fn with_unit(value: f64, unit: &str) -> String {
    if value >= 10_000.0 {
        format!("{:.0}k{unit}", value / 1000.0)
    } else {
        format!("{value:.1}{unit}")
    }
}
