//! Hints of lists that a unit changes in part.

use dendro_disk::{Lid, ListHints, Op};

/// The hints that the last of these changes of a unit gives to a list; `None` if none gives any.
/// A unit that changes one hint alone keeps the others of these, or of those that the list has.
#[must_use]
pub fn given_hints<'a>(
    changes: impl DoubleEndedIterator<Item = &'a Op<'static>>,
    list: Lid,
) -> Option<ListHints> {
    changes.rev().find_map(|change| match *change {
        Op::CreateList { list: of, hints }
        | Op::RestoreList { list: of, hints }
        | Op::SetHints { list: of, hints }
            if of == list =>
        {
            Some(hints)
        }
        _ => None,
    })
}
