//! A drawing of the segments: how full they are, how old, what holds the space, and where they lie.

mod origin;
mod panels;

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};
use dendro_control::versions::UsageInfo;
use dendro_daemon::text;

use self::origin::{LEVELS, level, story};
use super::picture::Cell;
use super::statistics::Statistics;
use super::words::{percent, state_name};
use crate::output::space_bar;
use crate::output::svg::{Anchor, Area, INNER_WIDTH, MARGIN, Svg, WIDTH, shortened};

/// The most squares of the map; with more segments each stands for several.
const MAX_SQUARES: usize = 4096;
/// The drawing, as an SVG document. Without `versions` it does not show which versions hold the
/// space.
pub(super) fn draw(
    source: &str,
    segments: &Segments,
    statistics: &Statistics,
    versions: Option<&[UsageInfo]>,
) -> String {
    let mut svg = Svg::default();
    let present = &segments.present;
    svg.text("title", (MARGIN, 40.0), Anchor::Start, &shortened(source));
    let states: Vec<String> =
        [SegmentState::Dirty, SegmentState::Open, SegmentState::Pending, SegmentState::Clean]
            .map(|state| {
                format!(
                    "{} {}",
                    statistics.states.get(state_name(state)).unwrap_or(&0),
                    state_name(state)
                )
            })
            .to_vec();
    let summary = format!(
        "{} segments of {}: {}; {}; {} alive",
        present.segment_count,
        text::size(present.segment_bytes),
        states.join(", "),
        text::SUPERBLOCKS_HELD,
        percent(statistics.utilisation)
    );
    svg.text("soft", (MARGIN, 62.0), Anchor::Start, &summary);
    let left = Area { x: MARGIN + 44.0, y: 112.0, width: 360.0, height: 200.0 };
    let right = Area { x: WIDTH - MARGIN - 392.0, ..left };
    let right = Area { width: 380.0, ..right };
    panels::histogram(&mut svg, left, statistics);
    panels::ages(&mut svg, right, segments);
    let parts = space_bar::parts(segments, versions);
    let bottom = space_bar::draw_bar(&mut svg, 400.0, "What holds the space", &parts);
    let bottom = map(&mut svg, bottom + 46.0, segments);
    let bottom = key(&mut svg, bottom + 22.0);
    svg.finish(WIDTH, bottom + MARGIN, &format!("{source}: {summary}"))
}

/// Draws the segments in their order on the device; returns the lower end.
fn map(svg: &mut Svg, top: f64, segments: &Segments) -> f64 {
    let group_len = segments.segments.len().div_ceil(MAX_SQUARES).max(1);
    let count = segments.segments.len().div_ceil(group_len);
    // About a third of a square page.
    let side =
        (INNER_WIDTH * INNER_WIDTH * 0.35 / count.max(1) as f64).sqrt().floor().clamp(8.0, 24.0);
    let across = (INNER_WIDTH / side) as usize;
    let of_several = match group_len {
        1 => String::new(),
        len => format!(", {len} to a square"),
    };
    let title = format!("Segments as they lie on the device{of_several}");
    svg.text("head", (MARGIN, top), Anchor::Start, &title);
    let top = top + 14.0;
    let groups: Vec<&[SegmentFacts]> = segments.segments.chunks(group_len).collect();
    for (row, groups) in groups.chunks(across).enumerate() {
        let y = top + row as f64 * side;
        let mut at = 0;
        while at < groups.len() {
            let first = Cell::of(groups[at], segments.present.segment_bytes);
            let is_same = |group: &&&[SegmentFacts]| {
                !matches!(first, Cell::Live(_))
                    && Cell::of(group, segments.present.segment_bytes) == first
            };
            // Neighbours without live data are one shape.
            let len = groups[at..].iter().take_while(is_same).count().max(1);
            let x = MARGIN + at as f64 * side;
            let area = Area { x, y, width: len as f64 * side - 1.0, height: side - 1.0 };
            let tip = tip(&groups[at..at + len], segments, first);
            svg.rect(&class_of(first), area, &tip);
            at += len;
        }
    }
    top + count.div_ceil(across) as f64 * side
}

