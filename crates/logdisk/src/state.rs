//! The state that the log describes: the map, the usage of segments and the versions, and how each
//! record of the log changes them. Normal operation and recovery use the same functions, so
//! replaying the log produces the state that existed when it was written.

pub(crate) mod chunk_edit;
pub(crate) mod deletion;
mod entries;
mod frames;
pub(crate) mod hints;
pub(crate) mod item;
pub(crate) mod pages;
mod parts;
pub(crate) mod prune;
mod quotas;
mod rearranging;
pub(crate) mod removals;
mod scan;
pub(crate) mod slice;
mod visibility;
mod visit;

use dendro_disk::ListHints;
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::totals::{COMPRESSED_INDEX, TOTALS_LIST};
use dendro_format::usage::USAGE_LIST;
use dendro_format::{CompressedPages, Key, PageRef, SegmentNo, Value};

use dendro_policy::Present;

use crate::fault::Outcome;
use crate::log::segments::Segments;
use crate::map::{Map, Nodes};
use crate::state::item::ItemKey;
use crate::state::removals::Removals;
use crate::versions::Versions;
use crate::versions::ancestry::Ancestry;

pub(crate) type Slots = [Option<PageRef>; CHUNK_PAGES as usize];

/// Lists that were first made in the given epoch: those with a number from `first` on. There may be
/// others.
#[derive(Clone, Copy, Debug, Default)]
struct YoungLists {
    epoch: u64,
    first: u64,
}

/// The map, the segments, the versions, and the number of the next list.
#[derive(Debug)]
pub(crate) struct State {
    map: Map,
    segments: Segments,
    versions: Versions,
    removals: Removals,
    next_list: u64,
    young_lists: YoungLists,
    /// The log clock: bytes of blocks that clients have written.
    clock: u64,
    /// Whether nothing of the state is written any more: the volume was opened for reading alone,
    /// or has latched, and a rearrangement was finished in memory.
    is_in_memory_only: bool,
    /// The compressed pages as the map records them.
    recorded: CompressedPages,
    before: Option<Before>,
}

/// The parts of the state that are small enough to be copied before a change.
#[derive(Debug)]
struct Before {
    next_list: u64,
    young_lists: YoungLists,
    clock: u64,
}

impl State {
    pub(crate) fn new(
        map: Map,
        segments: Segments,
        versions: Versions,
        removals: Removals,
        next_list: u64,
        clock: u64,
    ) -> Self {
        Self {
            recorded: segments.page_counts().compressed,
            map,
            segments,
            versions,
            removals,
            next_list,
            young_lists: YoungLists::default(),
            clock,
            is_in_memory_only: false,
            before: None,
        }
    }

    /// The number of the next list.
    pub(crate) const fn next_list(&self) -> u64 {
        self.next_list
    }

    /// The log clock: bytes of blocks that clients have written.
    pub(crate) const fn clock(&self) -> u64 {
        self.clock
    }

    /// Begins a change: from here on changes can be undone, except those of the version table.
    pub(crate) fn begin(&mut self) {
        // Nodes that were released before are not part of the change.
        self.account_for_nodes();
        self.map.begin();
        self.segments.begin();
        self.removals.begin();
        self.before = Some(Before {
            next_list: self.next_list,
            young_lists: self.young_lists,
            clock: self.clock,
        });
    }

    /// Makes permanent what was changed since [`Self::begin`].
    pub(crate) fn settle_changes(&mut self, nodes: &dyn Nodes) {
        self.map.settle_changes(nodes);
        self.segments.settle_changes();
        self.removals.settle_changes();
        self.before = None;
        self.account_for_nodes();
    }

    /// Undoes what was changed since [`Self::begin`].
    pub(crate) fn roll_back(&mut self) {
        self.map.roll_back();
        self.segments.roll_back();
        self.removals.roll_back();
        if let Some(before) = self.before.take() {
            self.next_list = before.next_list;
            self.young_lists = before.young_lists;
            self.clock = before.clock;
        }
        // Nodes that were made dirty stay dirty, so their blocks on the device are no longer live.
        self.account_for_nodes();
    }

