//! `dendro usage`: how the space is used, in numbers and as a drawing.

use std::fs;
use std::path::Path;

use dendro_control::cleaning::{SegmentState, Segments};
use dendro_control::versions::{UsageInfo, VersionsReply, VersionsRequest};
use dendro_daemon::text;
use serde::Serialize;

use super::commands::version_text;
use super::stored;
use crate::args::versions::UsageArgs;
use crate::failure::Failure;
use crate::output::svg::{
    Anchor, Area, INNER_WIDTH, MARGIN, Svg, WIDTH, check_name, elided, shortened,
};
use crate::output::{self, columns, json, space_bar};
use crate::target::{self, unexpected};

/// The characters of a version's bar.
const BAR_LEN: usize = 24;
/// The most versions that are drawn: those that see or hold the most.
const MOST_DRAWN: usize = 40;
/// The room for names before the bars.
const MAX_NAME_CHARS: usize = 30;
/// The height of a row, and where its bar begins.
const ROW_HEIGHT: f64 = 22.0;
const BAR_X: f64 = MARGIN + 220.0;
/// The room for numbers behind the longest bar.
const FIGURES_WIDTH: f64 = 170.0;

/// How the space of a volume is used.
#[derive(Serialize)]
struct Usage {
    source: String,
    capacity_bytes: u64,
    live_bytes: u64,
    unstored_bytes: u64,
    available_bytes: u64,
    reserved_bytes: u64,
    reclaimable_bytes: u64,
    clean_bytes: u64,
    /// Bytes of these that are reserved for cleaning.
    reserve_bytes: u64,
    versions: Vec<UsageInfo>,
}

pub(crate) fn usage(args: &UsageArgs) -> Result<(), Failure> {
    if args.files {
        return stored::files(Path::new(&args.target), args.json);
    }
    let keeper = target::find_whole(&args.target)?;
    if let Some(file) = &args.plot {
        check_name(file)?;
    }
    let versions = match keeper.ask(VersionsRequest::Usage)? {
        VersionsReply::Usage(versions) => versions,
        other => return Err(unexpected(&other)),
    };
    let (space, segments) = (keeper.space()?, keeper.segments()?);
    let parts = space_bar::parts(&segments, Some(&versions));
    // The two were counted at different moments.
    let unstored_bytes = space.live_bytes.saturating_sub(segments.present.live_bytes);
    let source = keeper.source();
    if let Some(file) = &args.plot {
        return put(file, &draw(&source, &parts, &versions));
    }
    if args.json {
        let size = segments.present.segment_bytes;
        let clean_bytes = size * count(&segments, SegmentState::Clean);
        let held = size * segments.segments.len() as u64 - clean_bytes;
        return json::print(&Usage {
            source,
            capacity_bytes: space.capacity_bytes,
            live_bytes: space.live_bytes,
            unstored_bytes,
            available_bytes: space.available_bytes,
            reserved_bytes: space.reserved_bytes,
            reclaimable_bytes: held.saturating_sub(segments.present.live_bytes),
            clean_bytes,
            reserve_bytes: (size * u64::from(segments.present.reserved_count)).min(clean_bytes),
            versions,
        });
    }
    let facts = output::table(&[
        (
            "used",
            format!("{} of {}", text::size(space.live_bytes), text::size(space.capacity_bytes)),
        ),
        (
            "not stored",
            format!(
                "{} of that: pages of zeros, which count in full, and what the map takes besides",
                text::size(unstored_bytes)
            ),
        ),
        ("can be written", text::size(space.available_bytes)),
        ("reserved", text::size(space.reserved_bytes)),
    ]);
    let bar = space_bar::bar_text(&parts, output::width() - 4);
    output::print(&format!("{source}\n{facts}\n{bar}\n{}", versions_text(&versions, args.all)))
}

fn count(segments: &Segments, state: SegmentState) -> u64 {
    segments.segments.iter().filter(|facts| facts.state == state).count() as u64
}

fn put(file: &Path, drawing: &str) -> Result<(), Failure> {
    fs::write(file, drawing)
        .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))
}

