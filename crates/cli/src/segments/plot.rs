//! A drawing of the segments: how full they are, how old, and where they lie.

use std::fmt::Write;

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};
use dendro_policy::Class;

use super::figures::{Figures, HISTOGRAM_LEN};
use super::picture::Cell;
use super::{age_text, percent};
use crate::text;

/// Red, green, blue.
pub(super) type Colour = [u8; 3];

const WIDTH: u32 = 960;
const MARGIN: u32 = 40;
const PANEL_TOP: u32 = 90;
const PANEL_HEIGHT: u32 = 200;
const PANEL_WIDTH: u32 = 400;
const RIGHT_PANEL: u32 = WIDTH - MARGIN - PANEL_WIDTH;
const GRID_TOP: u32 = PANEL_TOP + PANEL_HEIGHT + 100;
const GRID_WIDTH: u32 = WIDTH - 2 * MARGIN;
/// Cells of the picture at most; with more segments each stands for several.
const MAX_CELLS: usize = 16_384;
const TEXT_SIZE: u32 = 14;

const INK: Colour = [40, 40, 40];
const AXIS: Colour = [160, 160, 160];
const CLEAN: Colour = [232, 232, 232];
const PENDING: Colour = [170, 200, 235];
const OPEN: Colour = [230, 60, 60];
/// From nothing alive to all: light to dark.
const EMPTY_TO_FULL: [Colour; 4] = [[253, 231, 120], [110, 200, 100], [38, 130, 142], [68, 20, 90]];

/// Where a text stands to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What is drawn, in pixels from the upper left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Rect {
        x: u32,
        y: u32,
        width: u32,
        height: u32,
        colour: Colour,
    },
    /// `y` is where the text stands on.
    Text {
        x: u32,
        y: u32,
        anchor: Anchor,
        text: String,
    },
}

/// A drawing.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) shapes: Vec<Shape>,
}

impl Scene {
    fn rect(&mut self, x: u32, y: u32, width: u32, height: u32, colour: Colour) {
        self.shapes.push(Shape::Rect { x, y, width, height, colour });
    }

    fn text(&mut self, x: u32, y: u32, anchor: Anchor, text: impl Into<String>) {
        self.shapes.push(Shape::Text { x, y, anchor, text: text.into() });
    }

    /// Lines to the left of and below a panel.
    fn axes(&mut self, left: u32) {
        self.rect(left - 1, PANEL_TOP, 1, PANEL_HEIGHT, AXIS);
        self.rect(left - 1, PANEL_TOP + PANEL_HEIGHT, PANEL_WIDTH, 1, AXIS);
    }

    /// The drawing as an SVG document.
    pub(super) fn to_svg(&self) -> String {
        let Self { width, height, shapes } = self;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"{TEXT_SIZE}\">\n<rect width=\"{width}\" height=\"{height}\" \
             fill=\"#ffffff\"/>\n"
        );
        for shape in shapes {
            let _ = match shape {
                Shape::Rect { x, y, width, height, colour: [red, green, blue] } => writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
                     fill=\"#{red:02x}{green:02x}{blue:02x}\"/>"
                ),
                Shape::Text { x, y, anchor, text } => {
                    let anchor = match anchor {
                        Anchor::Start => "start",
                        Anchor::Middle => "middle",
                        Anchor::End => "end",
                    };
                    let text = escape(text);
                    let [red, green, blue] = INK;
                    writeln!(
                        svg,
                        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" \
                         fill=\"#{red:02x}{green:02x}{blue:02x}\">{text}</text>"
                    )
                }
            };
        }
        svg + "</svg>\n"
    }
}

