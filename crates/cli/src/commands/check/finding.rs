//! Findings of all layers in one form, and the numbers that they have.
//!
//! | numbers | found by |
//! |---------|----------|
//! | 1 to 99 | the verifier, which reads the device without the engine |
//! | 100 to 199 | the engine, which opens the volume as a mount does |
//! | 200 to 299 | the check of the file system in each version |

use std::fmt;

use dendro_check::{FindingKind, Severity};
use dendro_daemon::text;
use dendro_fs::{FindingCode, Mending};
use serde::Serialize;

/// What the engine finds: number, severity and title.
const ENGINE: [(u16, &str); 3] = [
    (100, "the volume cannot be opened"),
    (101, "the log cannot be rolled forward"),
    (102, "the versions cannot be checked"),
];

/// The volume cannot be opened.
pub(super) const NOT_OPENED: u16 = ENGINE[0].0;
/// The log cannot be rolled forward.
pub(super) const NOT_ROLLED: u16 = ENGINE[1].0;
/// The versions cannot be checked.
pub(super) const NOT_CHECKED: u16 = ENGINE[2].0;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Kind {
    /// Its number, which never changes.
    pub(crate) number: u16,
    pub(crate) severity: Severity,
    /// What it is, in a few words.
    pub(crate) title: &'static str,
    /// What a repair does about it; `None`: nothing.
    pub(crate) repair: Option<&'static str>,
}

impl From<FindingKind> for Kind {
    fn from(kind: FindingKind) -> Self {
        Self { number: kind.number(), severity: kind.severity(), title: kind.title(), repair: None }
    }
}

impl From<FindingCode> for Kind {
    fn from(code: FindingCode) -> Self {
        let severity = match code.severity() {
            dendro_fs::Severity::Warning => Severity::Warning,
            dendro_fs::Severity::Error => Severity::Error,
        };
        let repair = (code.mending() != Mending::Never).then(|| code.repair());
        Self { number: code.number(), severity, title: code.title(), repair }
    }
}

/// The kinds of all layers, by their numbers.
pub(crate) fn all_kinds() -> Vec<Kind> {
    let of_engine = ENGINE.iter().map(|&(number, title)| Kind {
        number,
        severity: Severity::Error,
        title,
        repair: None,
    });
    let mut all: Vec<Kind> = FindingKind::ALL.iter().map(|&kind| kind.into()).collect();
    all.extend(of_engine);
    all.extend(FindingCode::ALL.iter().map(|&code| Kind::from(code)));
    all
}

/// Something that was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    #[serde(flatten)]
    pub(super) kind: Kind,
    pub(super) detail: String,
    /// The list that it is about, which is the number of an i-node.
    pub(super) list: Option<u64>,
    /// All paths of the file; `@VERSION/…` if only the past has it.
    pub(super) paths: Vec<String>,
    /// The first versions that have it; none if it is not about versions.
    pub(super) found_in: Vec<String>,
    /// How many versions have it.
    pub(super) version_count: usize,
    /// It was mended.
    pub(super) mended: bool,
    /// Snapshots alone have it, which stay as they are.
    #[serde(skip)]
    pub(super) is_in_past: bool,
}

impl Finding {
    /// A finding of the engine.
    pub(super) fn of_engine(number: u16, error: &dyn fmt::Display) -> Self {
        let (_, title) = ENGINE[usize::from(number - NOT_OPENED)];
        let kind = Kind { number, severity: Severity::Error, title, repair: None };
        Self::new(kind, error.to_string())
    }

    /// A finding about nothing in particular.
    pub(super) const fn new(kind: Kind, detail: String) -> Self {
        Self {
            kind,
            detail,
            list: None,
            paths: vec![],
            found_in: vec![],
            version_count: 0,
            mended: false,
            is_in_past: false,
        }
    }

    /// Whether something is wrong.
    pub(super) fn is_wrong(&self) -> bool {
        self.kind.severity != Severity::Note && !self.mended
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { number, severity, title, .. } = self.kind;
        if self.mended {
            write!(f, "mended: ")?;
        }
        write!(f, "{} {number}: {title}: ", severity_text(severity))?;
        if let (Some(list), true) = (self.list, number >= 200) {
            write!(f, "i-node {list}: ")?;
        }
        write!(f, "{}", text::printable(&self.detail))?;
        if !self.paths.is_empty() {
            write!(f, "; that is in {}", self.paths.join(" and "))?;
        }
        let more = self.version_count.saturating_sub(self.found_in.len());
        let versions: Vec<_> = self.found_in.iter().map(|name| text::printable(name)).collect();
        match (versions.is_empty(), more) {
            (true, _) => Ok(()),
            (false, 0) => write!(f, " ({})", versions.join(", ")),
            (false, more) => write!(f, " ({} and {more} more versions)", versions.join(", ")),
        }
    }
}

/// The severity in words.
pub(crate) const fn severity_text(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_given_once_and_says_which_layer_it_is_of() {
        let numbers: Vec<u16> = all_kinds().iter().map(|kind| kind.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert!(FindingKind::ALL.iter().all(|kind| kind.number() < 100));
        assert!(FindingCode::ALL.iter().all(|code| (200..300).contains(&code.number())));
    }
}