    /// The volume as policies see it.
    pub(crate) fn present(&self) -> Present {
        let layout = self.segments.layout();
        Present {
            clock: self.clock,
            live_bytes: self.segments.live_bytes(),
            segment_bytes: layout.segment_size_bytes(),
            segment_count: layout.segment_count(),
        }
    }

    pub(crate) fn has_list(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        Ok(self.list_hints(ancestry, list, nodes)?.is_some())
    }

    /// The hints of a list, if it exists.
    pub(crate) fn list_hints(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Option<ListHints>> {
        if list >= self.next_list {
            return Ok(None);
        }
        let hints_of = |value: Option<&Value>| match value {
            Some(Value::List(stored)) => Some(hints::told(*stored)),
            _ => None,
        };
        let item = ItemKey::list(list);
        if let Some(key) = self.sole_key(ancestry, item) {
            return self.map.look(&key, nodes, hints_of);
        }
        let newest = self.newest(ancestry, item, nodes)?;
        Ok(hints_of(newest.as_ref().map(|(_, value)| value)))
    }

    /// The only key that `item` can have, if its list has only one version.
    pub(crate) fn sole_key(&self, ancestry: Ancestry<'_>, item: ItemKey) -> Option<Key> {
        let (branch, epoch) = (ancestry.nearest().branch, self.versions.epoch());
        let is_head = ancestry.nearest().last_epoch >= epoch;
        (is_head && self.has_no_past(branch, item.list)).then(|| item.key(branch, epoch))
    }

    /// Whether the head of `branch` sees nothing of `list` that was written before this epoch:
    /// either there is no older version, or none has the list.
    const fn has_no_past(&self, branch: u32, list: u64) -> bool {
        let epoch = self.versions.epoch();
        let is_young = self.young_lists.epoch == epoch && list >= self.young_lists.first;
        is_young || list >= self.next_list || self.versions.is_first(branch, epoch)
    }

    /// Whether a view may see items of `list`. Entries of a deleted list may still be in the map,
    /// but the view does not see them.
    pub(crate) fn may_have(
        &self,
        ancestry: Ancestry<'_>,
        list: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let is_only = self.versions.epoch() == 1 && !self.removals.contains(list);
        Ok(is_only || self.has_list(ancestry, list, nodes)?)
    }

    /// Subtracts released nodes from the usage of their segments (map invariant 3).
    pub(crate) fn account_for_nodes(&mut self) {
        if self.map.has_released() {
            for node in self.map.take_released() {
                self.segments.node_freed(&node, self.clock);
            }
        }
    }

    /// Whether the totals in the map are out of date.
    pub(crate) fn has_new_totals(&self) -> bool {
        let counts = self.segments.page_counts();
        counts.compressed_are_exact && self.recorded != counts.compressed
    }

    /// Updates the totals in the map. Nothing that can fail may follow in the same change.
    pub(crate) fn record_totals(&mut self, nodes: &dyn Nodes) -> Outcome<()> {
        if self.has_new_totals() {
            let compressed = self.segments.page_counts().compressed;
            let record = compressed.encode();
            self.put_system_record(TOTALS_LIST, COMPRESSED_INDEX, record.as_deref(), nodes)?;
            self.recorded = compressed;
        }
        Ok(())
    }

    /// Updates up to `most` usage records in the map. The segments whose usage this changes in turn
    /// stay in [`Segments::unrecorded`]; the checkpoint stores their usage as overrides.
    pub(crate) fn record_usage(&mut self, most: usize, nodes: &dyn Nodes) -> Outcome<()> {
        let unrecorded = self.segments.unrecorded();
        let count = unrecorded.len().min(most);
        let mut numbers = unrecorded[..count].to_vec();
        numbers.sort_unstable();
        for number in numbers {
            let usage = self.segments.usage(SegmentNo(number));
            let index = u64::from(number);
            let record = usage.encode();
            let value = (usage.live_bytes > 0).then_some(&record[..]);
            self.put_system_record(USAGE_LIST, index, value, nodes)?;
        }
        self.segments.note_recorded(count);
        Ok(())
    }
}
