//! Hints as clients tell them, and as they are stored.

use dendro_disk::ListHints;
use dendro_format::Hints;

/// The hints as the log and the map hold them.
pub(crate) fn stored(hints: ListHints) -> Hints {
    let (bits, near) = hints.parts();
    Hints { near, ..Hints::of_bits(bits) }
}

/// The hints that are stored so.
pub(super) fn told(hints: Hints) -> ListHints {
    ListHints::from_parts(hints.bits, hints.near)
}
