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
    line += &versions_text(finding);
    line
}

/// The most versions that are all named in a line.
const MAX_NAMED: usize = 3;

/// The versions that have it: all of a few, and else how many there are, from which to which.
fn versions_text(finding: &CheckFinding) -> String {
    let CheckFinding { first, last, found_in, version_count, .. } = finding;
    let (Some(first), Some(last)) = (first, last) else { return String::new() };
    if *version_count > MAX_NAMED || (*version_count > 1 && first.path != last.path) {
        return format!(" ({})", text::versions(first, last, *version_count as u64));
    }
    let all: Vec<_> = found_in.iter().map(|name| text::printable(name)).collect();
    format!(" ({})", all.join(", "))
}
