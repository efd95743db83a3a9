//! The graph as a drawing.

use std::collections::BTreeMap;

use super::graph::{Row, What};
use super::words::words;
use crate::output::svg::{Anchor, MARGIN, Svg, WIDTH, elided, shortened};

const ROW_HEIGHT: f64 = 26.0;
const LANE_WIDTH: f64 = 18.0;
/// Columns get narrower if there are many.
const MOST_LANES_WIDTH: f64 = 320.0;
/// The position of the first row.
const TOP: f64 = 92.0;
/// The number of colours for branches.
const COLOURS: usize = 6;
/// The most characters of a name.
const MAX_NAME_CHARS: usize = 34;
/// The most characters of a description.
const MAX_WHAT_CHARS: usize = 40;

/// The graph, as an SVG document.
pub(super) fn draw(source: &str, rows: &[Row], now_ns: i64) -> String {
    let mut svg = Svg::default();
    svg.text("title", (MARGIN, 40.0), Anchor::Start, &shortened(source));
    let summary = "Branches and snapshots, the newest at the top";
    svg.text("soft", (MARGIN, 62.0), Anchor::Start, summary);
    let lanes = rows.iter().map(|row| row.lanes.len().max(row.lane + 1)).max().unwrap_or(0);
    let lane_width = LANE_WIDTH.min(MOST_LANES_WIDTH / lanes.max(1) as f64);
    let place = |lane: usize, row: usize| {
        (MARGIN + 8.0 + lane as f64 * lane_width, TOP + row as f64 * ROW_HEIGHT)
    };
    draw_edges(&mut svg, rows, place);
    let text_x = place(lanes, 0).0 + 8.0;
    for (at, row) in rows.iter().enumerate() {
        let [name, ago, when, what] = words(&row.node, now_ns);
        let (x, y) = place(row.lane, at);
        let colour = colour(row.lane);
        let (radius, class) = match row.node.what {
            What::Head { .. } => (6.0, "name"),
            What::Snapshot { is_named: true, .. } => (4.5, ""),
            What::Snapshot { .. } => (3.5, "soft"),
            What::Folded { .. } | What::Gone => (2.0, "soft"),
        };
        svg.knot(&colour, (x, y), radius, &format!("{name}, {when}"));
        svg.text(class, (text_x, y + 4.0), Anchor::Start, &elided(&name, MAX_NAME_CHARS));
        svg.text("soft", (text_x + 250.0, y + 4.0), Anchor::Start, &format!("{ago}, {when}"));
        let what = elided(&what, MAX_WHAT_CHARS);
        svg.text("soft", (WIDTH - MARGIN, y + 4.0), Anchor::End, &what);
    }
    let bottom = TOP + rows.len() as f64 * ROW_HEIGHT;
    svg.finish(WIDTH, bottom + MARGIN, &format!("{source}: {summary}"))
}

fn colour(lane: usize) -> String {
    format!("g{}", lane % COLOURS)
}

/// Lines from each version down to the one before it.
fn draw_edges(svg: &mut Svg, rows: &[Row], place: impl Fn(usize, usize) -> (f64, f64)) {
    // The last row of the branch in each column.
    let mut last: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        for &lane in &row.joins {
            let Some((from, _)) = last.remove(&lane) else { continue };
            let class = format!("{} edge", colour(lane));
            // Down its own column to the row above, then over to the node.
            let above = place(lane, at - 1);
            if from + 1 < at {
                svg.line(&class, place(lane, from), above);
            }
            svg.curve(&class, above, place(row.lane, at));
        }
        let before = last.insert(row.lane, (at, row.node.branch));
        if let Some((from, _)) = before.filter(|(_, branch)| *branch == row.node.branch) {
            let folds =
                [&rows[from], row].iter().any(|of| matches!(of.node.what, What::Folded { .. }));
            let fold = if folds { " folded" } else { "" };
            let class = format!("{} edge{fold}", colour(row.lane));
            svg.line(&class, place(row.lane, from), place(row.lane, at));
        }
    }
}
