//! Freeing what only deleted versions saw.
//!
//! Deleting a version takes a record. What it alone saw is found afterwards, in the background, by a
//! walk over the map that takes out what is seen by no version any more ([`crate::state::prune`]). The walk
//! is not in the log: it changes nothing that anyone can see, and what a crash undoes of it is done
//! again, for the table of versions says that it is not finished.
//!
//! What is to be found was hidden by something written after the deleted version was made, or was
//! itself. So the walk passes over all parts of the map in which nothing was: what hides an item lies
//! among the entries of that item or, where its whole list was deleted, among those of the list.

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
use crate::space::Need;
use crate::state::visibility::ItemKey;

/// Entries that a step looks at, at least: an item is judged as a whole.
const STEP_LEN: usize = 256;
/// What the nodes that a step changes may take.
const STEP_LOG_BYTES: u64 = 256 << 10;

/// What lies from here on has no versions.
const SWEEP_END: Key = Key::first(Lid::CLIENT_END.0, Space::List, 0);

/// How far a walk has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    /// The first key that was not looked at.
    next: Key,
    /// The walk is for what was hidden after this epoch.
    since: u64,
    /// A list of which everything is looked at.
    whole_list: Option<u64>,
    /// How often there had come to be something to collect when it began. If that was more often
    /// since, it must be walked again.
    deletions: u64,
}

/// A piece of a walk.
struct Step {
    /// What is to be judged, from each first key to before the second.
    ranges: SmallVec<[(Key, Key); 2]>,
    /// How far the walk has come when it is done.
    next: Collection,
    has_unseen: bool,
}

impl LogDisk {
    /// Does a piece of the walk, if one is due; says whether it did.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk takes no writes.
    pub fn collection_step(&self) -> Result<bool> {
        let mut collection = self.collection.lock();
        let anew = {
            let engine = self.engine.read();
            let versions = &engine.state.versions;
            match versions.collect_since() {
                Some(since) if self.check_writable(&engine).is_ok() => {
                    let deletions = versions.deletions();
                    Collection { next: Key::MIN, since, whole_list: None, deletions }
                }
                _ => return Ok(false),
            }
        };
        let at = collection.unwrap_or(anew);
        let found = self.look(|engine, nodes| engine.step_of(&at, nodes));
        let step = match found {
            Ok(found) => found,
            // A map that cannot be read here is tried again later; who reads it is told.
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

    /// Takes out what no version sees of some ranges of the map, which are to hold few entries.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or what reading the map answers: it cannot be done now.
    pub(crate) fn prune_ranges(&self, ranges: &[(Key, Key)]) -> Result<()> {
        // The nodes that it changes are written by a checkpoint, and there must be room for it.
        if self.engine.read().state.map.dirty_bytes() > self.dirty_limit_bytes {
            self.relieve_memory()?;
        }
        // What gives space back lacks room at most, never space, for which this is called.
        self.with_room(Need::reclaiming(STEP_LOG_BYTES), |engine, nodes| {
            engine.transact(nodes, |engine| {
                let mut ranges = ranges.iter();
                ranges.try_for_each(|(from, to)| engine.state.prune(from, to, false, nodes))
            })
        })
    }

    /// Lets a walk begin for what branches and those made from them have both replaced, if enough was
    /// written since the last; says whether it did.
    pub(crate) fn collect_behind_forks(&self) -> bool {
        let mut engine = self.engine.write();
        let clock = engine.state.clock;
        let swept_at = self.forks_collected_at.load(Ordering::Relaxed);
        let is_worth_it =
            swept_at == 0 || clock.saturating_sub(swept_at) >= self.layout.segment_size_bytes();
        if !is_worth_it || !engine.state.versions.collect_behind_forks() {
            return false;
        }
        self.forks_collected_at.store(clock.max(1), Ordering::Relaxed);
        true
    }

    /// Notes that nothing is left, unless a version was deleted while the walk was under way.
    fn end_collection(&self, done: &Collection) -> Result<()> {
        self.change(|engine, nodes| {
            self.check_writable(engine)?;
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
    /// The next piece of a walk; `None` when nothing is left.
    fn step_of(&self, at: &Collection, nodes: &dyn Nodes) -> Outcome<Option<Step>> {
        let mut from = at.next;
        if at.whole_list != Some(from.list) {
            let mut newer = None;
            self.state.map.visit_newer(&from, &SWEEP_END, at.since, nodes, &mut |key, _| {
                newer = Some(*key);
                ControlFlow::Break(())
            })?;
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
            // The list's own entries go last: as long as they are there, all of it is looked at,
            // also by a walk that a crash made necessary.
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

    /// Where a step that begins at `from` ends: all of one list, and behind the last entry of a
    /// item; `None` when nothing is left.
    pub(crate) fn end_of_step(&self, from: &Key, nodes: &dyn Nodes) -> Outcome<Option<Key>> {
        let mut count = 0;
        let mut list = None;
        let mut item = None;
        let mut end = None;
        self.state.map.visit(from, &SWEEP_END, nodes, &mut |key, _| {
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
