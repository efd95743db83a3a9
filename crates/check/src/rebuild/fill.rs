//! Filling the gaps, slice by slice, so that memory is bounded: a slice has leaves of
//! [`SLICE_BYTES`], and what the log since has changed in it.

use std::collections::{BTreeMap, BTreeSet};

use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::{Entries, Key, SegmentNo, Space, Value};

use super::base::Gap;
use super::claims::Claim;
use super::history::History;
use super::replay::{Aged, Filled, Replay};
use super::report::{Restored, Source};
use crate::read::Volume;

/// Bytes of leaves in a slice. In memory they take a few times as much.
const SLICE_BYTES: u64 = 64 << 20;

/// A part of a gap, with the leaves that fill it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice<'a> {
    pub(super) from: Key,
    pub(super) to: Key,
    claims: &'a [Claim],
}

/// What a slice is filled with.
pub(super) struct Content {
    pub(super) filled: Filled,
    /// Segments from which it was read.
    pub(super) segments: BTreeSet<SegmentNo>,
    /// What was restored, and from what.
    pub(super) restored: Vec<Restored>,
    pub(super) unknown_move_count: u64,
}

/// Cuts the gaps into slices. The claims are in the order of their keys.
pub(super) fn slices<'a>(gaps: &[Gap], claims: &'a [Claim]) -> Vec<Slice<'a>> {
    let mut slices = Vec::new();
    for gap in gaps {
        let first = claims.partition_point(|claim| claim.to <= gap.from);
        let end = claims.partition_point(|claim| claim.from < gap.to);
        let mut left = &claims[first.min(end)..end];
        let mut from = gap.from;
        loop {
            let mut bytes = 0;
            let is_enough = |claim: &Claim| {
                bytes += u64::from(claim.leaf.len_bytes);
                bytes > SLICE_BYTES
            };
            let count = left.iter().position(is_enough).unwrap_or(left.len()).max(1);
            let (claims, rest) = left.split_at(count.min(left.len()));
            let to = rest.first().map_or(gap.to, |claim| claim.from);
            slices.push(Slice { from, to, claims });
            if rest.is_empty() {
                break;
            }
            (left, from) = (rest, to);
        }
    }
    slices
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
            from: slice.from,
            to: slice.to,
            claims: slice.claims,
            has_versions: self.has_versions,
            max_page_count: layout.len_bytes() / 8,
            filled: Filled::new(),
            deleted: BTreeSet::new(),
            unknown_move_count: 0,
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
        let Replay { mut filled, deleted, unknown_move_count, .. } = replay;
        // Usage is counted anew.
        filled.retain(|key, _| key.list != USAGE_LIST);
        drop_skips(&mut filled);
        self.restore_lists(&mut filled, slice, &deleted);
        let restored = self.restored(slice);
        Content { filled, segments, restored, unknown_move_count }
    }

    /// Restores the entries of lists of which only the content is left, or to which the log behind
    /// the checkpoint adds some. It is better to bring back a list too many than to lose one.
    fn restore_lists(&self, filled: &mut Filled, slice: &Slice<'_>, deleted: &BTreeSet<u64>) {
        let mut lists = BTreeSet::new();
        let mut lost: BTreeMap<u64, Key> = BTreeMap::new();
        for key in filled.keys().filter(|key| key.list < FIRST_SYSTEM_LIST) {
            if key.space == Space::List {
                lists.insert(key.list);
            } else {
                let entry = Key { space: Space::List, index: 0, ..*key };
                let oldest = lost.entry(key.list).or_insert(entry);
                *oldest = entry.min(*oldest);
            }
        }
        for (list, key) in self.later.range(slice.from.list..=slice.to.list) {
            lost.entry(*list).or_insert(*key);
        }
        let is_lost = |list: &u64| !lists.contains(list) && !deleted.contains(list);
        for (_, key) in lost.into_iter().filter(|(list, _)| is_lost(list)) {
            if Key::first(key.list, Space::List, 0) >= slice.from && key < slice.to {
                filled.insert(key, Aged { value: Value::List(0), age: 0 });
            }
        }
    }

    /// Where each part of a slice comes from.
    fn restored(&self, slice: &Slice<'_>) -> Vec<Restored> {
        let mut parts = Vec::new();
        let from_log = |from, to| {
            let is_complete = self.history.complete_from == 0;
            Restored { from, to, source: Source::Log, is_complete }
        };
        let mut next = slice.from;
        for claim in slice.claims {
            if claim.from > next {
                parts.push(from_log(next, claim.from));
            }
            let is_complete = claim.log_seq >= self.history.complete_from;
            let source = Source::Checkpoint(claim.checkpoint_seq);
            parts.push(Restored { from: claim.from, to: claim.to, source, is_complete });
            next = claim.to;
        }
        if next < slice.to {
            parts.push(from_log(next, slice.to));
        }
        parts
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
