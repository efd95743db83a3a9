//! Filling the gaps, slice by slice: from the leaves that fill it, and what the log since has
//! changed in it.

use std::collections::{BTreeMap, BTreeSet};

use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::{Entries, Hints, Key, SegmentNo, Space, Value};

use super::claims::Claim;
use super::gaps::Gap;
use super::history::History;
use super::replay::{Aged, Filled, Replay, UnknownMoves};
use super::report::{Restored, Source};
use super::slices::Slice;
use crate::read::Volume;

/// What a slice is filled with.
pub(super) struct Content {
    pub(super) filled: Filled,
    /// Segments from which it was read.
    pub(super) segments: BTreeSet<SegmentNo>,
    /// What was restored, and from what.
    pub(super) restored: Vec<Restored>,
    pub(super) unknown_moves: UnknownMoves,
}

/// What all slices are filled from.
pub(super) struct Filler<'a> {
    pub(super) volume: &'a Volume<'a>,
    pub(super) history: &'a History,
    pub(super) has_versions: bool,
    /// The entries of lists that the log behind the checkpoint takes to exist.
    pub(super) later: &'a BTreeMap<u64, Key>,
}

impl Filler<'_> {
    /// Fills a slice. The same slice is filled in the same way each time.
    pub(super) fn fill(&self, slice: &Slice<'_>) -> Content {
        let layout = self.volume.layout();
        let mut replay = Replay {
            slice,
            has_versions: self.has_versions,
            max_page_count: layout.len_bytes() / 8,
            filled: Filled::new(),
            deleted: BTreeSet::new(),
            unknown_moves: UnknownMoves::new(),
        };
        let mut segments = BTreeSet::new();
        for claim in slice.claims {
            let Ok(node) = self.volume.node(claim.leaf) else { continue };
            segments.extend(node.segments(self.volume));
            let Entries::Leaf(entries) = node.entries else { continue };
            for (key, value) in entries {
                if key >= claim.from && key < claim.to {
                    let age = claim.log_seq.saturating_sub(1);
                    replay.filled.insert(key, Aged { value, age });
                }
            }
        }
        segments.extend(replay.apply(self.volume, self.history));
        let Replay { mut filled, deleted, unknown_moves, .. } = replay;
        // Usage is counted anew.
        filled.retain(|key, _| key.list != USAGE_LIST);
        drop_skips(&mut filled);
        self.restore_lists(&mut filled, slice, &deleted);
        let restored = self.restored(slice);
        Content { filled, segments, restored, unknown_moves }
    }

    /// Restores the entries of lists of which only the content is left, or to which the log behind
    /// the checkpoint adds some. It is better to bring back a list too many than to lose one.
    ///
    /// A list's first entry is lost too if there is older content: the entry was replaced since, as
    /// by new hints, but the versions from before have the list and what was in it.
    fn restore_lists(&self, filled: &mut Filled, slice: &Slice<'_>, deleted: &BTreeSet<u64>) {
        let mut first_entries: BTreeMap<u64, Key> = BTreeMap::new();
        let mut lost: BTreeMap<u64, Key> = BTreeMap::new();
        for key in filled.keys().filter(|key| key.list < FIRST_SYSTEM_LIST) {
            if key.space == Space::List {
                first_entries.entry(key.list).or_insert(*key);
            } else {
                let entry = Key { space: Space::List, index: 0, ..*key };
                let oldest = lost.entry(key.list).or_insert(entry);
                *oldest = entry.min(*oldest);
            }
        }
        let gaps = slice.gaps();
        for (list, key) in self.later {
            lost.entry(*list).or_insert(*key);
        }
        // A branch has a higher number than its ancestors, so what lies before the first entry has
        // no entry of an ancestor either.
        let is_lost = |key: &Key| match first_entries.get(&key.list) {
            Some(first) => key < first,
            None => !deleted.contains(&key.list),
        };
        for key in lost.into_values().filter(is_lost) {
            let first = Key::first(key.list, Space::List, 0);
            if gaps.of(&key).is_some_and(|gap| gap.from <= first) {
                filled.insert(key, Aged { value: Value::List(Hints::default()), age: 0 });
            }
        }
    }

    /// Where each part of a slice comes from.
    fn restored(&self, slice: &Slice<'_>) -> Vec<Restored> {
        let complete_from = self.history.complete_from;
        let restored = |(Gap { from, to }, claim): (Gap, Option<&Claim>)| {
            let source = claim.map_or(Source::Log, |of| Source::Checkpoint(of.checkpoint_seq));
            let is_complete = claim.map_or(0, |of| of.log_seq) >= complete_from;
            Restored { from, to, source, is_complete }
        };
        slice.parts().into_iter().map(restored).collect()
    }
}

/// Drops the skips of chunks: entries that they pass over may have changed.
fn drop_skips(filled: &mut Filled) {
    for entry in filled.values_mut() {
        if let Value::Chunk(chunk) = &mut entry.value
            && chunk.skip().is_some()
        {
            *chunk = std::sync::Arc::new((**chunk).clone().with_skip(None));
        }
    }
}
