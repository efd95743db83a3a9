//! Removals: what the map still has of deleted lists is taken out step by step.
//!
//! Deleting a list changes a bounded number of entries: it removes or hides the entry of the list.
//! The content of a list of more than `MAX_REMOVED_AT_ONCE` entries is taken out afterwards in
//! bounded steps: in the background, by commits that lack space, and after the next mount. Like a
//! collection ([`crate::reclaim::collection`]), these steps need no records in the log, because
//! they change nothing that any version sees. What a crash undoes of them is done again, because
//! the removal list in the map ([`crate::state::removals`]) names the lists whose removal is not
//! finished.
//!
//! A list that cannot be read is passed over, and tried again after a while. A step that was made
//! always brings the end nearer: callers repeat steps until there are none.
//!
//! A list of the number of a deleted list may be made at once. If much is left of the deleted one,
//! the unit that makes the list begins an epoch, and the removal list names the epoch: whatever is
//! older belongs to the deleted list, and is removed as before.
//!
//! Invariants:
//! 1. Whatever the map has of a list that no version has belongs to a list named in the removal
//!    list, or is about to be collected.
//! 2. No list named there exists at the head that deleted it, unless it was made again. Then no
//!    version sees what was written of it before the epoch in which it was made last.

use std::collections::BTreeMap;
use std::time::Duration;

use dendro_base::Timestamp;
use dendro_base::sync::{Arc, Mutex};
use dendro_disk::{Error, Result};
use dendro_format::{Key, Space};

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::reclaim::prune::Pruner;
use crate::state::item::space_end;
use crate::state::removals::Removals;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The number of waiting lists above which a caller that deletes another one first takes some out.
pub(crate) const MAX_WAITING: usize = 4096;

/// The maximum number of steps before the disk is shut down. It returns the space of recent
/// removals, and it bounds the time that the shutdown takes.
const MAX_PIECES_AT_END: usize = 256;

/// The maximum time for which a query of free space takes out lists first.
const MAX_QUERY_TIME: Duration = Duration::from_millis(50);

/// How long a list that could not be read is passed over.
const PASSED_OVER_FOR: Duration = Duration::from_secs(60);

/// The progress of taking out the content of lists.
#[derive(Debug, Default)]
struct Progress {
    /// The place in the list that is being taken out; none between two lists.
    at: Option<Place>,
    /// The lists that could not be read, and how often each had been deleted or made again.
    unreadable: BTreeMap<u64, u64>,
    /// When one of them could not be read last.
    failed_at: Timestamp,
}

impl Progress {
    /// The list to go on with.
    fn next(&self, removals: &Removals) -> Option<u64> {
        let from = self.at.map_or(0, |at| at.key.list);
        removals.next(from, |list| self.unreadable.get(&list) == Some(&removals.times(list)))
    }

    /// Notes that the list in which the place lies cannot be read.
    fn pass_over(&mut self, now: Timestamp) {
        if let Some(at) = self.at.take() {
            self.unreadable.insert(at.key.list, at.times);
            self.failed_at = now;
        }
    }
}

/// A place in a list that is being removed.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The first key that was not visited.
    key: Key,
    /// How often the list had been deleted or made again when the walk over it began. Doing so once
    /// more may leave entries behind the place, which must then be visited again.
    times: u64,
}

/// A part of a list that is judged at once.
struct Piece {
    from: Key,
    to: Key,
    /// Whether it is the last part of the list.
    is_last: bool,
}

impl Engine {
    /// The next piece of a list, from `from` on, and whether it contains something that no version
    /// sees.
    fn piece_of(&self, list: u64, from: &Key, nodes: &dyn Nodes) -> Outcome<(Piece, bool)> {
        let end = space_end(list, Space::Chunks);
        let to = match self.end_of_step(from, nodes)? {
            Some(to) if to.list == list => to,
            _ => end,
        };
        let has_unseen = self.state().has_unseen(from, &to, nodes)?;
        Ok((Piece { from: *from, to, is_last: to == end }, has_unseen))
    }
}

