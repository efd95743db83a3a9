//! The use of a volume's space, as a bar of characters and as a drawing.
//!
//! `dendro usage` and the drawing of segments show the same parts in the same colours.

use std::fmt::Write;

use dendro_control::cleaning::{SegmentState, Segments};
use dendro_control::versions::UsageInfo;
use dendro_daemon::text;

use crate::output::svg::{Anchor, Area, INNER_WIDTH, MARGIN, Svg};

/// A part of the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The class of its shape in a drawing.
    class: &'static str,
    /// Its character in a bar of characters.
    sign: char,
    pub(crate) label: &'static str,
    pub(crate) bytes: u64,
}

const fn part(class: &'static str, sign: char, label: &'static str, bytes: u64) -> Part {
    Part { class, sign, label, bytes }
}

/// The parts of the space of all segments of the log. Without `versions`, live data are one part.
pub(crate) fn parts(segments: &Segments, versions: Option<&[UsageInfo]>) -> Vec<Part> {
    let present = &segments.present;
    let size = present.segment_bytes;
    let all = size * segments.segments.len() as u64;
    let is_clean = |state: SegmentState| state == SegmentState::Clean;
    let clean_count = segments.segments.iter().filter(|facts| is_clean(facts.state)).count();
    let clean = size * clean_count as u64;
    let reserve = (size * u64::from(present.reserved_count)).min(clean);
    // They were counted at different moments and may disagree.
    let live = present.live_bytes.min(all - clean);
    let alone = |is_head: bool| -> u64 {
        let of_kind = versions.unwrap_or(&[]).iter().filter(|of| of.epoch.is_none() == is_head);
        of_kind.map(|of| of.exclusive_bytes).sum()
    };
    let (heads, snapshots) = (alone(true).min(live), alone(false));
    let snapshots = snapshots.min(live - heads);
    let alive = match versions {
        Some(_) => vec![
            part("heads", '█', "in one branch alone", heads),
            part("shared", '▓', "shared, and the log's own", live - heads - snapshots),
            part("snapshots", '▒', "in one snapshot alone", snapshots),
        ],
        None => vec![part("shared", '▓', "alive", live)],
    };
    let rest = [
        part("dead", '░', "dead, for the cleaner", all - clean - live),
        part("clean", '·', "clean, to be written", clean - reserve),
        part("reserve", '-', "clean, and kept for cleaning", reserve),
    ];
    alive.into_iter().chain(rest).collect()
}

/// A bar of `width` characters, with a legend below it.
pub(crate) fn bar_text(parts: &[Part], width: usize) -> String {
    let lens = lengths(&parts.iter().map(|part| part.bytes).collect::<Vec<_>>(), width);
    let bar: String = parts
        .iter()
        .zip(&lens)
        .flat_map(|(part, &len)| std::iter::repeat_n(part.sign, len))
        .collect();
    let all: u64 = parts.iter().map(|part| part.bytes).sum();
    let mut shown = format!("  {bar}\n");
    for part in parts {
        let percent = u128::from(part.bytes) * 100 / u128::from(all.max(1));
        let size = text::size(part.bytes);
        // Writing to a string does not fail.
        let _ = writeln!(shown, "  {} {:<28}  {size:>10}  {percent:>3}%", part.sign, part.label);
    }
    shown
}

/// Whole lengths that add up to `width`, in proportion to the numbers; each number above 0 gets at
/// least 1.
pub(crate) fn lengths(numbers: &[u64], width: usize) -> Vec<usize> {
    let all: u128 = numbers.iter().map(|&number| u128::from(number)).sum();
    if all == 0 {
        return vec![0; numbers.len()];
    }
    let share = |number: u64| (u128::from(number) * width as u128 / all) as usize;
    let mut lens: Vec<usize> =
        numbers.iter().map(|&number| share(number).max(usize::from(number > 0))).collect();
    // The longest one absorbs the rest from rounding.
    let sum: usize = lens.iter().sum();
    if let Some(longest) = lens.iter_mut().max_by_key(|len| **len) {
        *longest = (*longest + width).saturating_sub(sum);
    }
    lens
}

