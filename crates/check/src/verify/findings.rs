//! The findings of one verification.

use std::collections::HashMap;

use dendro_format::Key;
use dendro_format::usage::FIRST_SYSTEM_LIST;

use super::below::Below;
use super::finding::{Finding, FindingKind};
use super::versions::Seen;

/// How many findings of one kind are listed unless the caller says so. If there are more, one more
/// finding counts them.
pub(super) const MAX_FINDINGS_OF_A_KIND: u64 = 100;

/// What a finding is about.
#[derive(Clone, Copy)]
pub(super) enum About {
    List(u64),
    /// These slots of an entry of the map; all bits for a whole one.
    Entry(Key, u32),
    /// What a part of the map had.
    Below(Below),
}

/// Findings, with a limit for each kind.
pub(super) struct Findings {
    max_of_a_kind: u64,
    list: Vec<(Finding, Option<About>)>,
    counts: HashMap<FindingKind, u64>,
}

impl About {
    /// The one list that it is about, unless that is one of the disk's own.
    fn list(self) -> Option<u64> {
        let list = match self {
            Self::List(list) | Self::Entry(Key { list, .. }, _) => Some(list),
            Self::Below(below) => below.list(),
        };
        list.filter(|list| *list < FIRST_SYSTEM_LIST)
    }

    /// Whether it is about the disk's own lists alone, which are of no version.
    fn is_of_disk(self) -> bool {
        match self {
            Self::Below(below) => below.first_list() >= FIRST_SYSTEM_LIST,
            _ => self.list().is_none(),
        }
    }
}

impl Findings {
    pub(super) fn new(max_of_a_kind: u64) -> Self {
        Self { max_of_a_kind, list: Vec::new(), counts: HashMap::new() }
    }

    pub(super) fn add(&mut self, kind: FindingKind, detail: String) {
        self.add_about(None, kind, detail);
    }

    /// Adds a finding about a list or a part of it. It names the list unless that is one of the
    /// disk's own.
    pub(super) fn add_about(&mut self, about: Option<About>, kind: FindingKind, detail: String) {
        let about = about.filter(|about| !about.is_of_disk());
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= self.max_of_a_kind {
            let list = about.and_then(About::list);
            self.list.push((Finding { list, ..Finding::new(kind, detail) }, about));
        }
    }

    /// Notes that there are `count` more of a kind of which as many as are listed were added.
    pub(super) fn count_more(&mut self, kind: FindingKind, count: u64) {
        *self.counts.entry(kind).or_default() += count;
    }

    /// Notes of each finding which versions have what it is about. Nobody misses the contents of
    /// what none has, which waits to be collected.
    pub(super) fn find_versions(&mut self, seen: &mut Seen<'_>) {
        for (finding, about) in &mut self.list {
            let seen_in = match about {
                Some(About::Entry(key, slots)) => seen.by(key, *slots),
                Some(About::Below(below)) => seen.below(below),
                Some(About::List(_)) | None => None,
            };
            let Some(seen_in) = seen_in else { continue };
            if seen_in.count > 0 {
                finding.seen_in = Some(seen_in);
            } else if finding.kind.is_of_contents() {
                *self.counts.entry(finding.kind).or_default() -= 1;
                *self.counts.entry(FindingKind::BlockGone).or_default() += 1;
                finding.kind = FindingKind::BlockGone;
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Finding> {
        let mut list: Vec<Finding> = self.list.into_iter().map(|(finding, _)| finding).collect();
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
