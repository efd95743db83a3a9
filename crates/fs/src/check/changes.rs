//! The lists in which each version may differ from the one before: found for as many versions
//! together as fit in memory, since that takes one walk over the map.

use dendro_disk::{Error as DiskError, Lid, Versions, View};

use crate::error::Result;

/// How many lists are told at a time.
const BATCH_LEN: usize = 1024;

/// What a change takes in memory.
const CHANGE_BYTES: u64 = size_of::<(usize, Lid)>() as u64;

/// The changes from each of some views to the next.
pub(super) struct Changes<'c> {
    disk: &'c dyn Versions,
    views: &'c [View],
    max: usize,
    /// Those that are known, of the views behind `base` up to `end`; indexes count from `base`.
    known: Vec<(usize, Lid)>,
    base: usize,
    end: usize,
    /// Changes up to this view are asked for pair by pair: they do not fit in memory, or a part of
    /// the map cannot be read.
    pairs_end: usize,
}

impl<'c> Changes<'c> {
    pub(super) fn new(disk: &'c dyn Versions, views: &'c [View], memory_bytes: u64) -> Self {
        let max = usize::try_from(memory_bytes / CHANGE_BYTES).unwrap_or(usize::MAX);
        Self { disk, views, max, known: Vec::new(), base: 0, end: 0, pairs_end: 0 }
    }

    /// The first lists from `from` on in which the view of this index, which is not the first, may
    /// differ from the one before.
    pub(super) fn of(&mut self, index: usize, from: Lid) -> Result<Vec<Lid>> {
        let before = index - 1;
        if index >= self.end && index >= self.pairs_end {
            match self.disk.changes_along(&self.views[before..], self.max) {
                Ok((known, end)) => {
                    (self.known, self.base, self.end) = (known, before, before + end);
                    self.pairs_end = if end > 1 { 0 } else { index + 1 };
                }
                // What is damaged may lie where this pair has nothing.
                Err(DiskError::Corrupted(_) | DiskError::Io(_)) => self.pairs_end = usize::MAX,
                Err(error) => return Err(error.into()),
            }
        }
        if index >= self.end {
            let (last, view) = (self.views[before], self.views[index]);
            return Ok(self.disk.changed_lists(last, view, from, BATCH_LEN)?);
        }
        let at = index - self.base;
        let first = self.known.partition_point(|change| *change < (at, from));
        let own = self.known[first..].iter().take_while(|(of, _)| *of == at);
        Ok(own.take(BATCH_LEN).map(|(_, list)| *list).collect())
    }
}