/// Draws a bar of the parts with a legend below it; returns its lower end.
pub(crate) fn draw_bar(svg: &mut Svg, top: f64, title: &str, parts: &[Part]) -> f64 {
    svg.text("head", (MARGIN, top), Anchor::Start, title);
    let all: u64 = parts.iter().map(|part| part.bytes).sum();
    let label = |part: &Part| format!("{}: {}", part.label, text::size(part.bytes));
    let mut x = MARGIN;
    for part in parts {
        let width = part.bytes as f64 / all.max(1) as f64 * INNER_WIDTH;
        if width >= 0.05 {
            let area = Area { x, y: top + 14.0, width, height: 26.0 };
            svg.rect(part.class, area, &label(part));
        }
        x += width;
    }
    let (mut x, mut y) = (MARGIN, top + 54.0);
    for part in parts {
        let label = label(part);
        let width = 6.8 * label.chars().count() as f64 + 34.0;
        if x + width > MARGIN + INNER_WIDTH {
            (x, y) = (MARGIN, y + 20.0);
        }
        svg.rect(part.class, Area { x, y, width: 12.0, height: 12.0 }, "");
        svg.text("", (x + 18.0, y + 10.5), Anchor::Start, &label);
        x += width;
    }
    y + 12.0
}

#[cfg(test)]
mod tests {
    use dendro_control::cleaning::{CleaningStatus, SegmentFacts};

    use super::*;

    fn sample() -> Segments {
        let facts =
            |state, live_bytes| SegmentFacts { state, live_bytes, ..SegmentFacts::default() };
        Segments {
            present: CleaningStatus {
                segment_bytes: 100,
                live_bytes: 90,
                reserved_count: 1,
                ..CleaningStatus::default()
            },
            segments: vec![
                facts(SegmentState::Dirty, 40),
                facts(SegmentState::Dirty, 50),
                facts(SegmentState::Clean, 0),
                facts(SegmentState::Clean, 0),
            ],
            next: None,
        }
    }

    fn usage(epoch: Option<u64>, exclusive_bytes: u64) -> UsageInfo {
        UsageInfo { epoch, exclusive_bytes, ..UsageInfo::default() }
    }

    #[test]
    fn all_space_is_held_by_somebody() {
        let versions = [usage(None, 30), usage(Some(1), 20), usage(Some(2), 5)];
        let of = |versions: Option<&[UsageInfo]>| -> Vec<(&str, u64)> {
            parts(&sample(), versions).iter().map(|part| (part.class, part.bytes)).collect()
        };
        let rest = [("dead", 110), ("clean", 100), ("reserve", 100)];
        assert_eq!(of(Some(&versions))[..3], [("heads", 30), ("shared", 35), ("snapshots", 25)]);
        assert_eq!(of(Some(&versions))[3..], rest);
        assert_eq!(of(None), [&[("shared", 90)], &rest[..]].concat());
        // Counted at different moments, they may disagree.
        let sum = |parts: Vec<(&str, u64)>| parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert_eq!(sum(of(Some(&[usage(None, 500), usage(Some(1), 500)]))), 400);
        let nothing = Segments::default();
        assert!(parts(&nothing, Some(&[])).iter().all(|part| part.bytes == 0));
    }

    #[test]
    fn what_is_there_is_seen_and_the_bar_is_full() {
        assert_eq!(lengths(&[1, 0, 999_999], 60), [1, 0, 59]);
        assert_eq!(lengths(&[1, 1, 1], 10).iter().sum::<usize>(), 10);
        assert_eq!(lengths(&[0, 0], 10), [0, 0]);
        assert_eq!(lengths(&[u64::MAX, u64::MAX], 10), [5, 5]);
        let text = bar_text(&parts(&sample(), Some(&[usage(None, 30)])), 40);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert_eq!(lines[0].trim().chars().count(), 40, "{text}");
        assert!(lines[1].contains("█ in one branch alone") && lines[1].ends_with("  7%"), "{text}");
    }
}
