//! The changes that the main log has for a slice of the gaps, applied to its entries.
//!
//! A record is applied to keys of the slice alone, and only if the leaf that fills the key is
//! older. Which pages moved from or to a list outside the slice is not known: such a move is
//! counted and left out.
//!
//! Where a stretch of the log is missing, the copies that payload streams have of its records take
//! their place, so that a page is not older than it must be.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use dendro_format::usage::FIRST_SYSTEM_LIST;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{CHUNK_PAGES, Chunk, Key, PageRef, Record, SegmentNo, Space, Value};

use super::blocks::blocks_of;
use super::gaps::END;
use super::history::History;
use super::missing::Missing;
use super::slices::Slice;
use crate::read::{Partial, Volume};

/// A value, and the number of the last partial segment of the main log that changed it or may have.
#[derive(Clone, Debug)]
pub(super) struct Aged {
    pub(super) value: Value,
    pub(super) age: u64,
}

/// The entries of a slice.
pub(super) type Filled = BTreeMap<Key, Aged>;

/// The version that records belong to.
#[derive(Clone, Copy)]
struct Context {
    branch: u32,
    epoch: u64,
    is_moved: bool,
}

/// Records of a unit that has not ended, and the version that they start with.
type Begun = (Arc<Partial>, Range<u32>, Context);

/// Each by the number of its partial segment, and by its place there. Several slices may meet one.
pub(super) type UnknownMoves = BTreeSet<(u64, u32)>;

/// A slice of the gaps while the log is applied to it.
pub(super) struct Replay<'a> {
    pub(super) slice: &'a Slice<'a>,
    /// Whether there are, or may be, several versions.
    pub(super) has_versions: bool,
    /// Pages that the volume has room for.
    pub(super) max_page_count: u64,
    pub(super) filled: Filled,
    /// Lists that records delete.
    pub(super) deleted: BTreeSet<u64>,
    /// Records that could not be applied, because it is not known what they moved.
    pub(super) unknown_moves: UnknownMoves,
}