/// Whether a version is unimportant: it has no name, and deleting it would free nothing.
fn is_nothing(of: &UsageInfo) -> bool {
    of.epoch.is_some() && of.name.is_none() && of.exclusive_bytes == 0
}

/// A line for each version; those that hold nothing share one.
fn versions_text(versions: &[UsageInfo], all: bool) -> String {
    let most = versions.iter().map(|of| of.seen_bytes).max().unwrap_or(0);
    let plain_bytes = |of: &UsageInfo| of.seen_plain_bytes.unwrap_or(of.seen_bytes);
    let row = |of: &UsageInfo| {
        [
            version_text(of.epoch, of.name.as_deref()),
            text::size(of.exclusive_bytes),
            text::size(of.seen_bytes),
            text::size(plain_bytes(of)),
            version_bar(of, most),
        ]
    };
    let shown = versions.iter().filter(|of| all || !is_nothing(of));
    let rows: Vec<_> = shown.map(row).collect();
    let folded = versions.len() - rows.len();
    let head = ["VERSION", "ALONE", "ALL IT SEES", "UNCOMPRESSED", "█ ALONE, ▓ SHARED"];
    let table = if versions.iter().any(|of| plain_bytes(of) != of.seen_bytes) {
        columns(head, &rows, &[1, 2, 3])
    } else {
        let without = |[version, alone, seen, _, bar]: [String; 5]| [version, alone, seen, bar];
        let rows: Vec<_> = rows.into_iter().map(without).collect();
        columns([head[0], head[1], head[2], head[4]], &rows, &[1, 2])
    };
    match folded {
        0 => table,
        1 => table + "and a snapshot without a name that holds nothing alone (--all shows it)\n",
        many => format!(
            "{table}and {} snapshots without a name that hold nothing alone (--all shows them)\n",
            text::count(many as u64)
        ),
    }
}

fn version_bar(of: &UsageInfo, most: u64) -> String {
    let alone = of.exclusive_bytes.min(of.seen_bytes);
    let shared = of.seen_bytes - alone;
    let lens = space_bar::lengths(&[alone, shared, most.saturating_sub(of.seen_bytes)], BAR_LEN);
    "█".repeat(lens[0]) + &"▓".repeat(lens[1])
}

/// The same as an SVG document.
fn draw(source: &str, parts: &[space_bar::Part], versions: &[UsageInfo]) -> String {
    let mut svg = Svg::default();
    svg.text("title", (MARGIN, 40.0), Anchor::Start, &shortened(source));
    let all: u64 = parts.iter().map(|part| part.bytes).sum();
    let summary = format!("{} in segments of the log", text::size(all));
    svg.text("soft", (MARGIN, 62.0), Anchor::Start, &summary);
    let bottom = space_bar::draw_bar(&mut svg, 100.0, "Where the space goes", parts);
    let bottom = draw_versions(&mut svg, bottom + 46.0, versions);
    svg.finish(WIDTH, bottom + MARGIN, &format!("{source}: where the space goes"))
}

