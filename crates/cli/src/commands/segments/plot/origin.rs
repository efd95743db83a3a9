//! The origin of the live data in a segment, and its colours.

use dendro_control::cleaning::{SegmentFacts, Segments};
use dendro_policy::Class;

use crate::commands::segments::words::age_text;

/// The number of colours for utilisation.
pub(super) const LEVELS: usize = 10;

/// The origin of the live data in a segment, and their age.
pub(super) fn story(facts: &SegmentFacts, segments: &Segments) -> String {
    let age = age_text(segments.present.clock.saturating_sub(facts.written_at));
    format!("{} ({}), {age} ago", origin(facts), Class::from_number(facts.class))
}

/// The class of a dot, and its label in the legend.
pub(super) const ORIGINS: [(&str, &str); 3] = [
    ("main", "the log itself"),
    ("written", "written by programs"),
    ("moved", "moved by the cleaner"),
];

pub(super) fn origin_index(facts: &SegmentFacts) -> usize {
    let class = Class::from_number(facts.class);
    match (class.user_index(), class.survivor_index()) {
        (Some(_), _) => 1,
        (_, Some(_)) => 2,
        _ => 0,
    }
}

fn origin(facts: &SegmentFacts) -> &'static str {
    ORIGINS[origin_index(facts)].1
}

/// The class of a square with that share of live data.
pub(super) fn level(share: f64) -> String {
    format!("l{}", ((share * LEVELS as f64) as usize).min(LEVELS - 1))
}
