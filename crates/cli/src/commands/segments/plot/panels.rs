//! The panels above the map of segments.

use std::collections::BTreeMap;

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};

use super::origin::{ORIGINS, level, origin_index, story};
use crate::commands::segments::statistics::{HISTOGRAM_LEN, Statistics};
use crate::commands::segments::words::{age_text, percent};
use crate::output::svg::{Anchor, Area, Svg};

/// Dots that are nearer to each other become one.
const DOT_GRID: f64 = 7.0;
/// The most rules across a panel.
const MOST_TICKS: u64 = 5;

/// The frame of a panel: title, axes and their labels.
fn frame(svg: &mut Svg, area: Area, title: &str, across: &str, up: &str) {
    svg.text("head", (area.x - 44.0, area.y - 18.0), Anchor::Start, title);
    svg.line("axis", (area.x, area.y), (area.x, area.bottom()));
    svg.line("axis", (area.x, area.bottom()), (area.right(), area.bottom()));
    let middle = (area.x + area.width / 2.0, area.bottom() + 36.0);
    svg.text("soft", middle, Anchor::Middle, across);
    svg.text_upwards((area.x - 38.0, area.y + area.height / 2.0), up);
}

fn tick_up(svg: &mut Svg, area: Area, share: f64, label: &str) {
    let y = area.bottom() - share * area.height;
    if share > 0.0 {
        svg.line("rule", (area.x, y), (area.right(), y));
    }
    svg.text("soft", (area.x - 6.0, y + 4.0), Anchor::End, label);
}

fn tick_across(svg: &mut Svg, area: Area, share: f64, label: &str) {
    let x = area.x + share * area.width;
    svg.line("axis", (x, area.bottom()), (x, area.bottom() + 4.0));
    svg.text("soft", (x, area.bottom() + 17.0), Anchor::Middle, label);
}

/// A round number of which at most [`MOST_TICKS`] make up `most`.
fn step(most: u64) -> u64 {
    let mut unit = 1;
    loop {
        for step in [unit, 2 * unit, 5 * unit] {
            if most.div_ceil(step) <= MOST_TICKS {
                return step;
            }
        }
        unit *= 10;
    }
}

pub(super) fn histogram(svg: &mut Svg, area: Area, statistics: &Statistics) {
    let title = "How full the dirty segments are";
    frame(svg, area, title, "alive, in percent of a segment", "segments");
    let most = statistics.histogram.iter().copied().max().unwrap_or(0).max(1);
    let step = step(most.into());
    let tick_count = u64::from(most).div_ceil(step);
    for tick in 0..=tick_count {
        tick_up(svg, area, tick as f64 / tick_count as f64, &(tick * step).to_string());
    }
    let top = (tick_count * step) as f64;
    let width = area.width / HISTOGRAM_LEN as f64;
    for (at, &count) in statistics.histogram.iter().enumerate() {
        let height = f64::from(count) / top * area.height;
        let bar = Area {
            x: area.x + at as f64 * width + 2.0,
            y: area.bottom() - height,
            width: width - 4.0,
            height,
        };
        let from = at * 100 / HISTOGRAM_LEN;
        let to = (at + 1) * 100 / HISTOGRAM_LEN;
        if count > 0 {
            let tip = format!("{count} segments are from {from} to {to}% alive");
            svg.rect(&level((at as f64 + 0.5) / HISTOGRAM_LEN as f64), bar, &tip);
        }
    }
    for at in (0..=HISTOGRAM_LEN).step_by(2) {
        let percent = at * 100 / HISTOGRAM_LEN;
        tick_across(svg, area, at as f64 / HISTOGRAM_LEN as f64, &percent.to_string());
    }
}

/// Dirty segments near each other.
#[derive(Default)]
struct Near<'a> {
    count: u32,
    live_bytes: u64,
    first: Option<&'a SegmentFacts>,
}

/// Draws each dirty segment as a dot: its share of live data over its age, on a scale of powers of
/// two.
pub(super) fn ages(svg: &mut Svg, area: Area, segments: &Segments) {
    let across = "age: written to the log since, in bytes";
    frame(svg, area, "How full they are, over age", across, "alive, in percent");
    for percent in [0, 25, 50, 75, 100] {
        tick_up(svg, area, f64::from(percent) / 100.0, &percent.to_string());
    }
    origins(svg, area);
    let (clock, size) = (segments.present.clock, segments.present.segment_bytes.max(1));
    let dirty = || segments.segments.iter().filter(|facts| facts.state == SegmentState::Dirty);
    let log2 = |facts: &SegmentFacts| (clock.saturating_sub(facts.written_at).max(1) as f64).log2();
    let low = dirty().map(log2).fold(f64::INFINITY, f64::min).floor();
    let high = dirty().map(log2).fold(f64::NEG_INFINITY, f64::max).ceil();
    if !low.is_finite() {
        return;
    }
    let span = (high - low).max(1.0);
    let every = (span / 6.0).ceil().max(1.0);
    let mut at = low;
    while at <= low + span {
        tick_across(svg, area, (at - low) / span, &age_text(at.exp2() as u64));
        at += every;
    }
    let mut dots: BTreeMap<(i64, i64, usize), Near<'_>> = BTreeMap::new();
    for facts in dirty() {
        let up = (f64::from(facts.live_bytes) / size as f64).min(1.0);
        let x = (log2(facts) - low) / span * area.width;
        let y = up * area.height;
        let place = ((x / DOT_GRID) as i64, (y / DOT_GRID) as i64, origin_index(facts));
        let near = dots.entry(place).or_default();
        near.count += 1;
        near.live_bytes += u64::from(facts.live_bytes);
        near.first.get_or_insert(facts);
    }
    for ((column, _, origin), near) in dots {
        let share = near.live_bytes as f64 / (f64::from(near.count) * size as f64);
        let x = area.x + (column as f64 + 0.5) * DOT_GRID;
        let y = area.bottom() - share.min(1.0) * area.height;
        let Some(first) = near.first else { continue };
        let story = story(first, segments);
        let tip = match near.count {
            1 => format!("segment {}: {} alive, {story}", first.number, percent(share)),
            count => format!("{count} segments: {} alive in the mean, {story}", percent(share)),
        };
        let radius = (2.2 + f64::from(near.count).log2() * 0.6).min(7.0);
        svg.dot(ORIGINS[origin].0, (x.min(area.right()), y), radius, &tip);
    }
}

/// Draws the legend of the dots.
fn origins(svg: &mut Svg, area: Area) {
    let mut x = area.right() - 4.0;
    for (class, label) in ORIGINS.iter().rev() {
        x -= 6.6 * label.len() as f64 + 20.0;
        svg.dot(class, (x, area.bottom() + 52.0), 4.0, "");
        svg.text("", (x + 8.0, area.bottom() + 56.0), Anchor::Start, label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_few_round_steps() {
        for (most, expected) in [(1, 1), (5, 1), (6, 2), (24, 5), (50, 10), (99, 20), (8472, 2000)]
        {
            assert_eq!(step(most), expected, "{most}");
        }
        assert_eq!(step(u32::MAX.into()), 1_000_000_000);
    }
}
