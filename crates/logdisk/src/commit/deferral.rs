//! What a unit puts off because it is too much to be done at once.
//!
//! A unit may punch, move and exchange any number of pages. What changes too many groups is not
//! done when the unit commits. The unit says what is to be done, as tasks of a rearrangement, and
//! [`crate::rearranger`] does it afterwards.

use dendro_disk::{Error, MAX_TASKS_PUT_OFF, Op};
use dendro_format::rearrangement::{MAX_TASKS, Task};
use smallvec::SmallVec;

use crate::fault::Outcome;
use crate::map::Nodes;
use crate::state::State;
use crate::state::pages::ChunkBudget;
use crate::versions::rearrangement::{Rearrangement, names, tasks_of};

const _: () = assert!(MAX_TASKS == MAX_TASKS_PUT_OFF, "what is put off fits into its record");

/// The operations of a unit that are put off.
#[derive(Debug)]
pub(super) struct Deferral {
    /// What changes more groups is put off.
    max_groups: u64,
    tasks: Vec<Task>,
    /// Their places in the unit.
    places: SmallVec<[usize; 2]>,
}

impl Deferral {
    /// A unit that puts off what changes more than `max_groups`.
    pub(super) fn above(max_groups: u64) -> Self {
        Self { max_groups, tasks: Vec::new(), places: SmallVec::new() }
    }

    /// Whether the operation at this place in the unit is put off.
    pub(super) fn has(&self, place: usize) -> bool {
        self.places.contains(&place)
    }

    /// What is put off, if anything is.
    pub(super) fn rearrangement(&self, branch: u32) -> Option<Rearrangement> {
        (!self.tasks.is_empty()).then(|| Rearrangement { branch, tasks: self.tasks.clone() })
    }

    /// Puts off `op`, which is at `place` in the unit, if it changes more groups of the head of
    /// `branch` than `budget` has left, or comes behind something that was put off for one of its
    /// lists. Returns whether it was put off.
    ///
    /// # Errors
    /// [`Error::UnitTooLong`] when it cannot be.
    pub(super) fn put_off(
        &mut self,
        (place, op): (usize, &Op<'_>),
        (state, branch): (&State, u32),
        budget: &ChunkBudget,
        nodes: &dyn Nodes,
    ) -> Outcome<bool> {
        let (a, b) = op.lists();
        let must_follow = names(&self.tasks, a.0) || names(&self.tasks, b.0);
        if !can_be_put_off(op) {
            return if must_follow { Err(Error::UnitTooLong.into()) } else { Ok(false) };
        }
        let budget = budget.at_most(self.max_groups);
        if !must_follow && state.are_short(branch, tasks_of(op), budget, nodes)? {
            return Ok(false);
        }
        self.tasks.extend(tasks_of(op));
        if self.tasks.len() > MAX_TASKS {
            return Err(Error::UnitTooLong.into());
        }
        self.places.push(place);
        Ok(true)
    }
}

/// Whether an operation can be done after the unit has committed.
pub(super) const fn can_be_put_off(op: &Op<'_>) -> bool {
    matches!(op, Op::PunchPages { .. } | Op::MovePages { .. } | Op::SwapPages { .. })
}