fn escape(text: &str) -> String {
    let is_shown = |c: &char| !c.is_control();
    let shown: String = text.chars().filter(is_shown).collect();
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The drawing of a volume's segments.
pub(super) fn scene(source: &str, segments: &Segments, figures: &Figures) -> Scene {
    let mut scene = Scene { width: WIDTH, height: 0, shapes: Vec::new() };
    let present = &segments.present;
    scene.text(MARGIN, 30, Anchor::Start, source);
    let states: Vec<String> =
        figures.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    scene.text(
        MARGIN,
        52,
        Anchor::Start,
        format!(
            "{} segments of {}: {}; {} alive",
            segments.segments.len(),
            text::size(present.segment_bytes),
            states.join(", "),
            percent(figures.utilisation)
        ),
    );
    histogram(&mut scene, figures);
    ages(&mut scene, segments);
    let bottom = grid(&mut scene, segments);
    scene.height = legend(&mut scene, bottom + 30) + MARGIN;
    scene
}

fn histogram(scene: &mut Scene, figures: &Figures) {
    scene.text(MARGIN, PANEL_TOP - 12, Anchor::Start, "Dirty segments by how full they are");
    scene.axes(MARGIN);
    let most = figures.histogram.iter().copied().max().unwrap_or(0).max(1);
    let step = PANEL_WIDTH / HISTOGRAM_LEN as u32;
    let bottom = PANEL_TOP + PANEL_HEIGHT;
    for (at, &count) in (0_u32..).zip(&figures.histogram) {
        let height = (u64::from(count) * u64::from(PANEL_HEIGHT - 20)).div_ceil(u64::from(most));
        let (x, height) = (MARGIN + at * step, height as u32);
        let share = (f64::from(at) + 0.5) / HISTOGRAM_LEN as f64;
        scene.rect(x + 2, bottom - height, step - 4, height, scale(share));
        if count > 0 {
            scene.text(x + step / 2, bottom - height - 4, Anchor::Middle, count.to_string());
        }
        scene.text(x, bottom + 18, Anchor::Middle, (at as usize * 100 / HISTOGRAM_LEN).to_string());
    }
    scene.text(MARGIN + PANEL_WIDTH, bottom + 18, Anchor::Middle, "100%");
}

/// Each dirty segment as a point: how full over how old, on a scale of powers of two.
fn ages(scene: &mut Scene, segments: &Segments) {
    scene.text(RIGHT_PANEL, PANEL_TOP - 12, Anchor::Start, "How full over age, a point for each");
    scene.axes(RIGHT_PANEL);
    let bottom = PANEL_TOP + PANEL_HEIGHT;
    for (share, label) in [(0.0, "0"), (0.5, "50"), (1.0, "100%")] {
        let y = bottom - (share * f64::from(PANEL_HEIGHT)) as u32;
        scene.text(RIGHT_PANEL - 6, y + 5, Anchor::End, label);
    }
    let clock = segments.present.clock;
    let size = segments.present.segment_bytes.max(1);
    let dirty = || segments.segments.iter().filter(|facts| facts.state == SegmentState::Dirty);
    let age = |facts: &SegmentFacts| clock.saturating_sub(facts.written_at).max(1);
    let (Some(youngest), Some(oldest)) = (dirty().map(age).min(), dirty().map(age).max()) else {
        return;
    };
    let (low, high) = ((youngest as f64).log2().floor(), (oldest as f64).log2().ceil());
    let span = (high - low).max(1.0);
    for facts in dirty() {
        let across = ((age(facts) as f64).log2() - low) / span;
        let up = (f64::from(facts.live_bytes) / size as f64).min(1.0);
        let x = RIGHT_PANEL + (across * f64::from(PANEL_WIDTH - 4)) as u32;
        let y = bottom - 4 - (up * f64::from(PANEL_HEIGHT - 4)) as u32;
        scene.rect(x, y, 4, 4, class_colour(Class::from_number(facts.class)));
    }
    scene.text(RIGHT_PANEL, bottom + 18, Anchor::Start, age_text(low.exp2() as u64));
    let oldest = age_text((low + span).exp2() as u64);
    scene.text(RIGHT_PANEL + PANEL_WIDTH, bottom + 18, Anchor::End, oldest);
}

/// The segments in the order in which they lie on the device; returns where they end below.
fn grid(scene: &mut Scene, segments: &Segments) -> u32 {
    let group_len = segments.segments.len().div_ceil(MAX_CELLS).max(1);
    let count = segments.segments.len().div_ceil(group_len) as u32;
    // As large as fits into about two thirds of the width.
    let room = f64::from(GRID_WIDTH) * f64::from(GRID_WIDTH) * 0.6;
    let side = ((room / f64::from(count.max(1))).sqrt() as u32).clamp(5, 24);
    let across = GRID_WIDTH / side;
    let of_several = match group_len {
        1 => String::new(),
        len => format!(", {len} to a square"),
    };
    let title = format!("Segments as they lie on the device{of_several}");
    scene.text(MARGIN, GRID_TOP - 12, Anchor::Start, title);
    for (at, group) in (0_u32..).zip(segments.segments.chunks(group_len)) {
        let colour = match Cell::of(group, segments.present.segment_bytes) {
            Cell::Clean => CLEAN,
            Cell::Pending => PENDING,
            Cell::Open => OPEN,
            Cell::Live(share) => scale(share),
        };
        let (x, y) = (MARGIN + at % across * side, GRID_TOP + at / across * side);
        scene.rect(x, y, side - 1, side - 1, colour);
    }
    GRID_TOP + count.div_ceil(across) * side
}

/// What the colours mean; returns where it ends below.
fn legend(scene: &mut Scene, top: u32) -> u32 {
    let mut x = MARGIN;
    for (label, colour) in [
        ("clean", CLEAN),
        ("pending", PENDING),
        ("open", OPEN),
        ("nearly empty", scale(0.0)),
        ("half full", scale(0.5)),
        ("full", scale(1.0)),
    ] {
        scene.rect(x, top, 14, 14, colour);
        scene.text(x + 20, top + 12, Anchor::Start, label);
        x += 140;
    }
    let mut x = MARGIN;
    for (label, class) in
        [("main log", Class::MAIN), ("written", Class::user(0)), ("survived", Class::survivor(0))]
    {
        scene.rect(x + 5, top + 33, 4, 4, class_colour(class));
        scene.text(x + 20, top + 40, Anchor::Start, label);
        x += 140;
    }
    top + 45
}

/// The colour of a share from 0 to 1.
fn scale(share: f64) -> Colour {
    let last = EMPTY_TO_FULL.len() - 1;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let at = (place as usize).min(last - 1);
    let part = place - at as f64;
    let (from, to) = (EMPTY_TO_FULL[at], EMPTY_TO_FULL[at + 1]);
    [0, 1, 2].map(|channel| {
        let (from, to) = (f64::from(from[channel]), f64::from(to[channel]));
        (from + (to - from) * part).round() as u8
    })
}

/// Hot to cold: red to blue. Survivors are greenish, the main log is grey.
fn class_colour(class: Class) -> Colour {
    let step = |index: u8| index.min(7) * 25;
    match (class.user_index(), class.survivor_index()) {
        (Some(index), _) => [230 - step(index), 60, 50 + step(index)],
        (_, Some(index)) => [30, 170 - step(index) / 2, 60 + step(index)],
        _ => [110, 110, 110],
    }
}

#[cfg(test)]
mod tests {
    use dendro_control::cleaning::Present;

    use super::*;

    fn segments(count: u32) -> Segments {
        let facts = |number: u32| SegmentFacts {
            number,
            state: [SegmentState::Dirty, SegmentState::Clean, SegmentState::Open]
                [number as usize % 3],
            live_bytes: number % 100,
            class: (number % 40) as u8,
            written_at: u64::from(number),
            ..SegmentFacts::default()
        };
        let present = Present { segment_bytes: 100, clock: 1 << 40, ..Present::default() };
        Segments { present, segments: (0..count).map(facts).collect(), next: None }
    }

    #[test]
    fn everything_lies_inside_the_drawing() {
        for count in [0, 1, 30, 1000, 300_000] {
            let segments = segments(count);
            let scene = scene("a", &segments, &Figures::of(&segments));
            assert!(scene.height < 4000, "{count}: {} pixels high", scene.height);
            let mut squares = 0;
            for shape in &scene.shapes {
                match *shape {
                    Shape::Rect { x, y, width, height, .. } => {
                        assert!(x + width <= scene.width && y + height <= scene.height);
                        squares += u32::from(y >= GRID_TOP);
                    }
                    Shape::Text { x, y, .. } => assert!(x <= scene.width && y <= scene.height),
                }
            }
            assert!(squares >= count.min(15_000), "{squares} squares for {count} segments");
        }
    }

    #[test]
    fn names_do_not_become_markup() {
        let segments = segments(3);
        let svg = scene("<&\">\u{1}", &segments, &Figures::of(&segments)).to_svg();
        assert!(svg.contains("&lt;&amp;&quot;&gt;</text>"), "{svg}");
    }

    #[test]
    fn fuller_is_darker() {
        let sum = |share: f64| scale(share).iter().map(|&channel| u32::from(channel)).sum::<u32>();
        assert_eq!(scale(0.0), EMPTY_TO_FULL[0]);
        assert_eq!(scale(1.0), EMPTY_TO_FULL[3]);
        assert!((0..10).all(|at| sum(f64::from(at) / 10.0) > sum(f64::from(at + 1) / 10.0)));
    }
}
