//! How the hints of a list are stored.

use dendro_disk::{Compression, ListHints, Locality};

/// The 16 bits that the map and the log keep of a list's hints.
pub(crate) const fn encode(hints: ListHints) -> u16 {
    hints.compression as u16 | (hints.locality as u16) << 4
}

/// The hints that these bits state.
pub(crate) const fn decode(bits: u16) -> ListHints {
    let compression = match bits & 0xf {
        1 => Compression::None,
        2 => Compression::Lz4,
        3 => Compression::Zstd,
        _ => Compression::Default,
    };
    let locality = if bits >> 4 & 1 == 1 { Locality::Clustered } else { Locality::AsWritten };
    ListHints { compression, locality }
}
