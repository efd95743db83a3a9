//! The parts of the state: what others may read of them, and the changes of them that no entry of
//! the map makes.

use dendro_format::versions::{COUNTERS_INDEX, VERSIONS_LIST};
use dendro_format::{Key, NodePtr};

use super::State;
use super::removals::Removals;
use crate::fault::Outcome;
use crate::log::segments::Segments;
use crate::map::node::Child;
use crate::map::{Map, Nodes};
use crate::versions::Versions;

impl State {
    pub(crate) const fn map(&self) -> &Map {
        &self.map
    }

    pub(crate) const fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The segments, for those who open, close and clean them.
    pub(crate) const fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    pub(crate) const fn versions(&self) -> &Versions {
        &self.versions
    }

    pub(crate) const fn removals(&self) -> &Removals {
        &self.removals
    }

    /// The root of the map as it is now and its level, for a checkpoint.
    pub(crate) fn freeze_map(&mut self) -> Option<(Child, u8)> {
        self.map.freeze()
    }

    /// Makes the nodes clean that a durable checkpoint wrote: those for keys from `from` on, until
    /// `left` were looked at. Returns the key where the next slice begins.
    pub(crate) fn settle_map(&mut self, from: &Key, left: usize) -> Option<Key> {
        self.map.settle(from, left)
    }

    /// Makes the node at `place` dirty if the map still has it there, so that the next checkpoint
    /// writes it elsewhere. Returns whether the map has it.
    pub(crate) fn rewrite_node(
        &mut self,
        place: &NodePtr,
        level: u8,
        first_key: &Key,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        // If a node of the path is not in memory, the nodes above it stay dirty, which does no
        // harm.
        let is_live = self.map.rewrite_node(place, level, first_key, nodes)?;
        self.account_for_nodes();
        Ok(is_live)
    }

    /// Enters a record of the version table that the log has.
    pub(crate) fn enter_version(
        &mut self,
        index: u64,
        value: Option<&[u8]>,
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        self.enter_in_table(index, value)?;
        // A collection that a crash undid must be done again, whatever the log states later
        // (collection 2).
        let counters = (index == COUNTERS_INDEX).then(|| self.versions.counters_record());
        let value = counters.as_deref().or(value);
        self.put_system_record(VERSIONS_LIST, index, value, nodes)
    }

    /// Makes a collection due for what both a branch and its children have replaced. Returns
    /// whether there are such branches.
    pub(crate) fn collect_behind_forks(&mut self) -> bool {
        self.versions.collect_behind_forks()
    }

    /// Notes that the collection is finished (collection invariant 2).
    pub(crate) const fn note_collected(&mut self) {
        self.versions.note_collected();
    }
}
