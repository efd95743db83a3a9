//! `dendro segments`: how full the segments are, in figures and in a picture.
//!
//! A mounted volume is asked over the control socket; of one that is not, the engine reads the
//! checkpoint and rolls the log forward in memory. Both tell the same facts.

mod figures;
mod picture;
mod plot;

use std::path::Path;

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};
use dendro_policy::Class;

use crate::args::SegmentsArgs;
use crate::failure::Failure;
use crate::svg::check_name;
use crate::target::{self, Target};
use crate::{json, output, text, versions, volume};
use figures::{Figures, HISTOGRAM_LEN};

pub(crate) fn run(args: &SegmentsArgs) -> Result<(), Failure> {
    let (source, segments) = match target::find(&args.target)? {
        Target::Mounted(served) => (served.pong.source, served.client.all_segments()?),
        Target::Unmounted(source) => {
            let segments = volume::segments_offline(&source)?;
            (source.display().to_string(), segments)
        }
    };
    let figures = Figures::of(&segments);
    if let Some(file) = &args.plot {
        return plot_into(file, &args.target, &source, &segments, &figures);
    }
    if args.json {
        return json::print(&figures::Report::new(&source, &figures, &segments));
    }
    if args.list {
        return output::print(&list_text(&segments));
    }
    output::print(&text_of(&source, &segments, &figures))
}

fn plot_into(
    file: &Path,
    target: &Path,
    source: &str,
    segments: &Segments,
    figures: &Figures,
) -> Result<(), Failure> {
    check_name(file)?;
    let versions = versions::shares(target)?;
    let drawing = plot::draw(source, segments, figures, Some(&versions));
    std::fs::write(file, drawing)
        .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))
}

const fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Clean => "clean",
        SegmentState::Open => "open",
        SegmentState::Dirty => "dirty",
        SegmentState::Pending => "pending",
    }
}

/// How long ago, in bytes written since.
fn age_text(age: u64) -> String {
    text::short_size(age)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn text_of(source: &str, segments: &Segments, figures: &Figures) -> String {
    let present = &segments.present;
    let states: Vec<String> =
        figures.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
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
        ("alive", format!("{}, {}", text::size(present.live_bytes), percent(figures.utilisation))),
        ("reserve", format!("{} clean segments", present.reserved_count)),
    ]);
    shown += "\nHow full the dirty ones are:\n";
    shown += &histogram_text(&figures.histogram);
    if !figures.classes.is_empty() {
        shown += "\n  CLASS        SEGMENTS   FULL       AGE  LAST DEATH\n";
    }
    for class in &figures.classes {
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
        // What is there is seen, however little.
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
