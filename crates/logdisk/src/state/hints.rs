//! How the hints of a list are stored.

use dendro_disk::{ListHints, Locality};

/// The bit that says that a list's blocks should lie together. Bits 0 to 3 are reserved for how its
/// pages are compressed.
const CLUSTERED: u16 = 1 << 4;

/// The 16 bits that the map and the log keep of a list's hints.
pub(crate) const fn encode(hints: ListHints) -> u16 {
    match hints.locality {
        Locality::AsWritten => 0,
        Locality::Clustered => CLUSTERED,
    }
}

/// The hints that these bits state.
pub(crate) const fn decode(bits: u16) -> ListHints {
    let is_clustered = bits & CLUSTERED != 0;
    let locality = if is_clustered { Locality::Clustered } else { Locality::AsWritten };
    ListHints { locality }
}
