//! The collection: frees what only deleted versions saw.
//!
//! Deleting a version takes one record. What only that version saw is found afterwards in the
//! background, by a walk over the map that prunes every item it concerns ([`crate::state::prune`]).
//!
//! Invariants:
//! 1. A collection changes nothing that any version sees, so it needs no record in the log. What a
//!    crash undoes of it is done again.
//! 2. The version table states that a collection is not finished until it is.
//!
//! The walk looks for entries that were hidden by something written after the deleted version was
//! made, and for entries that were themselves written after that. So it passes over all parts of
//! the map in which nothing was written since. What hides an item is among the entries of that item
//! or, if its whole list was deleted, among those of the list.

use std::ops::ControlFlow;

use dendro_base::sync::atomic::Ordering;
use dendro_disk::{Error, Lid, Result};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Key, Space};
use smallvec::SmallVec;

use crate::checkpoint::unless_put_off;
use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::space::no_space::Need;
use crate::state::visibility::ItemKey;

/// The minimum number of entries that a step visits; an item is always judged as a whole.
const STEP_LEN: usize = 256;
/// The maximum bytes of the nodes that a step changes.
const STEP_LOG_BYTES: u64 = 256 << 10;

/// The first key behind the lists of clients: what follows has no versions.
const COLLECTION_END: Key = Key::first(Lid::CLIENT_END.0, Space::List, 0);

/// The progress of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    /// The first key that was not visited.
    next: Key,
    /// The walk looks for what was replaced after this epoch.
    since: u64,
    /// A list of which every entry is visited.
    whole_list: Option<u64>,
    /// The count of deletions when the walk began. If it is higher when the walk ends, the map must
    /// be walked again.
    deletions: u64,
}

/// One step of a walk.
struct Step {
    /// The ranges to be judged, each from its first key to before its second.
    ranges: SmallVec<[(Key, Key); 2]>,
    /// The progress of the walk when the step is done.
    next: Collection,
    has_unseen: bool,
}