fn draw_versions(svg: &mut Svg, top: f64, versions: &[UsageInfo]) -> f64 {
    svg.text("head", (MARGIN, top), Anchor::Start, "What each version sees, and holds alone");
    let mut shown: Vec<&UsageInfo> = versions.iter().filter(|of| !is_nothing(of)).collect();
    if shown.len() > MOST_DRAWN {
        // In the order of the list.
        let mut by_size = shown.clone();
        by_size.sort_by_key(|of| std::cmp::Reverse((of.epoch.is_none(), of.exclusive_bytes)));
        let least = by_size[MOST_DRAWN - 1];
        let least = (least.epoch.is_none(), least.exclusive_bytes);
        shown.retain(|of| (of.epoch.is_none(), of.exclusive_bytes) >= least);
        shown.truncate(MOST_DRAWN);
    }
    let most = versions.iter().map(|of| of.seen_bytes).max().unwrap_or(0).max(1);
    let scale = (INNER_WIDTH - (BAR_X - MARGIN) - FIGURES_WIDTH) / most as f64;
    let mut y = top + 18.0;
    for of in &shown {
        let name = version_text(of.epoch, of.name.as_deref());
        let label = elided(&name, MAX_NAME_CHARS);
        svg.text("", (BAR_X - 10.0, y + 12.0), Anchor::End, &label);
        let (alone, seen) = (text::size(of.exclusive_bytes), text::size(of.seen_bytes));
        let bar = |bytes: u64| Area { x: BAR_X, y, width: bytes as f64 * scale, height: 15.0 };
        svg.rect("seen", bar(of.seen_bytes), &format!("{name} sees {seen}"));
        let class = if of.epoch.is_some() { "snapshots" } else { "heads" };
        let tip = format!("deleting {name} alone would free {alone}");
        svg.rect(class, bar(of.exclusive_bytes.min(of.seen_bytes)), &tip);
        let x = BAR_X + of.seen_bytes as f64 * scale + 8.0;
        svg.text("soft", (x, y + 12.0), Anchor::Start, &format!("{alone} of {seen} alone"));
        y += ROW_HEIGHT;
    }
    let rest = versions.len() - shown.len();
    if rest > 0 {
        let label = format!("and {} more", text::count(rest as u64));
        svg.text("soft", (BAR_X - 10.0, y + 12.0), Anchor::End, &label);
        y += ROW_HEIGHT;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(epoch: Option<u64>, name: Option<&str>, exclusive_bytes: u64) -> UsageInfo {
        let name = name.map(str::to_owned);
        UsageInfo {
            branch: 0,
            epoch,
            name,
            exclusive_bytes,
            seen_bytes: 1 << 20,
            seen_plain_bytes: None,
        }
    }

    #[test]
    fn rows_of_nothing_become_one() {
        let mut all = vec![version(None, Some("main"), 1 << 19), version(Some(1), Some("kept"), 0)];
        all.extend((2..300).map(|epoch| version(Some(epoch), None, u64::from(epoch == 7))));
        let text = versions_text(&all, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].starts_with(":main") && lines[3].starts_with("@7 "), "{text}");
        assert!(lines[1].ends_with(&("█".repeat(12) + &"▓".repeat(12))), "{text}");
        assert!(lines[4].starts_with("and 297 snapshots"), "{text}");
        assert_eq!(versions_text(&all, true).lines().count(), 301);
    }

    #[test]
    fn what_would_be_there_without_compression_has_a_column_if_it_is_more() {
        let mut all = [version(None, Some("main"), 1 << 19), version(Some(1), Some("kept"), 0)];
        assert!(!versions_text(&all, false).contains("UNCOMPRESSED"));
        all[0].seen_plain_bytes = Some(3 << 20);
        let text = versions_text(&all, false);
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().take(7).collect()).collect();
        assert!(text.lines().next().unwrap().contains("ALL IT SEES  UNCOMPRESSED  █"), "{text}");
        assert_eq!(words[1][..7], [":main", "512", "KiB", "1", "MiB", "3", "MiB"]);
        assert_eq!(words[2][..7], ["@kept", "0", "bytes", "1", "MiB", "1", "MiB"]);
    }

    #[test]
    fn a_drawing_has_the_versions_that_matter() {
        let mut all = vec![version(None, Some("main"), 5)];
        all.extend((1..200).map(|epoch| version(Some(epoch), None, epoch)));
        let drawing = draw("a<b>.img", &[], &all);
        let bars = drawing.matches("<title>deleting ").count();
        assert_eq!(bars, MOST_DRAWN);
        assert!(
            drawing.contains("deleting @199 alone") && drawing.contains("deleting :main alone")
        );
        assert!(drawing.contains(">and 160 more<") && drawing.contains("a&lt;b&gt;.img"));
        assert!(!draw("a", &[], &[]).contains("NaN"));
        let long = [version(Some(3), Some("before-rollback-2026-11-25T01.36.43"), 5)];
        let drawing = draw("a", &[], &long);
        assert!(drawing.contains(">@before-rollba…-11-25T01.36.43<"), "{drawing}");
    }
}
