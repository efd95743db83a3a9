//! The findings of a check over several versions: each one once, with the versions that have it.

use std::collections::{BTreeMap, HashMap};

use dendro_disk::View;

use super::finding::{Finding, FindingCode};
use crate::types::Ino;

/// The most versions that are listed for a finding.
pub const MAX_VERSIONS_OF_A_FINDING: usize = 16;

/// A finding, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What was found.
    pub finding: Finding,
    /// The first versions that have it, in the order in which they were checked: up to
    /// [`MAX_VERSIONS_OF_A_FINDING`].
    pub views: Vec<View>,
    /// The last version that has it; if the head of a branch does, the last of those.
    pub last: View,
    /// How many versions have it.
    pub version_count: usize,
    /// Whether the head of a branch has it.
    pub is_in_head: bool,
}

/// What a group of findings is about, so that it can be replaced when the file is checked again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Volume,
    /// The orphan list.
    Orphans,
    /// What the file's own list holds.
    List(Ino),
    /// What other files say of it.
    Relations(Ino),
    /// Loops of directories.
    Loops,
}

/// Findings about one subject: up to so many of a kind, and how many more there are. Nearly always
/// there are none.
pub(super) struct Findings {
    some: Option<Box<SomeFindings>>,
    max_of_a_code: usize,
}

#[derive(Default)]
struct SomeFindings {
    list: Vec<Finding>,
    counts: BTreeMap<FindingCode, usize>,
    more: BTreeMap<FindingCode, usize>,
}

impl Findings {
    pub(super) const fn new(max_of_a_code: usize) -> Self {
        Self { some: None, max_of_a_code }
    }

    pub(super) fn push(&mut self, finding: Finding) {
        let SomeFindings { list, counts, more } = &mut **self.some.get_or_insert_default();
        let count = counts.entry(finding.code).or_default();
        if *count < self.max_of_a_code {
            *count += 1;
            list.push(finding);
        } else {
            *more.entry(finding.code).or_default() += 1;
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        let Some(other) = other.some else { return };
        other.list.into_iter().for_each(|finding| self.push(finding));
        for (code, count) in other.more {
            let own = self.some.get_or_insert_default();
            *own.more.entry(code).or_default() += count;
        }
    }
}

/// All findings, and which of them the present version has.
pub(super) struct Book {
    found: Vec<Found>,
    numbers: HashMap<Finding, usize>,
    present: BTreeMap<Subject, Vec<usize>>,
    counts: BTreeMap<FindingCode, usize>,
    max_of_a_code: usize,
}

impl Book {
    pub(super) fn new(max_of_a_code: usize) -> Self {
        Self {
            found: Vec::new(),
            numbers: HashMap::new(),
            present: BTreeMap::new(),
            counts: BTreeMap::new(),
            max_of_a_code,
        }
    }

    /// Replaces the findings about `subject` in the present version.
    pub(super) fn set(&mut self, subject: Subject, findings: Findings) {
        if !self.present.is_empty() {
            self.present.remove(&subject);
        }
        let Some(findings) = findings.some else { return };
        let mut numbers: Vec<usize> =
            findings.list.into_iter().filter_map(|finding| self.number(finding)).collect();
        // Several equal entries give equal findings.
        numbers.sort_unstable();
        numbers.dedup();
        if !numbers.is_empty() {
            self.present.insert(subject, numbers);
        }
        for (code, count) in findings.more {
            *self.counts.entry(code).or_default() += count;
        }
    }

    /// The number of a finding; `None` if there are too many of its kind.
    fn number(&mut self, finding: Finding) -> Option<usize> {
        if let Some(&number) = self.numbers.get(&finding) {
            return Some(number);
        }
        let count = self.counts.entry(finding.code).or_default();
        *count += 1;
        if *count > self.max_of_a_code {
            return None;
        }
        let number = self.found.len();
        self.numbers.insert(finding.clone(), number);
        self.found.push(Found {
            finding,
            views: Vec::new(),
            last: View::HEAD,
            version_count: 0,
            is_in_head: false,
        });
        Some(number)
    }

    /// Whether there are findings of this kind about `subject`.
    pub(super) fn has(&self, subject: Subject) -> bool {
        self.present.contains_key(&subject)
    }

    /// Forgets what the present version has.
    pub(super) fn clear(&mut self) {
        self.present.clear();
    }

    /// Notes that `view` has what is present.
    pub(super) fn close(&mut self, view: View) {
        for &number in self.present.values().flatten() {
            let found = &mut self.found[number];
            found.version_count += 1;
            // A head says more to users than a snapshot.
            if view.epoch.is_none() || !found.is_in_head {
                found.last = view;
            }
            found.is_in_head |= view.epoch.is_none();
            if found.views.len() < MAX_VERSIONS_OF_A_FINDING {
                found.views.push(view);
            }
        }
    }

    /// The findings, and of each kind how many more there are.
    pub(super) fn finish(self) -> (Vec<Found>, BTreeMap<FindingCode, usize>) {
        let max = self.max_of_a_code;
        let more = self.counts.into_iter().filter(|(_, count)| *count > max);
        (self.found, more.map(|(code, count)| (code, count - max)).collect())
    }
}
