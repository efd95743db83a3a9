//! Findings of all layers in one form, and the numbers that they have.
//!
//! | numbers | found by |
//! |---------|----------|
//! | 1 to 99 | the verifier, which reads the device without the engine |
//! | 100 to 199 | the engine, which opens the volume as a mount does |
//! | 200 to 299 | the check of the file system in each version |

use std::fmt;

use dendro_check::FindingKind;
use dendro_control::check::{CheckFinding, Severity};
use dendro_fs::{FindingCode, Mending};

/// What the engine finds: number and title.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its number, which never changes.
    pub number: u16,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What a repair does about it; `None`: nothing.
    pub repair: Option<&'static str>,
}

impl Kind {
    /// The kind of what the engine finds.
    fn of_engine(number: u16) -> Self {
        let (_, title) = ENGINE[usize::from(number - NOT_OPENED)];
        Self { number, severity: Severity::Error, title, repair: None }
    }

    /// A finding of this kind about nothing in particular.
    pub(super) fn finding(self, detail: String) -> CheckFinding {
        CheckFinding {
            number: self.number,
            severity: self.severity,
            title: self.title.to_owned(),
            repair: self.repair.map(str::to_owned),
            detail,
            list: None,
            paths: vec![],
            found_in: vec![],
            version_count: 0,
            first: None,
            last: None,
            mended: false,
            in_past: false,
        }
    }
}

/// A finding of the engine.
pub(super) fn of_engine(number: u16, error: &dyn fmt::Display) -> CheckFinding {
    Kind::of_engine(number).finding(error.to_string())
}

impl From<FindingKind> for Kind {
    fn from(kind: FindingKind) -> Self {
        let severity = match kind.severity() {
            dendro_check::Severity::Note => Severity::Note,
            dendro_check::Severity::Warning => Severity::Warning,
            dendro_check::Severity::Error => Severity::Error,
        };
        Self { number: kind.number(), severity, title: kind.title(), repair: None }
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
#[must_use]
pub fn all_kinds() -> Vec<Kind> {
    let mut all: Vec<Kind> = FindingKind::ALL.iter().map(|&kind| kind.into()).collect();
    all.extend(ENGINE.iter().map(|&(number, _)| Kind::of_engine(number)));
    all.extend(FindingCode::ALL.iter().map(|&code| Kind::from(code)));
    all
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
