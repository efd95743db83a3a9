//! The collection: frees what only deleted versions saw.
//!
//! Deleting a version takes one record. What only that version saw is found afterwards in the
//! background, by a walk over the map that prunes every item it concerns ([`crate::state::prune`]).
//!
//! Invariants:
//! 1. A collection changes nothing that any version sees, so it needs no record in the log. What a
//!    crash undoes of it is done again.
//! 2. The version table states that a collection is not finished until it is.
//! 3. A list's own entries are pruned only if no version was deleted since the walk began. What the
//!    walk has passed of the list for such a version would be found by no later walk.
//!
//! The walk looks for entries that were hidden by something written after the deleted version was
//! made, and for entries that were themselves written after that. So it passes over all parts of
//! the map in which nothing was written since. What hides an item is among the entries of that item
//! or, if its whole list was deleted, among those of the list.

use std::ops::ControlFlow;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::sync::{Arc, Mutex};
use dendro_disk::{Error, Result};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Key, Space};

use crate::checkpoint::unless_put_off;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::reclaim::prune::{CLIENTS_END, OwnEntries, Pruner};
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The progress of a walk.
#[derive(Clone, Copy, Debug)]
struct Collection {
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
    /// What is to be judged, from its first key to before its second.
    range: (Key, Key),
    /// What is to be judged afterwards.
    own: Option<OwnEntries>,
    /// The progress of the walk when the step is done.
    next: Collection,
    has_unseen: bool,
}

/// Runs the collection.
pub(crate) struct Collector {
    volume: Arc<Volume>,
    pruner: Arc<Pruner>,
    collection: Mutex<Option<Collection>>,
    /// The log clock when a collection of what branches have replaced was last begun; 0 before the
    /// first.
    forks_collected_at: AtomicU64,
}

impl Collector {
    pub(crate) const fn new(volume: Arc<Volume>, pruner: Arc<Pruner>) -> Self {
        Self { volume, pruner, collection: Mutex::new(None), forks_collected_at: AtomicU64::new(0) }
    }

    /// See [`LogDisk::collection_step`](crate::LogDisk::collection_step).
    pub(crate) fn step(&self) -> Result<bool> {
        let mut collection = self.collection.lock();
        let anew = {
            let engine = self.volume.read();
            let versions = engine.state().versions();
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
        if step.has_unseen && !unless_put_off(self.pruner.prune(step.range, step.own))? {
            return Ok(false);
        }
        *collection = Some(step.next);
        Ok(true)
    }

    /// Makes a collection due for what branches and their children have both replaced, if enough
    /// was written since the last one. Returns whether it did.
    pub(crate) fn collect_behind_forks(&self) -> bool {
        let mut engine = self.volume.write();
        let clock = engine.state().clock();
        let collected_at = self.forks_collected_at.load(Ordering::Relaxed);
        let is_worth_it = collected_at == 0
            || clock.saturating_sub(collected_at) >= self.volume.layout().segment_size_bytes();
        if !is_worth_it || !engine.state_mut().collect_behind_forks() {
            return false;
        }
        self.forks_collected_at.store(clock.max(1), Ordering::Relaxed);
        true
    }

    /// Notes that the collection is finished, unless a version was deleted during the walk
    /// (collection invariant 2).
    fn end_collection(&self, done: &Collection) -> Result<()> {
        self.volume.change(LockHolder::Removal, |engine, nodes| {
            if engine.state().versions().deletions() != done.deletions {
                return Ok(());
            }
            let (index, record) = engine.state().versions().record_of_nothing_to_collect();
            engine.transact(nodes, |engine| {
                let record = record.as_deref();
                engine.state_mut().put_system_record(VERSIONS_LIST, index, record, nodes)?;
                engine.state_mut().note_collected();
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
            self.state().map().visit_newer(
                &from,
                &CLIENTS_END,
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
            || (goes_on && self.state().is_list_newer(list, at.since, nodes)?);
        let (own, content) =
            (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        // The list's own entries are pruned last. As long as they exist, the whole list is visited,
        // even by a walk that is repeated.
        let range = if is_whole { (from.max(content), end) } else { (from, end) };
        let own = (is_whole && !goes_on)
            .then_some(OwnEntries { range: (own, content), deletions: at.deletions });
        let has_unseen = self.state().has_unseen(&range.0, &range.1, nodes)?
            || match own {
                Some(own) => self.state().has_unseen(&own.range.0, &own.range.1, nodes)?,
                None => false,
            };
        let whole_list = (is_whole && goes_on).then_some(list);
        let next = Collection { next: end, whole_list, ..*at };
        Ok(Some(Step { range, own, next, has_unseen }))
    }
}
