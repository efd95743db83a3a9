//! Names and numbers of the logical disk.

use std::fmt;

use dendro_base::sync::Arc;

/// A record's value. The disk and its clients share the memory of those that they read or put.
pub type Record = Arc<[u8]>;

/// The longest record, in bytes; the shortest has one.
pub const MAX_RECORD_LEN_BYTES: usize = 1024;

/// One more than the highest page index: a list's pages span 2⁶³ bytes, what a file offset can
/// name.
pub const MAX_PAGE_COUNT: u64 = 1 << 51;

/// Pages form groups of so many, beginning at multiples of it. The size of a unit is counted in
/// them.
pub const GROUP_PAGES: u64 = 32;

/// The most groups of pages that one unit may change. With contiguous pages that is 128 MiB.
pub const MAX_UNIT_GROUPS: u64 = 1024;

/// The number of a list, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lid(pub u64);

impl Lid {
    /// The first number that [`crate::LogicalDisk::allocate_list`] returns on an empty disk.
    pub const FIRST: Self = Self(1);
    /// One more than the last number that a client may use; the disk itself uses the rest.
    pub const CLIENT_END: Self = Self(1 << 62);
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A commit's place in the order of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSeq(pub u64);

impl CommitSeq {
    /// Everything that has been committed by the time of the call.
    pub const LATEST: Self = Self(u64::MAX);
}

/// One version of the whole disk: the writable head of a branch, or a read-only point in its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The branch.
    pub branch: u32,
    /// The last epoch that is visible; `None` for the head.
    pub epoch: Option<u64>,
}

impl View {
    /// The writable head of the branch that every disk has.
    pub const HEAD: Self = Self { branch: 0, epoch: None };
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            None => write!(f, "head of branch {}", self.branch),
            Some(epoch) => write!(f, "branch {} at epoch {epoch}", self.branch),
        }
    }
}

/// Whether a list's blocks should lie together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Locality {
    /// As they were written.
    #[default]
    AsWritten = 0,
    /// In the order of their indices: the list will be read sequentially. The log-structured disk
    /// coalesces such a list even where that saves a single read.
    Clustered = 1,
}

/// Hints from a client about a list. A disk stores them with the list and may ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListHints {
    /// Whether its blocks should lie together.
    pub locality: Locality,
}

/// The bit that says that a list's blocks should lie together. Bits 0 to 3 are reserved for how its
/// pages are compressed.
const CLUSTERED: u16 = 1 << 4;

impl ListHints {
    /// The 16 bits by which disks and send streams name the hints.
    #[must_use]
    pub const fn bits(self) -> u16 {
        match self.locality {
            Locality::AsWritten => 0,
            Locality::Clustered => CLUSTERED,
        }
    }

    /// The hints that these bits name. Bits without a meaning are ignored.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        let is_clustered = bits & CLUSTERED != 0;
        let locality = if is_clustered { Locality::Clustered } else { Locality::AsWritten };
        Self { locality }
    }
}
