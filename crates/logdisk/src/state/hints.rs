//! Hints as clients tell them, and as they are stored.

use dendro_disk::{Lid, ListHints};
use dendro_format::Hints;

/// The hints as the log and the map hold them.
pub(crate) fn stored(hints: ListHints) -> Hints {
    Hints { near: hints.near.map_or(0, |near| near.0), ..Hints::of_bits(hints.bits()) }
}

/// The hints that are stored so.
pub(super) fn told(hints: Hints) -> ListHints {
    let near = (hints.near != 0).then_some(Lid(hints.near));
    ListHints { near, ..ListHints::from_bits(hints.bits) }
}
