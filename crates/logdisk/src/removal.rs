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

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use dendro_disk::{Error, Result};
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::{Key, Space};

use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::{State, space_end};

/// Entries of a list that the deletion itself takes out at most.
pub(crate) const MAX_REMOVED_AT_ONCE: usize = 64;

/// With so many lists waiting, whoever deletes one more works on them first.
pub(crate) const MAX_WAITING: usize = 4096;

/// So many pieces are taken out before the disk is shut down: what was removed last is given back
/// then, and nobody waits for long.
const MAX_PIECES_AT_END: usize = 256;

/// Whoever asks how much space there is works on them for so long at most.
const ASKED_PATIENCE: Duration = Duration::from_millis(50);

/// The lists that are being removed, and how often each was deleted: by the heads of several branches,
/// one after the other.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    lists: BTreeMap<u64, u64>,
    /// While changes can be undone: the lists that were entered or taken out since, and how often each
    /// had been deleted.
    undo: Option<Vec<(u64, Option<u64>)>>,
}

impl Removals {
    /// Whether something may be left of a deleted list of this number.
    pub(crate) fn contains(&self, list: u64) -> bool {
        !self.lists.is_empty() && self.lists.contains_key(&list)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.lists.len()
    }

    /// The list of the lowest number from `list` on, or the first of all.
    fn next(&self, list: u64) -> Option<u64> {
        let next = self.lists.range(list..).next().or_else(|| self.lists.first_key_value());
        next.map(|(&list, _)| list)
    }

    /// All of them.
    pub(crate) fn lists(&self) -> Vec<u64> {
        self.lists.keys().copied().collect()
    }

    /// How often the list was deleted.
    fn times(&self, list: u64) -> u64 {
        self.lists.get(&list).copied().unwrap_or(0)
    }

    /// Enters a list that the map names, or that was deleted once more.
    pub(crate) fn enter(&mut self, list: u64) {
        self.note(list);
        *self.lists.entry(list).or_default() += 1;
    }

    /// Takes a list out of which nothing is left.
    fn leave(&mut self, list: u64) {
        self.note(list);
        self.lists.remove(&list);
    }

    fn note(&mut self, list: u64) {
        if let Some(undo) = &mut self.undo {
            undo.push((list, self.lists.get(&list).copied()));
        }
    }

    /// From here on changes can be undone.
    pub(crate) fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// What was changed since [`Self::begin`] stays.
    pub(crate) fn settle_changes(&mut self) {
        self.undo = None;
    }

    /// Undoes what was changed since [`Self::begin`].
    pub(crate) fn roll_back(&mut self) {
        for (list, times) in self.undo.take().into_iter().flatten().rev() {
            match times {
                Some(times) => self.lists.insert(list, times),
                None => self.lists.remove(&list),
            };
        }
    }
}

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

impl State {
    /// Deletes a list. What other versions have of it stays, hidden by the tombstone of the list.
    pub(crate) fn delete_list(&mut self, branch: u32, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        if self.has_no_past(branch, list) && self.take_small_list(list, nodes)? {
            return Ok(());
        }
        self.delete_list_entry(branch, list, nodes)?;
        if self.is_small_list(list, nodes)? {
            return self.prune_list(list, nodes);
        }
        self.removals.enter(list);
        self.put_system_record(REMOVALS_LIST, list, Some(&removal::encode()), nodes)
    }

    /// Whether the map holds so little of the list that it can be taken out at once.
    pub(crate) fn is_small_list(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        Ok(!self.has_more_entries(list, MAX_REMOVED_AT_ONCE, nodes)?)
    }

    /// Whether the map holds more than `max` entries of the list, of all versions together.
    pub(crate) fn has_more_entries(
        &self,
        list: u64,
        max: usize,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let mut count = 0;
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
        self.map.visit(&from, &to, nodes, &mut |_, _| {
            count += 1;
            if count > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(count > max)
    }

    /// Takes out all that is left of deleted lists.
    pub(crate) fn finish_removals(&mut self, nodes: &dyn Nodes) -> Outcome<()> {
        for list in self.removals.lists() {
            self.prune_list(list, nodes)?;
            self.end_removal(list, nodes)?;
        }
        Ok(())
    }

    /// Nothing is left of a deleted list.
    pub(crate) fn end_removal(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        self.put_system_record(REMOVALS_LIST, list, None, nodes)?;
        self.removals.leave(list);
        Ok(())
    }
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
