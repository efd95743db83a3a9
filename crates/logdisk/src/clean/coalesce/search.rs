//! The search for what to coalesce: stretch by stretch, and the short lists of neighbourhoods
//! together.
//!
//! Lists are found in the order of their numbers, and those of a neighbourhood may be anywhere. So
//! the search gathers short lists that are near others, and groups them when it has found many.

use std::collections::VecDeque;

use dendro_disk::{Lid, Result, View};

use super::mover::Mover;
use super::place::Place;
use super::stretch::{MAX_SHORT_PAGES, RunSearch, STRETCH_PAGES, Span, Stretch};

/// The number of short lists that are gathered before they are grouped.
const MAX_GATHERED: usize = 1024;

/// A short list that is near another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Short {
    near: Lid,
    place: Place,
    page_count: usize,
}

/// A search from a place on.
#[derive(Debug)]
pub(super) struct Search {
    /// Whether all blocks of the stretches are to be read.
    is_whole: bool,
    /// Where it continues.
    next: Place,
    gathered: Vec<Short>,
    /// What was found and not handed out, in the order of the first places.
    found: VecDeque<Span>,
    /// What the pages that were passed take on the device, and would take if nothing were
    /// compressed. Those of a neighbourhood count when they are found, not with the others.
    passed: (u64, u64),
}

impl Search {
    /// A search that begins at `from`, for stretches of which all blocks are to be read if
    /// `is_whole`.
    pub(super) const fn new(from: Place, is_whole: bool) -> Self {
        Self { is_whole, next: from, gathered: Vec::new(), found: VecDeque::new(), passed: (0, 0) }
    }

    /// Looks at one place, among the lists before `until`.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub(super) fn step(&mut self, mover: &Mover, view: View, until: Lid) -> Result<RunSearch> {
        if let Some(span) = self.found.pop_front() {
            return mover.stretch_of(view, span, self.is_whole).map(RunSearch::Here);
        }
        let found = mover.find_stretch(view, self.next, until, self.is_whole)?;
        match &found {
            RunSearch::Nothing if self.gathered.is_empty() => {}
            RunSearch::Nothing => {
                self.group();
                return Ok(RunSearch::Elsewhere(self.next));
            }
            RunSearch::Elsewhere(next) => self.next = *next,
            RunSearch::Here(stretch) => {
                self.next = stretch.end();
                self.passed.0 += stretch.stored_bytes;
                self.passed.1 += stretch.plain_bytes;
                let (place, page_count) = (stretch.span.first(), stretch.page_count);
                if let Some(near) = stretch.near
                    && place.page == 0
                    && page_count <= MAX_SHORT_PAGES
                {
                    self.gathered.push(Short { near, place, page_count });
                    if self.gathered.len() >= MAX_GATHERED {
                        self.group();
                    }
                    return Ok(RunSearch::Elsewhere(self.next));
                }
            }
        }
        Ok(found)
    }

    /// What the pages that were passed take on the device, and would take if nothing were
    /// compressed.
    pub(super) const fn passed(&self) -> (u64, u64) {
        self.passed
    }

    /// Has a stretch found again.
    pub(super) fn put_back(&mut self, stretch: Stretch) {
        self.found.push_front(stretch.span);
    }

    /// Makes stretches of what was gathered. Returns whether there are any that were not handed
    /// out.
    pub(super) fn group(&mut self) -> bool {
        if self.gathered.is_empty() {
            return !self.found.is_empty();
        }
        self.gathered.sort_unstable();
        for neighbours in self.gathered.chunk_by(|a, b| a.near == b.near) {
            let mut span = Span::beside(neighbours[0].near);
            let mut page_count = 0;
            for short in neighbours {
                if page_count + short.page_count > STRETCH_PAGES as usize {
                    self.found.push_back(std::mem::take(&mut span));
                    page_count = 0;
                }
                span.places.push(short.place);
                page_count += short.page_count;
            }
            self.found.push_back(span);
        }
        self.gathered.clear();
        self.found.make_contiguous().sort_by_key(Span::first);
        true
    }

    /// Where another search has to begin to find what this one has not handed out.
    pub(super) fn rest(&self) -> Place {
        let found = self.found.iter().map(Span::first);
        let gathered = self.gathered.iter().map(|short| short.place);
        found.chain(gathered).fold(self.next, Place::min)
    }
}