impl LogDisk {
    /// Does one step of the walk, if a collection is due; returns whether it did.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk does not accept writes.
    pub fn collection_step(&self) -> Result<bool> {
        let mut collection = self.collection.lock();
        let anew = {
            let engine = self.volume.read();
            let versions = &engine.state.versions;
            match versions.collect_since() {
                Some(since) if self.volume.check_writable(&engine).is_ok() => {
                    let deletions = versions.deletions();
                    Collection { next: Key::MIN, since, whole_list: None, deletions }
                }
                _ => return Ok(false),
            }
        };
        let at = collection.unwrap_or(anew);
        let found = self.volume.look(|engine, nodes| engine.step_of(&at, nodes));
        let step = match found {
            Ok(found) => found,
            // A map that cannot be read is tried again later. The read has noted the damage.
            Err(Error::Io(_) | Error::Corrupted(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(step) = step else {
            *collection = None;
            return unless_put_off(self.end_collection(&at));
        };
        if step.has_unseen && !unless_put_off(self.prune_ranges(&step.ranges))? {
            return Ok(false);
        }
        *collection = Some(step.next);
        Ok(true)
    }

    /// Removes what no version sees from some ranges of the map, which must contain few entries.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or what reading the map returns: it cannot be done now.
    pub(crate) fn prune_ranges(&self, ranges: &[(Key, Key)]) -> Result<()> {
        // A checkpoint writes the nodes that this changes, and there must be memory for them until
        // then.
        if self.volume.is_over_dirty_limit(&self.volume.read()) {
            self.relieve_memory()?;
        }
        // This call gives space back, so it may use the reserve for such units.
        self.with_room(Need::reclaiming(STEP_LOG_BYTES), |engine, nodes| {
            engine.transact(nodes, |engine| {
                let mut ranges = ranges.iter();
                ranges.try_for_each(|(from, to)| engine.state.prune(from, to, false, nodes))
            })
        })
    }

    /// Makes a collection due for what branches and their children have both replaced, if enough
    /// was written since the last one. Returns whether it did.
    pub(crate) fn collect_behind_forks(&self) -> bool {
        let mut engine = self.volume.write();
        let clock = engine.state.clock;
        let collected_at = self.forks_collected_at.load(Ordering::Relaxed);
        let is_worth_it = collected_at == 0
            || clock.saturating_sub(collected_at) >= self.volume.layout().segment_size_bytes();
        if !is_worth_it || !engine.state.versions.collect_behind_forks() {
            return false;
        }
        self.forks_collected_at.store(clock.max(1), Ordering::Relaxed);
        true
    }

    /// Notes that the collection is finished, unless a version was deleted during the walk
    /// (collection invariant 2).
    fn end_collection(&self, done: &Collection) -> Result<()> {
        self.volume.change(|engine, nodes| {
            self.volume.check_writable(engine)?;
            if engine.state.versions.deletions() != done.deletions {
                return Ok(());
            }
            let (index, record) = engine.state.versions.record_of_nothing_to_collect();
            engine.transact(nodes, |engine| {
                let record = record.as_deref();
                engine.state.put_system_record(VERSIONS_LIST, index, record, nodes)?;
                engine.state.versions.note_collected();
                Ok(())
            })
        })
    }
}

impl Engine {
    /// The next step of a walk; `None` when nothing is left.
    fn step_of(&self, at: &Collection, nodes: &dyn Nodes) -> Outcome<Option<Step>> {
        let mut from = at.next;
        if at.whole_list != Some(from.list) {
            let mut newer = None;
            self.state.map.visit_newer(
                &from,
                &COLLECTION_END,
                at.since,
                nodes,
                &mut |key, _| {
                    newer = Some(*key);
                    ControlFlow::Break(())
                },
            )?;
            let Some(newer) = newer else { return Ok(None) };
            from = Key::first(newer.list, newer.space, newer.index);
        }
        let Some(end) = self.end_of_step(&from, nodes)? else { return Ok(None) };
        let list = from.list;
        let goes_on = end.list == list;
        let is_whole = at.whole_list == Some(list)
            || (goes_on && self.state.is_list_newer(list, at.since, nodes)?);
        let (own, content) =
            (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        let mut ranges = SmallVec::new();
        if is_whole {
            // The list's own entries are pruned last. As long as they exist, the whole list is
            // visited, even by a walk that is repeated after a crash.
            ranges.push((from.max(content), end));
            if !goes_on {
                ranges.push((own, content));
            }
        } else {
            ranges.push((from, end));
        }
        let mut has_unseen = false;
        for (from, to) in &ranges {
            has_unseen |= self.state.has_unseen(from, to, nodes)?;
        }
        let whole_list = (is_whole && goes_on).then_some(list);
        Ok(Some(Step { ranges, next: Collection { next: end, whole_list, ..*at }, has_unseen }))
    }

    /// The end of a step that begins at `from`. A step ends with a list, or behind the last entry
    /// of an item; `None` when nothing is left.
    pub(crate) fn end_of_step(&self, from: &Key, nodes: &dyn Nodes) -> Outcome<Option<Key>> {
        let mut count = 0;
        let mut list = None;
        let mut item = None;
        let mut end = None;
        self.state.map.visit(from, &COLLECTION_END, nodes, &mut |key, _| {
            count += 1;
            let is_other =
                item.replace(ItemKey::of(key)).is_some_and(|item| item != ItemKey::of(key));
            if list.is_some_and(|list| list != key.list) || (count > STEP_LEN && is_other) {
                end = Some(Key::first(key.list, key.space, key.index));
                return ControlFlow::Break(());
            }
            list = Some(key.list);
            ControlFlow::Continue(())
        })?;
        Ok(end.or_else(|| list.map(|list| Key::first(list + 1, Space::List, 0))))
    }
}
