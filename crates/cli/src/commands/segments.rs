//! `dendro segments`: how full the segments are, in numbers and as a picture.
//!
//! The command asks the daemon of a mounted volume over the control socket. For an unmounted volume
//! the engine reads the checkpoint and rolls the log forward in memory. Both give the same facts.

mod picture;
mod plot;
mod statistics;
mod words;

use std::path::Path;

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};
use dendro_daemon::text;
use dendro_policy::Class;
use statistics::{HISTOGRAM_LEN, Statistics};
use words::{age_text, percent, state_name};

use crate::args::SegmentsArgs;
use crate::failure::Failure;
use crate::offline;
use crate::output::svg::check_name;
use crate::output::{self, json};
use crate::target::{self, Target};

pub(crate) fn run(args: &SegmentsArgs) -> Result<(), Failure> {
    let (source, segments) = match target::find(&args.target)? {
        Target::Mounted(served) => (served.pong.source, served.client.all_segments()?),
        Target::Unmounted(source) => {
            let segments = offline::segments(&source)?;
            (source.display().to_string(), segments)
        }
    };
    let statistics = Statistics::of(&segments);
    if let Some(file) = &args.plot {
        return plot_into(file, &args.target, &source, &segments, &statistics);
    }
    if args.json {
        return json::print(&statistics::Report::new(&source, &statistics, &segments));
    }
    if args.list {
        return output::print(&list_text(&segments));
    }
    output::print(&text_of(&source, &segments, &statistics))
}

fn plot_into(
    file: &Path,
    target: &Path,
    source: &str,
    segments: &Segments,
    statistics: &Statistics,
) -> Result<(), Failure> {
    check_name(file)?;
    let versions = target::usage_of_versions(target)?;
    let drawing = plot::draw(source, segments, statistics, Some(&versions));
    std::fs::write(file, drawing)
        .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))
}

fn text_of(source: &str, segments: &Segments, statistics: &Statistics) -> String {
    let present = &segments.present;
    // Hardly a device has places that it cannot write, and few volumes have mirrors.
    let is_rare = |state: &str| {
        [SegmentState::Retired, SegmentState::Mirror].iter().any(|it| state == state_name(*it))
    };
    let is_shown = |state: &str, count: u32| count > 0 || !is_rare(state);
    let states: Vec<String> = (statistics.states.iter())
        .filter(|(state, count)| is_shown(state, **count))
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let mut shown = format!("{source}\n");
    shown += &output::table(&[
        (
            "segments",
            format!(
                "{} of {}: {}; {}",
                present.segment_count,
                text::size(present.segment_bytes),
                states.join(", "),
                text::SUPERBLOCKS_HELD
            ),
        ),
        (
            "alive",
            format!("{}, {}", text::size(present.live_bytes), percent(statistics.utilisation)),
        ),
        ("reserve", format!("{} clean segments", present.reserved_count)),
    ]);
    shown += "\nHow full the dirty ones are:\n";
    shown += &histogram_text(&statistics.histogram);
    if !statistics.classes.is_empty() {
        shown += "\n  CLASS        SEGMENTS   FULL       AGE  LAST DEATH\n";
    }
    for class in &statistics.classes {
        shown += &format!(
            "  {:<11}  {:>8}  {:>5}  {:>8}  {:>10}\n",
            Class::from_number(class.class).to_string(),
            class.dirty_segments,
            percent(class.utilisation),
            age_text(class.age_bytes),
            age_text(class.last_death_age_bytes),
        );
    }
    shown + "\n" + &picture::of(segments, output::width())
}

fn histogram_text(histogram: &[u32; HISTOGRAM_LEN]) -> String {
    const BAR_LEN: u32 = 50;
    let most = histogram.iter().copied().max().unwrap_or(0).max(1);
    let step = 100 / HISTOGRAM_LEN;
    let line = |(at, &count): (usize, &u32)| {
        // A number above 0 is visible, however small.
        let len = (count * BAR_LEN).div_ceil(most);
        let bar = "█".repeat(len as usize);
        let space = if count > 0 { " " } else { "" };
        format!("  {:>3} to {:>3}%  {bar}{space}{count}\n", at * step, (at + 1) * step)
    };
    histogram.iter().enumerate().map(line).collect()
}

fn list_text(segments: &Segments) -> String {
    let size = segments.present.segment_bytes.max(1) as f64;
    let clock = segments.present.clock;
    let line = |facts: &SegmentFacts| {
        let holds = matches!(facts.state, SegmentState::Dirty);
        let age = |at: u64| match holds {
            true => age_text(clock.saturating_sub(at)),
            false => "-".into(),
        };
        let class = match facts.state {
            SegmentState::Clean => "-".into(),
            _ => Class::from_number(facts.class).to_string(),
        };
        format!(
            "{:>10}  {:<7}  {:>10}  {:>4}  {class:<11}  {:>8}  {:>10}\n",
            facts.number,
            state_name(facts.state),
            facts.live_bytes,
            percent(f64::from(facts.live_bytes) / size),
            age(facts.written_at),
            age(facts.last_death),
        )
    };
    let header = "   SEGMENT  STATE    LIVE BYTES  FULL  CLASS             AGE  LAST DEATH\n";
    header.to_owned() + &segments.segments.iter().map(line).collect::<String>()
}