/// Takes out what is left of deleted lists.
pub(crate) struct Remover {
    volume: Arc<Volume>,
    pruner: Arc<Pruner>,
    progress: Mutex<Progress>,
}

impl Remover {
    pub(crate) fn new(volume: Arc<Volume>, pruner: Arc<Pruner>) -> Self {
        Self { volume, pruner, progress: Mutex::default() }
    }

    /// See [`LogDisk::removal_step`](crate::LogDisk::removal_step).
    pub(crate) fn step(&self) -> Result<bool> {
        let mut progress = self.progress.lock();
        if !progress.unreadable.is_empty() {
            let now = self.volume.now();
            if now.since(progress.failed_at) >= PASSED_OVER_FOR {
                progress.unreadable.clear();
            }
        }
        match self.remove_piece(&mut progress) {
            Err(Error::NoSpace { .. }) => Ok(false),
            // The read has noted the damage.
            Err(Error::Io(_) | Error::Corrupted(_)) => {
                progress.pass_over(self.volume.now());
                Ok(true)
            }
            outcome => outcome,
        }
    }

    /// Takes out what is left of deleted lists of this number, and before that of some others.
    /// Returns whether nothing is left.
    pub(crate) fn finish(&self, list: u64) -> Result<bool> {
        while self.volume.read().state().removals().contains(list) {
            if !self.step()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes out what is left of deleted lists if that is little. The rest is taken out after the
    /// next start.
    pub(crate) fn finish_small(&self) {
        for _ in 0..MAX_PIECES_AT_END {
            if !matches!(self.step(), Ok(true)) {
                break;
            }
        }
    }

    /// Takes out what is left of deleted lists, for a short time. A client that queries the free
    /// space has often just removed something, and expects to see the difference.
    pub(crate) fn remove_for_a_while(&self) {
        let began = self.volume.now();
        while !self.volume.read().state().removals().is_empty()
            && self.volume.now().since(began) < MAX_QUERY_TIME
            && matches!(self.step(), Ok(true))
        {}
    }

    /// Takes out a piece of the next list. `progress` names the place of the piece until it has
    /// been taken out, and none when nothing is left of the list.
    fn remove_piece(&self, progress: &mut Progress) -> Result<bool> {
        let at = {
            let engine = self.volume.read();
            let removals = engine.state().removals();
            let Some(list) =
                progress.next(removals).filter(|_| self.volume.check_writable(&engine).is_ok())
            else {
                return Ok(false);
            };
            let times = removals.times(list);
            // The list's own entries are pruned last, because they determine what of its content is
            // seen.
            let start = Place { key: Key::first(list, Space::Records, 0), times };
            progress.at.filter(|at| at.key.list == list && at.times == times).unwrap_or(start)
        };
        progress.at = Some(at);
        let list = at.key.list;
        let (piece, has_unseen) =
            self.volume.look(|engine, nodes| engine.piece_of(list, &at.key, nodes))?;
        if has_unseen {
            self.pruner.prune((piece.from, piece.to), None)?;
        }
        if piece.is_last {
            self.end_removal(list, at.times)?;
            progress.at = None;
        } else {
            progress.at = Some(Place { key: piece.to, ..at });
        }
        Ok(true)
    }

    /// Ends the removal of a list that was visited completely. If the list was deleted or made
    /// again more often than `times` since, the removal begins again instead.
    fn end_removal(&self, list: u64, times: u64) -> Result<()> {
        let own = (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        self.volume.change(LockHolder::Removal, |engine, nodes| {
            if engine.state().removals().times(list) != times {
                return Ok(());
            }
            engine.transact(nodes, |engine| {
                // A version that was deleted meanwhile may have seen what this walk has passed. The
                // collection finds that through the list's own entries, so they stay if a
                // collection is due.
                if engine.state().versions().collect_since().is_none() {
                    engine.state_mut().prune(&own.0, &own.1, false, nodes)?;
                }
                engine.state_mut().end_removal(list, nodes)
            })
        })
    }
}
