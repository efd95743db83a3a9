//! The findings of one verification.

use std::collections::HashMap;

use dendro_format::Key;
use dendro_format::usage::FIRST_SYSTEM_LIST;

use super::below::Below;
use super::finding::{Finding, FindingKind, SeenIn};
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
pub(super) struct Findings<'v> {
    max_of_a_kind: u64,
    list: Vec<Finding>,
    counts: HashMap<FindingKind, u64>,
    /// Tells which versions have what a finding is about, once the table of versions was read.
    seen: Option<Seen<'v>>,
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

    /// The versions that have it, perhaps none; `None` if the map does not tell.
    fn seen_by(self, seen: &mut Seen<'_>) -> Option<SeenIn> {
        match self {
            Self::Entry(key, slots) => seen.by(&key, slots),
            Self::Below(below) => seen.below(&below),
            Self::List(_) => None,
        }
    }

    /// Whether it is about the disk's own lists alone, which are of no version.
    fn is_of_disk(self) -> bool {
        match self {
            Self::Below(below) => below.first_list() >= FIRST_SYSTEM_LIST,
            _ => self.list().is_none(),
        }
    }
}

impl Findings<'_> {
    pub(super) fn new(max_of_a_kind: u64) -> Self {
        Self { max_of_a_kind, list: Vec::new(), counts: HashMap::new(), seen: None }
    }

    /// Goes on with findings that name the versions which have what they are about.
    pub(super) fn with_versions<'s>(self, seen: Seen<'s>) -> Findings<'s> {
        Findings { seen: Some(seen), ..self.without_versions() }
    }

    /// Goes on with findings that are not about versions.
    pub(super) fn without_versions<'s>(self) -> Findings<'s> {
        let Self { max_of_a_kind, list, counts, seen: _ } = self;
        Findings { max_of_a_kind, list, counts, seen: None }
    }

    pub(super) fn add(&mut self, kind: FindingKind, detail: String) {
        self.add_about(None, kind, detail);
    }

    /// Adds a finding about a list or a part of it. It names the list unless that is one of the
    /// disk's own. Nobody misses the contents of what no version has, which waits to be collected:
    /// that is a kind of its own, and must not take the place of what somebody misses.
    pub(super) fn add_about(
        &mut self,
        about: Option<About>,
        mut kind: FindingKind,
        detail: String,
    ) {
        let about = about.filter(|about| !about.is_of_disk());
        let is_listed = self.count(kind) < self.max_of_a_kind;
        let seen_in = match (about, &mut self.seen) {
            (Some(about), Some(seen)) if is_listed || kind.is_of_contents() => about.seen_by(seen),
            _ => None,
        };
        let is_gone = seen_in.as_ref().is_some_and(|seen_in| seen_in.count == 0);
        if is_gone && kind.is_of_contents() {
            kind = FindingKind::BlockGone;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= self.max_of_a_kind {
            let list = about.and_then(About::list);
            let seen_in = seen_in.filter(|_| !is_gone);
            self.list.push(Finding { list, seen_in, ..Finding::new(kind, detail) });
        }
    }

    /// Notes that there are `count` more of a kind of which as many as are listed were added.
    pub(super) fn count_more(&mut self, kind: FindingKind, count: u64) {
        *self.counts.entry(kind).or_default() += count;
    }

    fn count(&self, kind: FindingKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    pub(super) fn finish(mut self) -> Vec<Finding> {
        let mut list = std::mem::take(&mut self.list);
        for &kind in FindingKind::ALL {
            let count = self.count(kind);
            let listed = list.iter().filter(|finding| finding.kind == kind).count() as u64;
            if count > listed {
                let detail = format!("{count} of number {}: {}", kind.number(), kind.title());
                list.push(Finding::new(FindingKind::TooMany, detail));
            }
        }
        list
    }
}
