//! The segments as characters, in the order in which they lie on the device.

use dendro_control::cleaning::{SegmentFacts, SegmentState, Segments};

/// The most lines of a picture; with more segments a character stands for several.
const MAX_LINES: usize = 32;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The width of the number of a line's first segment.
const NUMBER_LEN: usize = 10;

/// The state of one segment, or of several neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Clean,
    Pending,
    Open,
    /// The share of live data.
    Live(f64),
}

impl Cell {
    /// The state of a group of segments; `segment_bytes` is the size of each.
    pub(super) fn of(group: &[SegmentFacts], segment_bytes: u64) -> Self {
        let has = |state| group.iter().any(|facts| facts.state == state);
        if has(SegmentState::Open) || has(SegmentState::Mirror) {
            return Self::Open;
        }
        if has(SegmentState::Dirty) {
            let live: u64 = group.iter().map(|facts| u64::from(facts.live_bytes)).sum();
            return Self::Live(live as f64 / (group.len() as u64 * segment_bytes).max(1) as f64);
        }
        if has(SegmentState::Pending) { Self::Pending } else { Self::Clean }
    }

    fn char(self) -> char {
        match self {
            Self::Clean => '.',
            Self::Pending => 'o',
            Self::Open => '@',
            Self::Live(share) => {
                let level = (share * LEVELS.len() as f64) as usize;
                LEVELS[level.min(LEVELS.len() - 1)]
            }
        }
    }
}

/// The picture, with a width in columns. Several lines of only clean segments become one.
pub(super) fn of(segments: &Segments, columns: usize) -> String {
    let across = columns.saturating_sub(NUMBER_LEN + 2).max(8);
    let group_len = segments.segments.len().div_ceil(across * MAX_LINES).max(1);
    let mut picture = String::new();
    let lines: Vec<&[SegmentFacts]> = segments.segments.chunks(across * group_len).collect();
    let is_clean =
        |line: &&&[SegmentFacts]| line.iter().all(|facts| facts.state == SegmentState::Clean);
    let mut at = 0;
    while at < lines.len() {
        let clean = lines[at..].iter().take_while(is_clean).count();
        picture += &format!("{:>NUMBER_LEN$}  ", lines[at][0].number);
        if clean > 1 {
            let count: usize = lines[at..at + clean].iter().map(|line| line.len()).sum();
            picture += &format!("{count} clean segments\n");
            at += clean;
            continue;
        }
        let cell = |group: &[SegmentFacts]| Cell::of(group, segments.present.segment_bytes).char();
        picture.extend(lines[at].chunks(group_len).map(cell));
        picture.push('\n');
        at += 1;
    }
    if group_len > 1 {
        picture += &format!("{:NUMBER_LEN$}  each stands for {group_len} segments\n", "");
    }
    picture
}

#[cfg(test)]
mod tests {
    use dendro_control::cleaning::CleaningStatus;

    use super::*;

    fn segments(count: u32) -> Segments {
        let all = (0..count).map(|at| SegmentFacts {
            number: at + 2,
            state: if at % 2 == 0 { SegmentState::Dirty } else { SegmentState::Clean },
            live_bytes: if at % 2 == 0 { at % 101 } else { 0 },
            ..SegmentFacts::default()
        });
        let present = CleaningStatus { segment_bytes: 100, ..CleaningStatus::default() };
        Segments { present, segments: all.collect(), next: None }
    }

    #[test]
    fn each_state_has_its_sign() {
        let with = |state, live_bytes| {
            let facts = SegmentFacts { state, live_bytes, ..SegmentFacts::default() };
            Cell::of(&[facts], 100).char()
        };
        assert_eq!(with(SegmentState::Clean, 0), '.');
        assert_eq!(with(SegmentState::Pending, 0), 'o');
        assert_eq!(with(SegmentState::Open, 50), '@');
        assert_eq!(with(SegmentState::Dirty, 1), '▁');
        assert_eq!(with(SegmentState::Dirty, 50), '▅');
        assert_eq!(with(SegmentState::Dirty, 100), '█');
    }

    #[test]
    fn lines_of_nothing_become_one() {
        let mut all = segments(68 * 12);
        for facts in &mut all.segments[68 * 2..68 * 11] {
            facts.state = SegmentState::Clean;
        }
        let picture = of(&all, 80);
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines.len(), 4, "{picture}");
        assert_eq!(lines[2], "       138  612 clean segments");
        assert!(lines[3].starts_with("       750  "), "{picture}");
        // A single line stays as it is.
        for facts in &mut all.segments[68 * 3..] {
            facts.state = SegmentState::Open;
        }
        assert!(of(&all, 80).lines().nth(2).unwrap().ends_with(&".".repeat(68)));
    }

    #[test]
    fn a_large_volume_fits_a_screen() {
        for count in [0, 1, 67, 68, 69, 3000, 100_000] {
            let picture = of(&segments(count), 80);
            assert!(picture.lines().count() <= MAX_LINES + 1, "{count}");
            assert!(picture.lines().all(|line| line.chars().count() <= 80), "{count}");
            let signs = picture
                .lines()
                .filter(|line| !line.contains("stands"))
                .map(|line| line.chars().skip(NUMBER_LEN + 2).count());
            let group_len = (count as usize).div_ceil(68 * MAX_LINES).max(1);
            assert_eq!(signs.sum::<usize>(), (count as usize).div_ceil(group_len));
        }
    }
}
