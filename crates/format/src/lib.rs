//! Every structure that dendrofs puts on a device, bit by bit: how it is encoded, checked and
//! decoded. No I/O, no state, no `unsafe`; `docs/FORMAT.md` tells the same in prose.
//!
//! - [`layout`]: how a device is cut into segments, and addresses in it.
//! - [`superblock`]: where a volume is found from.
//! - [`partial`]: the header of a partial segment, the unit that the log is written in.
//! - [`record`]: what a partial segment says happened.
//! - [`key`], [`chunk`], [`node`]: the map.
//! - [`checkpoint`], [`usage`]: a frozen state of the whole.
//! - [`versions`]: branches and snapshots; [`removal`]: lists that are being removed.
//!
//! With the feature `testing` also `testing`: random structures, and what fuzzers run.
//!
//! All numbers are little-endian. Bytes from a device are hostile: every decoder bounds each count
//! and offset before it uses it and answers [`Malformed`], never with a panic.

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod chunk;
pub mod key;
pub mod layout;
pub mod node;
pub mod partial;
pub mod record;
pub mod removal;
pub mod superblock;
#[cfg(feature = "testing")]
pub mod testing;
pub mod usage;
mod varint;
pub mod versions;

pub use checkpoint::Checkpoint;
pub use chunk::{CHUNK_PAGES, Chunk, MAX_PAGE_COUNT, PageRef};
pub use key::{Key, Space};
pub use layout::{Addr, Layout, SegmentNo};
pub use node::{ChildPtr, Entries, NodePtr, Value};
pub use partial::{Head, PartialHeader};
pub use record::Record;
pub use superblock::Superblock;
pub use usage::Usage;
pub use versions::VersionRecord;

/// The checksum of everything: CRC-32C (Castagnoli), as in iSCSI (RFC 3720), ext4 and btrfs.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of bytes that follow those of which `checksum` is the checksum.
#[must_use]
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: {problem}")]
pub struct Malformed {
    /// What was being read.
    pub structure: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Malformed {
    pub(crate) const fn new(structure: &'static str, problem: &'static str) -> Self {
        Self { structure, problem }
    }
}

/// Whether numbers that count up from zero can be: none gets as far as 2⁶³ in any volume's life, so
/// whoever reads one can count on.
pub(crate) fn can_be_counted(counters: &[u64]) -> bool {
    counters.iter().all(|&counter| counter < 1 << 63)
}

/// What a decoder answers.
pub type Result<T> = std::result::Result<T, Malformed>;