/// The tip for a pointer on the map.
fn tip(groups: &[&[SegmentFacts]], segments: &Segments, cell: Cell) -> String {
    let facts: Vec<&SegmentFacts> = groups.iter().flat_map(|group| group.iter()).collect();
    let (Some(first), Some(last)) = (facts.first(), facts.last()) else { return String::new() };
    let what = match cell {
        Cell::Clean => "clean".to_owned(),
        Cell::Pending => "pending: clean after the next checkpoint".to_owned(),
        Cell::Open => "open: being filled, or next".to_owned(),
        Cell::Live(share) => format!("{} alive", percent(share)),
    };
    if first.number != last.number {
        return format!("segments {} to {}: {what}", first.number, last.number);
    }
    match cell {
        Cell::Live(_) => format!("segment {}: {what}, {}", first.number, story(first, segments)),
        _ => format!("segment {}: {what}", first.number),
    }
}

fn class_of(cell: Cell) -> String {
    match cell {
        Cell::Clean => "clean".into(),
        Cell::Pending => "pending".into(),
        Cell::Open => "open".into(),
        Cell::Live(share) => level(share),
    }
}

/// Draws the legend of the map; returns the lower end.
fn key(svg: &mut Svg, top: f64) -> f64 {
    let mut x = MARGIN;
    for (class, label) in [("clean", "clean"), ("pending", "pending"), ("open", "open")] {
        svg.rect(class, Area { x, y: top, width: 12.0, height: 12.0 }, "");
        svg.text("", (x + 18.0, top + 10.5), Anchor::Start, label);
        x += 90.0;
    }
    svg.text("", (x + 30.0, top + 10.5), Anchor::End, "0%");
    x += 36.0;
    for at in 0..LEVELS {
        let share = at as f64 / LEVELS as f64;
        svg.rect(&level(share + 0.001), Area { x, y: top, width: 18.0, height: 12.0 }, "");
        x += 18.0;
    }
    svg.text("", (x + 6.0, top + 10.5), Anchor::Start, "100% alive");
    top + 12.0
}

#[cfg(test)]
mod tests {
    use dendro_control::cleaning::CleaningStatus;
    use dendro_policy::Class;

    use super::*;

    fn segments(count: u32) -> Segments {
        let facts = |number: u32| SegmentFacts {
            number,
            state: [SegmentState::Dirty, SegmentState::Clean, SegmentState::Open]
                [number as usize % 3],
            live_bytes: number % 100,
            class: (number % 40) as u8,
            written_at: u64::from(number) << 20,
            ..SegmentFacts::default()
        };
        let present =
            CleaningStatus { segment_bytes: 100, clock: 1 << 40, ..CleaningStatus::default() };
        Segments { present, segments: (0..count).map(facts).collect(), next: None }
    }

    fn attribute(element: &str, name: &str) -> Option<f64> {
        let (_, rest) = element.split_once(&format!(" {name}=\""))?;
        rest.split('"').next()?.parse().ok()
    }

    #[test]
    fn everything_lies_inside_the_drawing_and_has_a_tip() {
        for count in [0, 1, 30, 1000, 300_000] {
            let segments = segments(count);
            let versions = [UsageInfo { exclusive_bytes: 30, ..UsageInfo::default() }];
            let svg = draw("a", &segments, &Statistics::of(&segments), Some(&versions));
            let (head, body) = svg.split_once("</style>").unwrap();
            let height = attribute(head, "height").unwrap();
            assert!(height < 2000.0, "{count}: {height} pixels high");
            let mut shapes = 0;
            for line in body.lines().skip(1) {
                let [x, y] = ["x", "y"].map(|name| {
                    attribute(line, name).or(attribute(line, &format!("c{name}"))).unwrap_or(0.0)
                });
                let width = attribute(line, "width").unwrap_or(0.0);
                let tall = attribute(line, "height").unwrap_or(0.0);
                assert!(x >= 0.0 && x + width <= WIDTH, "{line}");
                assert!(y >= 0.0 && y + tall <= height, "{line}");
                shapes += u32::from(line.contains("<title>segment"));
            }
            // Of many segments, several share a square, and equal squares a shape.
            let least = if count <= 1000 { count / 3 } else { 10 };
            assert!(shapes >= least, "{shapes} shapes for {count} segments");
            assert!(svg.len() < 2_000_000, "{count}: {} bytes", svg.len());
        }
    }

    #[test]
    fn a_dot_has_the_colour_that_the_key_names() {
        let mut segments = segments(3);
        segments.segments[0].class = Class::survivor(1).number();
        let svg = draw("a", &segments, &Statistics::of(&segments), None);
        assert!(svg.contains("<circle class=\"dot moved\""), "{svg}");
        let place = svg.lines().position(|line| line.contains(">moved by the cleaner<")).unwrap();
        assert!(svg.lines().nth(place - 1).unwrap().contains("class=\"dot moved\""));
    }
}