impl Replay<'_> {
    /// Applies the units that are complete. Returns the segments in which the log lies that they
    /// are of. Also those of partial segments that are not read are needed: without them the log
    /// would have gaps when an interrupted rebuild is done again.
    pub(super) fn apply(&mut self, volume: &Volume<'_>, history: &History) -> BTreeSet<SegmentNo> {
        let mut segments = BTreeSet::new();
        let mut begun: Vec<Begun> = Vec::new();
        let mut next_seq = 0;
        let oldest = self.oldest();
        let gaps = self.slice.gaps();
        let mut missing = history.missing_from(oldest).iter().peekable();
        for place in history.from(oldest) {
            while let Some(stretch) = missing.next_if(|stretch| stretch.from_seq <= place.seq) {
                if stretch.from_seq == next_seq {
                    // The log went on, so what had begun was completed.
                    self.apply_begun(&mut begun);
                }
                segments.extend(self.apply_copies(volume, history, stretch));
            }
            segments.insert(place.segment);
            let read = || volume.partial_at(place.segment, place.offset_bytes);
            let partial = match place.lists.may_meet(gaps).then(read) {
                None => None,
                Some(Ok(partial)) => Some(partial),
                Some(Err(_)) => continue,
            };
            if place.seq != next_seq {
                begun.clear();
            }
            next_seq = place.seq + 1;
            if place.ends_unit {
                self.apply_begun(&mut begun);
            }
            let Some(partial) = partial else { continue };
            let header = partial.header;
            let complete_len = header.complete_len_bytes;
            let start = Context { branch: 0, epoch: header.epoch, is_moved: false };
            let context = self.apply_records(&partial, 0..complete_len, start);
            if header.records_len_bytes > complete_len {
                begun.push((partial, complete_len..u32::MAX, context));
            }
        }
        for stretch in missing {
            segments.extend(self.apply_copies(volume, history, stretch));
        }
        segments
    }

    fn apply_begun(&mut self, begun: &mut Vec<Begun>) {
        for (partial, records, start) in begun.drain(..) {
            self.apply_records(&partial, records, start);
        }
    }

    /// Applies what payload streams have of a stretch that is missing. A block that turns out to be
    /// damaged is taken too: then the page reads as damage, and not as what it was before.
    fn apply_copies(
        &mut self,
        volume: &Volume<'_>,
        history: &History,
        stretch: &Missing,
    ) -> BTreeSet<SegmentNo> {
        let mut segments = BTreeSet::new();
        let (copies, others) = history.copies_of(volume, stretch, self.slice.gaps());
        for copy in copies {
            let Ok(partial) = volume.partial_at(copy.segment, copy.offset_bytes) else {
                continue;
            };
            let mut context = Context { branch: 0, epoch: partial.header.epoch, is_moved: false };
            for record in partial.records().flatten() {
                match record.record {
                    Record::Version { branch, epoch, is_moved } => {
                        context = Context { branch, epoch, is_moved };
                    }
                    Record::WriteRun { list, .. } | Record::WriteBlock { list, .. } => {
                        let blocks = blocks_of(&record.record).into_iter();
                        for (page, block) in blocks.filter(|(_, of)| !others.contains(&of.addr)) {
                            if self.write(list, page, block, context, stretch.from_seq) {
                                segments.insert(copy.segment);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        segments
    }

    /// The oldest partial segment that may matter.
    fn oldest(&self) -> u64 {
        let parts = self.slice.parts().into_iter();
        parts.map(|(_, claim)| claim.map_or(0, |of| of.log_seq)).min().unwrap_or(u64::MAX)
    }

    /// The partial segment from which on changes of `key` are to be applied; `None` if it does not
    /// lie in the slice.
    fn floor(&self, key: &Key) -> Option<u64> {
        self.slice.gaps().of(key)?;
        Some(self.slice.claim_of(key).map_or(0, |claim| claim.log_seq))
    }

    fn admits(&self, key: &Key, seq: u64) -> bool {
        self.floor(key).is_some_and(|floor| seq >= floor)
    }

    fn apply_records(&mut self, partial: &Partial, range: Range<u32>, start: Context) -> Context {
        let mut context = start;
        let seq = partial.header.seq;
        for record in partial.records().flatten() {
            if !range.contains(&record.offset_bytes) {
                continue;
            }
            match record.record {
                Record::Version { branch, epoch, is_moved } => {
                    context = Context { branch, epoch, is_moved };
                }
                move_record if self.is_unknown_move(&move_record) => {
                    self.unknown_moves.insert((seq, record.offset_bytes));
                }
                record => self.apply_record(&record, context, seq),
            }
        }
        context
    }

    fn apply_record(&mut self, record: &Record<'_>, context: Context, seq: u64) {
        let Context { branch, epoch, .. } = context;
        let at = |list, space, index| match list >= FIRST_SYSTEM_LIST {
            true => Key { list, space, index, branch: 0, epoch: 1 },
            false => Key { list, space, index, branch, epoch },
        };
        match *record {
            Record::CreateList { list, hints } | Record::SetHints { list, hints } => {
                self.deleted.remove(&list);
                self.put(at(list, Space::List, 0), Value::List(hints), seq);
            }
            Record::DeleteList { list } => self.delete_list(list, context, seq),
            Record::PutRecord { list, index, value } => {
                self.put(at(list, Space::Records, index), Value::Record(value.into()), seq);
            }
            Record::DeleteRecord { list, index } => {
                let key = at(list, Space::Records, index);
                if self.has_versions && list != VERSIONS_LIST {
                    self.put(key, Value::Tombstone, seq);
                } else if self.admits(&key, seq) {
                    self.filled.remove(&key);
                }
            }
            Record::WriteRun { list, .. } | Record::WriteBlock { list, .. } => {
                for (page, block) in blocks_of(record) {
                    self.write(list, page, block, context, seq);
                }
            }
            Record::ZeroPages { list, first_page, count } if count <= self.max_page_count => {
                for page in first_page..first_page.saturating_add(count) {
                    self.write(list, page, PageRef::ZERO, context, seq);
                }
            }
            Record::PunchPages { list, first_page, count } => {
                self.punch(list, first_page..first_page.saturating_add(count), context, seq);
            }
            Record::ZeroPages { .. }
            | Record::MovePages { .. }
            | Record::SwapPages { .. }
            | Record::SwapRange { .. }
            | Record::Node { .. }
            | Record::Version { .. }
            | Record::Reuse { .. }
            | Record::Checkpoint { .. } => {}
        }
    }

    /// Whether a record moves pages from or to a part of the slice.
    fn is_unknown_move(&self, record: &Record<'_>) -> bool {
        let (Record::MovePages { from, to, .. }
        | Record::SwapPages { a: from, b: to }
        | Record::SwapRange { a: from, b: to, .. }) = *record
        else {
            return false;
        };
        let gaps = self.slice.gaps();
        let is_here = |list| gaps.meet(&Key::first(list, Space::Chunks, 0), &Key { list, ..END });
        is_here(from) || is_here(to)
    }

    fn put(&mut self, key: Key, value: Value, seq: u64) {
        if self.admits(&key, seq) {
            self.filled.insert(key, Aged { value, age: seq });
        }
    }

    /// Changes the chunk under exactly this key. Returns whether it is to be changed.
    fn edit(&mut self, key: Key, seq: u64, change: impl FnOnce(&mut Chunk)) -> bool {
        if !self.admits(&key, seq) {
            return false;
        }
        let empty = || Aged { value: Value::Chunk(Arc::default()), age: seq };
        let entry = self.filled.entry(key).or_insert_with(empty);
        let Value::Chunk(chunk) = &mut entry.value else { return false };
        change(Arc::make_mut(chunk));
        entry.age = seq;
        if chunk.is_empty() {
            self.filled.remove(&key);
        }
        true
    }

    /// Returns whether the page is now this block.
    fn write(&mut self, list: u64, page: u64, block: PageRef, context: Context, seq: u64) -> bool {
        let Context { branch, epoch, is_moved } = context;
        let index = page / CHUNK_PAGES;
        let slot = (page % CHUNK_PAGES) as u32;
        let key = Key { list, space: Space::Chunks, index, branch, epoch };
        // A block that was moved after its page had been freed or written again is of no concern.
        let is_owned = || match self.filled.get(&key).map(|entry| &entry.value) {
            Some(Value::Chunk(chunk)) => chunk.get(slot).is_some(),
            _ => false,
        };
        let is_filled = || self.floor(&key).is_some_and(|floor| floor > 0);
        if is_moved && is_filled() && !is_owned() {
            return false;
        }
        self.edit(key, seq, |chunk| chunk.set(slot, block))
    }

    fn punch(&mut self, list: u64, pages: Range<u64>, context: Context, seq: u64) {
        if pages.is_empty() {
            return;
        }
        let Context { branch, epoch, .. } = context;
        let first = Key::first(list, Space::Chunks, pages.start / CHUNK_PAGES);
        let last = Key { list, index: (pages.end - 1) / CHUNK_PAGES, ..END };
        let indexes: BTreeSet<u64> =
            self.filled.range(first..=last).map(|(key, _)| key.index).collect();
        for index in indexes {
            let base = index * CHUNK_PAGES;
            let slots = (0..CHUNK_PAGES).filter(|slot| pages.contains(&(base + slot)));
            let mask = slots.fold(0_u32, |mask, slot| mask | 1 << slot);
            let hides = self.has_versions;
            let key = Key { list, space: Space::Chunks, index, branch, epoch };
            self.edit(key, seq, |chunk| {
                let mut left = chunk.slots();
                for slot in (0..CHUNK_PAGES as usize).filter(|slot| mask >> slot & 1 == 1) {
                    left[slot] = None;
                }
                let holes = if hides { chunk.holes() | mask } else { 0 };
                *chunk = chunk.with_slots(&left, holes);
            });
        }
    }

    fn delete_list(&mut self, list: u64, context: Context, seq: u64) {
        self.deleted.insert(list);
        let Context { branch, epoch, .. } = context;
        let range = Key::first(list, Space::List, 0)..=Key { list, ..END };
        let of_version =
            |key: &Key| !self.has_versions || (key.branch, key.epoch) == (branch, epoch);
        let gone: Vec<Key> = self
            .filled
            .range(range)
            .map(|(key, _)| *key)
            .filter(|key| of_version(key) && self.admits(key, seq))
            .collect();
        for key in gone {
            self.filled.remove(&key);
        }
        if self.has_versions {
            let key = Key { list, space: Space::List, index: 0, branch, epoch };
            self.put(key, Value::Tombstone, seq);
        }
    }
}
