//! Freeing what only deleted versions saw.
//!
//! Deleting a version takes a record. What it alone saw is found afterwards, in the background, by a
//! walk over the map that takes out what is seen by no version any more ([`crate::reap`]). The walk
//! is not in the log: it changes nothing that anyone can see, and what a crash undoes of it is done
//! again, for the table of versions says that it is not finished.

use std::ops::ControlFlow;

use dendro_disk::{Error, Lid, Result};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Key, Space};

use crate::core::Core;
use crate::disk::LogDisk;
use crate::fault::Outcome;
use crate::line::Thing;
use crate::map::Nodes;
use crate::store::Held;

/// Entries that a step looks at, at least: a thing is judged as a whole.
const STEP_LEN: usize = 256;
/// What the nodes that a step changes may take.
const STEP_LOG_BYTES: u64 = 256 << 10;

/// How far a walk has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// The first key that was not looked at.
    next: Key,
    /// How often there had come to be something to sweep when it began. If that was more often
    /// since, it must be walked again.
    deletions: u64,
}

impl LogDisk {
    /// Does a piece of the walk, if one is due; says whether it did.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk takes no writes.
    pub fn sweep_step(&self) -> Result<bool> {
        let mut sweep = self.sweep.lock();
        let deletions = {
            let core = self.core.read();
            let versions = &core.state.versions;
            if versions.sweep_since().is_none() || self.check_writable(&core).is_err() {
                return Ok(false);
            }
            versions.deletions()
        };
        let at = sweep.unwrap_or(Sweep { next: Key::MIN, deletions });
        let found = self.look(|core, nodes| {
            let end = core.end_of_step(&at.next, nodes)?;
            let has_unseen = match &end {
                Some(end) => core.state.has_unseen(&at.next, end, nodes)?,
                None => false,
            };
            Ok((end, has_unseen))
        });
        let (end, has_unseen) = match found {
            Ok(found) => found,
            // A map that cannot be read here is tried again later; who reads it is told.
            Err(Error::Io(_) | Error::Corrupted(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(end) = end else {
            *sweep = None;
            self.end_sweep(&at)?;
            return Ok(true);
        };
        if has_unseen {
            // The nodes that it changes are written by a checkpoint, and there must be room for it.
            if self.core.read().state.map.dirty_bytes() > self.dirty_limit_bytes {
                self.relieve_memory()?;
            }
            let nodes = Held::loading(&self.store);
            // What gives space back lacks room at most, never space, for which this is called.
            let reaped = self.with_room(STEP_LOG_BYTES, true, |core| {
                core.state.reap(&at.next, &end, &nodes).map_err(|fault| self.latch(fault))?;
                core.state.account_for_nodes();
                Ok(())
            });
            match reaped {
                Err(Error::NoSpace { .. }) => return Ok(false),
                outcome => outcome?,
            }
        }
        *sweep = Some(Sweep { next: end, ..at });
        Ok(true)
    }

    /// Notes that nothing is left, unless a version was deleted while the walk was under way.
    fn end_sweep(&self, done: &Sweep) -> Result<()> {
        let nodes = Held::loading(&self.store);
        let mut core = self.core.write();
        self.check_writable(&core)?;
        let state = &mut core.state;
        if state.versions.deletions() != done.deletions {
            return Ok(());
        }
        let (index, record) = state.versions.has_been_swept();
        state
            .put_system_record(VERSIONS_LIST, index, record.as_deref(), &nodes)
            .map_err(|fault| self.latch(fault))?;
        state.account_for_nodes();
        Ok(())
    }
}

impl Core {
    /// Where a step that begins at `from` ends: all of one list, and behind the last entry of a
    /// thing; `None` when nothing is left.
    pub(crate) fn end_of_step(&self, from: &Key, nodes: &dyn Nodes) -> Outcome<Option<Key>> {
        let last = Key::first(Lid::CLIENT_END.0, Space::List, 0);
        let mut count = 0;
        let mut list = None;
        let mut thing = None;
        let mut end = None;
        self.state.map.visit(from, &last, nodes, &mut |key, _| {
            count += 1;
            let is_other =
                thing.replace(Thing::of(key)).is_some_and(|thing| thing != Thing::of(key));
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
