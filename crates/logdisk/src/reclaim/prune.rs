//! Taking out of the map what no version sees, a few entries at a time ([`crate::state::prune`]).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::sync::Arc;
use dendro_disk::{Lid, Result};
use dendro_format::{Key, Space};

use crate::checkpoint::Checkpointer;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::reclaim::make_room::{RoomMaker, SeenPruning};
use crate::state::item::ItemKey;
use crate::volume::Volume;

/// The minimum number of entries that a step visits; an item is always judged as a whole. Where the
/// entries are full chunks, taking them out is half a millisecond of work, for which others wait.
const STEP_LEN: usize = 128;
/// The maximum bytes of the nodes that a step changes.
const STEP_LOG_BYTES: u64 = 256 << 10;

/// The first key behind the lists of clients: what follows has no versions.
pub(super) const CLIENTS_END: Key = Key::first(Lid::CLIENT_END.0, Space::List, 0);

/// The entries which say that a list exists or was deleted. A walk prunes them after the content of
/// the list, which is found through them.
#[derive(Clone, Copy)]
pub(super) struct OwnEntries {
    pub(super) range: (Key, Key),
    /// The count of deletions when the walk began. If a version was deleted since, the content that
    /// the walk has passed may not be pruned yet. Then the entries stay for the next walk.
    pub(super) deletions: u64,
}

/// Prunes ranges of the map.
pub(crate) struct Pruner {
    volume: Arc<Volume>,
    checkpointer: Arc<Checkpointer>,
    room_maker: Arc<RoomMaker>,
    /// How often something was pruned.
    pruned_count: AtomicU64,
}

impl Pruner {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        checkpointer: Arc<Checkpointer>,
        room_maker: Arc<RoomMaker>,
    ) -> Self {
        Self { volume, checkpointer, room_maker, pruned_count: AtomicU64::new(0) }
    }

    /// Removes what no version sees from a range of the map, which must contain few entries, and
    /// then from a list's own entries.
    ///
    /// # Errors
    /// [`Error::NoSpace`](dendro_disk::Error::NoSpace), or what reading the map returns: it cannot
    /// be done now.
    pub(super) fn prune(&self, (from, to): (Key, Key), own: Option<OwnEntries>) -> Result<()> {
        // A checkpoint writes the nodes that this changes, and there must be memory for them until
        // then.
        if self.volume.is_over_dirty_limit(&self.volume.read()) {
            self.checkpointer.relieve_memory()?;
        }
        self.room_maker.with_room_to_reclaim(STEP_LOG_BYTES, |engine, nodes| {
            engine.transact(nodes, |engine| {
                engine.state_mut().prune(&from, &to, false, nodes)?;
                let deletions = engine.state().versions().deletions();
                own.filter(|own| own.deletions == deletions).map_or(Ok(()), |own| {
                    engine.state_mut().prune(&own.range.0, &own.range.1, false, nodes)
                })
            })
        })?;
        self.pruned_count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether something was pruned since the caller asked last.
    pub(super) fn has_pruned_since(&self, seen: &mut SeenPruning) -> bool {
        seen.update(self.pruned_count.load(Ordering::Acquire))
    }
}

impl Engine {
    /// The end of a step that begins at `from`. A step ends with a list, or behind the last entry
    /// of an item; `None` when nothing is left.
    pub(crate) fn end_of_step(&self, from: &Key, nodes: &dyn Nodes) -> Outcome<Option<Key>> {
        let mut count = 0;
        let mut list = None;
        let mut item = None;
        let mut end = None;
        self.state().map().visit(from, &CLIENTS_END, nodes, &mut |key, _| {
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
