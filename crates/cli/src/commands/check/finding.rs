//! Findings in words.

use dendro_check::FindingKind;
use dendro_control::check::{CheckFinding, Severity};
use dendro_daemon::text;

/// The severity in words.
pub(crate) const fn severity_text(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// Whether it is about one of two copies, of which the other one is sound.
pub(super) fn is_of_copy(finding: &CheckFinding) -> bool {
    [FindingKind::CheckpointCopy, FindingKind::NodeCopy]
        .iter()
        .any(|kind| finding.number == kind.number())
}

/// A finding in a line.
pub(super) fn line(finding: &CheckFinding) -> String {
    let CheckFinding { number, severity, title, .. } = finding;
    let mended = if finding.mended { "mended: " } else { "" };
    let mut line = format!("{mended}{} {number}: {title}: ", severity_text(*severity));
    if let (Some(list), true) = (finding.list, *number >= 200) {
        line += &format!("i-node {list}: ");
    }
    line += &text::printable(&finding.detail);
    if !finding.paths.is_empty() {
        line += &format!("; that is in {}", finding.paths.join(" and "));
    }
    let more = finding.version_count.saturating_sub(finding.found_in.len());
    let versions: Vec<_> = finding.found_in.iter().map(|name| text::printable(name)).collect();
    line += &match (versions.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({})", versions.join(", ")),
        (false, more) => format!(" ({} and {more} more versions)", versions.join(", ")),
    };
    line
}
