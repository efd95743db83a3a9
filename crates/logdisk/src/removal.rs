//! Deleted lists of which the map still holds something, taken out piece by piece.
//!
//! Deleting a list is a change of a bounded number of entries: it takes away, or hides, the entry
//! that says that the list exists. What a list of more than [`MAX_REMOVED_AT_ONCE`] entries holds is
//! taken out afterwards in bounded steps, in the background, by commits that lack space, and by the
//! next mount. Like sweeping ([`crate::sweep`]) these steps are not in the log: they change nothing
//! that anyone can see, and what a crash undoes of them is done again, because the map names the
//! lists that are not done with ([`REMOVALS_LIST`]).
//!
//! Invariants:
//! 1. Whatever the map holds of a list that no version has is of a list named here, or is about to be
//!    swept.
//! 2. No list named here exists at the head that deleted it, and none of that number is made before
//!    it is done with.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dendro_disk::{Error, Result};
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::{Key, Space};

use crate::checkpoint::unless_put_off;
use crate::core::Core;
use crate::disk::LogDisk;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::{State, space_end, system_key};

/// Entries of a list that the deletion itself takes out at most.
pub(crate) const MAX_REMOVED_AT_ONCE: usize = 64;

/// With so many lists waiting, whoever deletes one more works on them first.
pub(crate) const MAX_WAITING: usize = 4096;

/// So many pieces are taken out before the disk is shut down: what was removed last is given back
/// then, and nobody waits for long.
const MAX_PIECES_AT_END: usize = 256;

/// The lists that are being removed.
#[derive(Debug, Default)]
pub(crate) struct Removals(BTreeSet<u64>);

impl Removals {
    /// Whether something may be left of a deleted list of this number.
    pub(crate) fn contains(&self, list: u64) -> bool {
        !self.0.is_empty() && self.0.contains(&list)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The list of the lowest number from `list` on, or the first of all.
    fn next(&self, list: u64) -> Option<u64> {
        self.0.range(list..).next().or_else(|| self.0.first()).copied()
    }

    /// Enters a list that the map names.
    pub(crate) fn enter(&mut self, list: u64) {
        self.0.insert(list);
    }
}

/// How far taking out what a list holds has come: the first key that was not looked at.
pub(crate) type Progress = Option<Key>;

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
            return self.reap_list(list, nodes);
        }
        self.removals.enter(list);
        self.put_system_record(REMOVALS_LIST, list, Some(&removal::encode()), nodes)
    }

    /// Whether the map holds so little of the list that it can be taken out at once.
    pub(crate) fn is_small_list(&self, list: u64, nodes: &dyn Nodes) -> Outcome<bool> {
        let mut count = 0;
        let (from, to) = (Key::first(list, Space::List, 0), space_end(list, Space::Chunks));
        self.map.visit(&from, &to, nodes, &mut |_, _| {
            count += 1;
            if count > MAX_REMOVED_AT_ONCE {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(count <= MAX_REMOVED_AT_ONCE)
    }

    /// Nothing is left of a deleted list.
    pub(crate) fn end_removal(&mut self, list: u64, nodes: &dyn Nodes) -> Outcome<()> {
        self.put_system_record(REMOVALS_LIST, list, None, nodes)?;
        self.removals.0.remove(&list);
        Ok(())
    }
}

impl Core {
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
        self.remove_piece(&mut progress, None)
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

    /// Takes out all that is left of a deleted list, so that one of its number can be made.
    ///
    /// # Errors
    /// Why it could not be done: [`Error::NoSpace`], or what reading the map answers.
    pub(crate) fn finish_removal(&self, list: u64) -> Result<()> {
        let mut progress = self.removal.lock();
        while self.core.read().state.removals.contains(list) {
            if !self.remove_piece(&mut progress, Some(list))? {
                return Err(Error::Io(format!("what is left of list {list} cannot be read")));
            }
        }
        Ok(())
    }

    /// Takes out a piece of `list` or, without one, of what is next.
    fn remove_piece(&self, progress: &mut Progress, list: Option<u64>) -> Result<bool> {
        let at = {
            let core = self.core.read();
            if core.state.removals.is_empty() || self.check_writable(&core).is_err() {
                return Ok(false);
            }
            let begun = progress.filter(|at| core.state.removals.contains(at.list));
            let list = list.or_else(|| core.state.removals.next(begun?.list));
            let Some(list) = list.or_else(|| core.state.removals.next(0)) else { return Ok(false) };
            // A list's own entries go last: they say what of it is seen.
            begun.filter(|at| at.list == list).unwrap_or(Key::first(list, Space::Records, 0))
        };
        let (piece, has_unseen) = match self.look(|core, nodes| core.piece_of(at.list, &at, nodes))
        {
            Ok(found) => found,
            // What cannot be read here is tried again after the others; who reads it is told.
            Err(Error::Io(_) | Error::Corrupted(_)) => {
                *progress = Some(Key::first(at.list + 1, Space::Records, 0));
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if has_unseen && !self.reap_ranges(&[(piece.from, piece.to)])? {
            return Ok(false);
        }
        if !piece.is_last {
            *progress = Some(piece.to);
            return Ok(true);
        }
        let is_done = unless_put_off(self.end_removal(at.list))?;
        *progress = (!is_done).then_some(Key::first(at.list + 1, Space::Records, 0));
        Ok(is_done)
    }

    fn end_removal(&self, list: u64) -> Result<()> {
        let own = (Key::first(list, Space::List, 0), Key::first(list, Space::Records, 0));
        let ((), mut core, nodes) = self.look_to_change(|core, nodes| {
            core.state.has_unseen(&own.0, &own.1, nodes)?;
            core.state.map.look(&system_key(REMOVALS_LIST, list), nodes, |_| ())
        })?;
        self.check_writable(&core)?;
        let state = &mut core.state;
        // A version that was deleted meanwhile may have seen what this walk has passed: by the list's own
        // entries the sweep finds that.
        let reaped = match state.versions.sweep_since() {
            None => state.reap(&own.0, &own.1, false, &nodes),
            Some(_) => Ok(()),
        };
        reaped.and_then(|()| state.end_removal(list, &nodes)).map_err(|fault| self.latch(fault))?;
        state.account_for_nodes();
        Ok(())
    }
}
