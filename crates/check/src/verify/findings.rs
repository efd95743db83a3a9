//! The findings of one verification.

use std::collections::HashMap;

use dendro_format::usage::FIRST_SYSTEM_LIST;

use super::finding::{Finding, FindingKind};

/// How many findings of one kind are listed unless the caller says so. If there are more, one more
/// finding counts them.
pub(super) const MAX_FINDINGS_OF_A_KIND: u64 = 100;

/// Findings, with a limit for each kind.
pub(super) struct Findings {
    max_of_a_kind: u64,
    list: Vec<Finding>,
    counts: HashMap<FindingKind, u64>,
}

impl Findings {
    pub(super) fn new(max_of_a_kind: u64) -> Self {
        Self { max_of_a_kind, list: Vec::new(), counts: HashMap::new() }
    }

    pub(super) fn add(&mut self, kind: FindingKind, detail: String) {
        self.add_about(None, kind, detail);
    }

    /// Adds a finding about `list`. The finding names it unless it is one of the disk's own lists.
    pub(super) fn add_about(&mut self, list: Option<u64>, kind: FindingKind, detail: String) {
        let list = list.filter(|&list| list < FIRST_SYSTEM_LIST);
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= self.max_of_a_kind {
            self.list.push(Finding::new(kind, detail).about(list));
        }
    }

    /// Notes that there are `count` more of a kind of which as many as are listed were added.
    pub(super) fn count_more(&mut self, kind: FindingKind, count: u64) {
        *self.counts.entry(kind).or_default() += count;
    }

    pub(super) fn finish(self) -> Vec<Finding> {
        let mut list = self.list;
        for &kind in FindingKind::ALL {
            let count = self.counts.get(&kind).copied().unwrap_or(0);
            let listed = list.iter().filter(|finding| finding.kind == kind).count() as u64;
            if count > listed {
                let detail = format!("{count} of number {}: {}", kind.number(), kind.title());
                list.push(Finding::new(FindingKind::TooMany, detail));
            }
        }
        list
    }
}
