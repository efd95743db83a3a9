//! Segments in words.

use dendro_control::cleaning::SegmentState;
use dendro_daemon::text;

pub(super) const fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Clean => "clean",
        SegmentState::Open => "open",
        SegmentState::Dirty => "dirty",
        SegmentState::Pending => "pending",
        SegmentState::Retired => "retired",
        SegmentState::Mirror => "mirror",
    }
}

/// An age, in bytes written since.
pub(super) fn age_text(age: u64) -> String {
    text::short_size(age)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}
