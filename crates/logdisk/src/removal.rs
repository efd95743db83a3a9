//! Deleted lists of which the map still holds something, taken out piece by piece.
//!
//! Deleting a list is a change of a bounded number of entries: it takes away, or hides, the entry
//! that says that the list exists. What a list of more than [`MAX_REMOVED_AT_ONCE`] entries holds is
//! taken out afterwards in bounded steps, in the background, by commits that lack space, and by the
//! next mount. Like collecting ([`crate::snapshots::collection`]) these steps are not in the log: they change nothing
//! that anyone can see, and what a crash undoes of them is done again, because the map names the
//! lists that are not done with ([`REMOVALS_LIST`]).
//!
//! Invariants:
//! 1. Whatever the map holds of a list that no version has is of a list named here, or is about to be
//!    swept.
//! 2. No list named here exists at the head that deleted it, and none of that number is made before
//!    it is done with.

use std::time::Duration;

use dendro_disk::{Error, Result};
use dendro_format::{Key, Space};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::space_end;

/// With so many lists waiting, whoever deletes one more works on them first.
pub(crate) const MAX_WAITING: usize = 4096;

/// So many pieces are taken out before the disk is shut down: what was removed last is given back
/// then, and nobody waits for long.
const MAX_PIECES_AT_END: usize = 256;

/// Whoever asks how much space there is works on them for so long at most.
const ASKED_PATIENCE: Duration = Duration::from_millis(50);

/// How far taking out what a list holds has come.
pub(crate) type Progress = Option<Place>;

/// A place in a list that is being removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The first key that was not looked at.
    key: Key,
    /// How often the list had been deleted when the walk over it began. What another deletion has left
    /// behind the place must be looked at again.
    times: u64,
}

impl Place {
    /// Behind all of a list.
    const fn behind(list: u64) -> Self {
        Self { key: Key::first(list + 1, Space::Records, 0), times: 0 }
    }
}

/// A piece of a list to be judged.
struct Piece {
    from: Key,
    to: Key,
    /// Nothing of the list comes behind.
    is_last: bool,
}

impl Engine {
    /// The next piece of a list, from `from` on, and whether there is something in it that nobody sees.
    fn piece_of(&self, list: u64, from: &Key, nodes: &dyn Nodes) -> Outcome<(Piece, bool)> {
        let end = space_end(list, Space::Chunks);
        let to = match self.end_of_step(from, nodes)? {
            Some(to) if to.list == list => to,
            _ => end,
        };
        let has_unseen = self.state.has_unseen(from, &to, nodes)?;
        Ok((Piece { from: *from, to, is_last: to == end }, has_unseen))
    }
}

impl LogDisk {
    /// Takes out a piece of what is left of deleted lists; says whether there was any.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk takes no writes.
    pub fn removal_step(&self) -> Result<bool> {
        let mut progress = self.removal.lock();
        let removed = self.remove_piece(&mut progress, None);
        if let (Err(Error::Io(_) | Error::Corrupted(_)), Some(at)) = (&removed, *progress) {
            // What cannot be read is tried again after the others; who reads it is told.
            *progress = Some(Place::behind(at.key.list));
        }
        match removed {
            Err(Error::NoSpace { .. } | Error::Io(_) | Error::Corrupted(_)) => Ok(false),
            outcome => outcome,
        }
    }

    /// Takes out what is left of deleted lists if that is little. What cannot be taken out now is after
    /// the next start.
    pub(crate) fn finish_small_removals(&self) {
        for _ in 0..MAX_PIECES_AT_END {
            if !matches!(self.removal_step(), Ok(true)) {
                break;
            }
        }
    }

    /// Takes out what is left of deleted lists, but not for long: who asks how much space there is
    /// has mostly just removed something, and wants to see it.
    pub(crate) fn remove_for_a_while(&self) {
        let began = self.now();
        while !self.engine.read().state.removals.is_empty()
            && self.now().since(began) < ASKED_PATIENCE
            && matches!(self.removal_step(), Ok(true))
        {}
    }

    /// Takes out all that deletions have left of a list, or deleted versions alone, so that one of its
    /// number can be made.
    ///
    /// # Errors
    /// Why it could not be done: [`Error::NoSpace`], or what reading the map answers.
    pub(crate) fn finish_removal(&self, list: u64) -> Result<()> {
        let mut progress = self.removal.lock();
        *progress = None;
        loop {
            self.check_writable(&self.engine.read())?;
            self.remove_piece(&mut progress, Some(list))?;
            if progress.is_none() && !self.engine.read().state.removals.contains(list) {
                return Ok(());
            }
        }
    }

    /// Takes out a piece of `list` or, without one, of what is next. The place is that of the piece until
    /// it was taken out, and none when nothing is left of the list.
    fn remove_piece(&self, progress: &mut Progress, list: Option<u64>) -> Result<bool> {
        let at = {
            let engine = self.engine.read();
            let removals = &engine.state.removals;
            let next = removals.next(progress.map_or(0, |at| at.key.list));
            let Some(list) = list.or(next).filter(|_| self.check_writable(&engine).is_ok()) else {
                return Ok(false);
            };
            let times = removals.times(list);
            // A list's own entries go last: they say what of it is seen.
            let start = Place { key: Key::first(list, Space::Records, 0), times };
            progress.filter(|at| at.key.list == list && at.times == times).unwrap_or(start)
        };
        *progress = Some(at);
        let list = at.key.list;
        let (piece, has_unseen) =
            self.look(|engine, nodes| engine.piece_of(list, &at.key, nodes))?;
        if has_unseen {
            self.prune_ranges(&[(piece.from, piece.to)])?;
        }
        if piece.is_last {
            self.end_removal(list, at.times)?;
            *progress = None;
        } else {
            *progress = Some(Place { key: piece.to, ..at });
        }
        Ok(true)
    }

    /// Ends the removal of a list that all of was looked at, unless it has been deleted more often than
    /// `times` since: then it goes on from the start.
    fn end_removal(&self, list: u64, times: u64) -> Result<()> {
        let own = (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        self.change(|engine, nodes| {
            self.check_writable(engine)?;
            if engine.state.removals.times(list) != times {
                return Ok(());
            }
            engine.transact(nodes, |engine| {
                // A version that was deleted meanwhile may have seen what this walk has passed: by the
                // list's own entries the collection finds that.
                if engine.state.versions.collect_since().is_none() {
                    engine.state.prune(&own.0, &own.1, false, nodes)?;
                }
                engine.state.end_removal(list, nodes)
            })
        })
    }
}
