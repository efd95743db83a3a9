//! The conditions of a unit, and which lists have changed lately.

use dendro_base::sync::Arc;
use dendro_disk::{Aru, Condition, Error};

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;

/// Checks the conditions of a unit against the state that it would change.
///
/// # Errors
/// [`Error::ConditionFailed`], or [`Fault::Miss`](crate::fault::Fault::Miss) when a node must be
/// read.
#[inline]
pub(super) fn check_conditions(
    engine: &mut Engine,
    aru: &Aru<'_>,
    nodes: &dyn Nodes,
) -> Outcome<()> {
    if aru.conditions().is_empty() { Ok(()) } else { check_each(engine, aru, nodes) }
}

#[inline(never)]
fn check_each(engine: &mut Engine, aru: &Aru<'_>, nodes: &dyn Nodes) -> Outcome<()> {
    for condition in aru.conditions() {
        if let Condition::RecordIs { list, index, value } = condition {
            let state = engine.state();
            let ancestry = state.versions().head_ancestry(aru.view().branch)?;
            let found = state.record(ancestry, *list, *index, nodes)?;
            if found.as_ref().map(Arc::as_ref) != value.as_deref() {
                return Err(Error::ConditionFailed(*list).into());
            }
        }
    }
    match engine.changed_lists().changed(aru) {
        Some(list) => Err(Error::ConditionFailed(list).into()),
        None => Ok(()),
    }
}
