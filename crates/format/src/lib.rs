//! Every structure that dendrofs writes to a device, bit by bit: how it is encoded, checked and
//! decoded. There is no I/O, no state and no `unsafe`. `docs/FORMAT.md` describes the same in
//! prose.
//!
//! - [`layout`]: how a device is divided into segments, and addresses in it.
//! - [`superblock`]: the structure from which a volume is found.
//! - [`partial`]: the header of a partial segment, the unit that the log is written in.
//! - [`record`]: the changes in a partial segment.
//! - [`key`], [`chunk`], [`node`]: the map.
//! - [`compression`]: how pages are stored in fewer bytes.
//! - [`checkpoint`], [`usage`], [`totals`]: a frozen state of the whole volume.
//! - [`retired`]: segments that the device cannot write.
//! - [`roster`]: the devices that hold a volume together.
//! - [`versions`]: branches and snapshots; [`removal`]: lists that are being removed.
//!
//! With the feature `testing` also `testing`: random structures, and what fuzzers run.
//!
//! All numbers are little-endian. Bytes from a device are not trusted: every decoder bounds each
//! count and offset before it uses it, and returns [`Malformed`] instead of panicking.

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod chunk;
pub mod compression;
pub mod hints;
pub mod key;
pub mod layout;
pub mod node;
pub mod partial;
pub mod rearrangement;
pub mod record;
pub mod removal;
pub mod retired;
pub mod roster;
pub mod superblock;
#[cfg(feature = "testing")]
pub mod testing;
pub mod totals;
pub mod usage;
mod varint;
pub mod versions;

use crc_fast::{CrcAlgorithm, Digest};

pub use checkpoint::{Checkpoint, Identity};
pub use chunk::{CHUNK_PAGES, Chunk, MAX_PAGE_COUNT, PageRef};
pub use compression::Compression;
pub use hints::Hints;
pub use key::{Key, Space};
pub use layout::{Addr, Layout, SegmentNo};
pub use node::{ChildPtr, Entries, NodePtr, Value};
pub use partial::{Head, PartialHeader};
pub use record::Record;
pub use retired::Retired;
pub use roster::Roster;
pub use superblock::Superblock;
pub use totals::CompressedPages;
pub use usage::Usage;
pub use versions::VersionRecord;

/// The checksum of all structures: CRC-32C (Castagnoli), as in iSCSI (RFC 3720), ext4 and btrfs.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of a sequence whose first part has the checksum `checksum`, and whose rest is the
/// given bytes.
#[must_use]
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!checksum));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Bytes that are no valid structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: {problem}")]
pub struct Malformed {
    /// The structure that was expected.
    pub structure: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Malformed {
    pub(crate) const fn new(structure: &'static str, problem: &'static str) -> Self {
        Self { structure, problem }
    }
}

/// Whether numbers that count up from zero are plausible. None of them reaches 2⁶³ in the life of a
/// volume, so a reader can add to them without overflow.
pub(crate) fn can_be_counted(counters: &[u64]) -> bool {
    counters.iter().all(|&counter| counter < 1 << 63)
}

/// The result of a decoder.
pub type Result<T> = std::result::Result<T, Malformed>;
